"""The polling points of a run, at which it gets directives, and at which a live gang changes its members."""

from typing import Any, Protocol

from eunomia_appmaster.training.commands import Directive
from eunomia_appmaster.training.gang import Gang
from eunomia_appmaster.training.keeper import Keeper
from eunomia_appmaster.training.live.swap import Entered, Swap
from eunomia_appmaster.training.logbook import StepClock
from eunomia_appmaster.training.supervision import At, Supervision


class Stepping(Protocol):
    """The part of a run that a ``Boundary`` uses; a protocol."""

    step: int
    """Number of optimizer steps."""

    @property
    def in_loop(self) -> bool:
        """Whether the script is in a loop over a prepared loader."""
        ...

    def captured(self) -> Any:
        """Capture the state at the present step boundary."""
        ...


class Boundary:
    """Polls for directives, and makes the gang's changes.

    Args:
        run: the run that calls this at its polling points.
        gang: the gang of this worker.
        keeper: captures and restores the run's state.
        supervision: the run's supervision, which polls for directives.
        swap: enters generations.
        clock: measures the run's step times, without the time of changes.
    """

    def __init__(
        self, run: Stepping, gang: Gang, *, keeper: Keeper, supervision: Supervision, swap: Swap, clock: StepClock
    ) -> None:
        self._run, self._gang, self._keeper = run, gang, keeper
        self._supervision, self._swap, self._clock = supervision, swap, clock

    def directive(self, at: At) -> Directive:
        """Return the gang's directive, after all changes of the gang that are due at this polling point.

        In an evaluation the gang does not change: the loss of a peer is handled at the next boundary.
        """
        gang, begins = self._gang, at in (At.BATCH, At.EPOCH)
        while True:
            if gang.catches_up and not self._has_caught_up(at):
                return Directive()
            if gang.broken and at is not At.EVALUATION:
                self.mend()
            if gang.agreed_on_entry():
                self._swap.goes_on(self._run.step, begins=begins)
                return Directive()
            directive = self._supervision.directive(at, self._run.step)
            if gang.broken:
                if at is At.EVALUATION:
                    return Directive()
                gang.uncount()
            elif begins and directive.generation > gang.generation:
                self._clock.stop()
                self._enter(self._swap.changes(self._run.step, directive.generation))
            else:
                self._swap.goes_on(self._run.step, begins=begins)
                return directive

    def begin_loop(self) -> bool:
        """Begin a loop of the script; a newcomer first waits for its peers' state. Returns whether it is a newcomer."""
        if not self._gang.newcomer:
            self._swap.begins()
            return False
        self._enter(self._swap.joins())
        return True

    def check_joined(self, same: bool) -> None:
        """End a newcomer unless ``same``: whether its first loop is over the same loader as its peers' loop."""
        if not same:
            why = "its first loop is over another loader than its peers', as run.state is empty before its first loop"
            self._supervision.go("unfit", {"generation": self._gang.generation, "why": why}, f"left: {why}")

    def mend(self) -> bool:
        """Enter a new generation after the loss of a peer; returns whether this worker took another worker's state."""
        self._clock.stop()
        place = self._keeper.place
        where = place.phase, place.epoch
        taken = self._enter(self._swap.mends(self._run.step))
        if taken and where != (place.phase, place.epoch):
            why = "its peers have left the loop that it is in"
            self._supervision.go("unfit", {"generation": self._gang.generation, "why": why}, f"left: {why}")
        return taken

    def stay(self, why: str) -> None:
        """Keep a live gang in its present generation from now on."""
        if self._gang.live:
            self._gang.pin(why)

    def _enter(self, entered: Entered) -> bool:
        self._run.step = entered.step
        if self._run.in_loop:
            self._clock.start()
        return entered.taken

    def _has_caught_up(self, at: At) -> bool:
        """Return whether this newcomer is at the polling point at which its peers wait for it."""
        if at not in (At.BATCH, At.EPOCH):
            return False
        self._gang.has_caught_up()
        self._run.captured()
        return True
