"""The polling points of a run: directives come in there, and a live gang changes there."""

from typing import Any, Protocol

from eunomia_appmaster.training.commands import Directive
from eunomia_appmaster.training.gang import Gang
from eunomia_appmaster.training.keeper import Keeper
from eunomia_appmaster.training.live.swap import Entered, Swap
from eunomia_appmaster.training.logbook import StepClock
from eunomia_appmaster.training.supervision import At, Supervision


class Stepping(Protocol):
    """The part of a run that moves when its gang changes; a protocol."""

    step: int
    """Number of optimizer steps."""

    @property
    def in_loop(self) -> bool:
        """Whether a loop over a prepared loader runs."""
        ...

    def captured(self) -> Any:
        """Capture the present step boundary."""
        ...


class Boundary:
    """Asks for directives, and lets the gang change.

    Args:
        run: that is at its boundaries.
        gang: its gang.
        keeper: of its state.
        supervision: of the run.
        swap: enters generations.
        clock: of its steps, which does not count changes.
    """

    def __init__(
        self, run: Stepping, gang: Gang, *, keeper: Keeper, supervision: Supervision, swap: Swap, clock: StepClock
    ) -> None:
        self._run, self._gang, self._keeper = run, gang, keeper
        self._supervision, self._swap, self._clock = supervision, swap, clock

    def directive(self, at: At) -> Directive:
        """Return the gang's directive, after all changes of the gang that are due at this polling point.

        In an evaluation nothing changes: the loss of a peer waits for the next boundary.
        """
        gang = self._gang
        while True:
            if gang.catches_up and not self._has_caught_up(at):
                return Directive()
            if gang.broken and at is not At.EVALUATION:
                self.mend()
            directive = self._supervision.directive(at, self._run.step)
            if gang.broken:
                if at is At.EVALUATION:
                    return Directive()
                gang.uncount()
            elif at in (At.BATCH, At.EPOCH) and directive.generation > gang.generation:
                self._clock.stop()
                self._enter(self._swap.changes(self._run.step, directive.generation))
            else:
                self._swap.goes_on(self._run.step)
                return directive

    def begin_loop(self) -> bool:
        """Begin a loop of the script; a newcomer waits here, and True is returned once it has its peers' state."""
        if not self._gang.newcomer:
            self._swap.begins()
            return False
        self._enter(self._swap.joins())
        return True

    def check_joined(self, same: bool) -> None:
        """End a newcomer whose first loop is over another loader than its peers' is."""
        if not same:
            why = "its first loop is over another loader than its peers', as run.state is empty before its first loop"
            self._supervision.go("unfit", {"generation": self._gang.generation, "why": why}, f"left: {why}")

    def mend(self) -> bool:
        """Enter a new generation after the loss of a peer; returns whether this worker took the state of another."""
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
        """Return whether this newcomer stands where the others wait for it."""
        if at not in (At.BATCH, At.EPOCH):
            return False
        self._gang.has_caught_up()
        self._run.captured()
        return True
