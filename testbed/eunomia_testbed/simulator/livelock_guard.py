"""Ends a simulation that makes no progress under its policy."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from eunomia.contract.decisions import Decision
from eunomia.contract.events import (
    Event,
    MachineBack,
    MachineDraining,
    MachineJoined,
    MachineKept,
    MachineLeft,
    MachineLost,
)
from eunomia.errors import EunomiaError
from eunomia.units import Seconds

IDLE_STEPS = 500
"""Consecutive steps without a decision or an event, or with machines' events only, after which an idle run is over."""
STUCK_STEPS = 200_000
"""Largest number of consecutive steps without a start, an end or an arrival of a job (machines' events aside)."""
INSTANT_STEPS = 1_000
"""Largest number of consecutive steps at the same time."""
_MACHINES = frozenset({MachineLost, MachineBack, MachineJoined, MachineLeft, MachineDraining, MachineKept})


class LivelockGuard:
    """A counter of steps without progress.

    Args:
        policy: name of the policy, for errors.
    """

    def __init__(self, policy: str) -> None:
        self._policy = policy
        self.moved_at = Seconds(0.0)
        """Time at which a job last arrived, started or ended."""
        self._now = Seconds(-1.0)
        self._moves = -1
        self._idle = self._stuck = self._instant = 0
        self._faults = 0
        """Consecutive failures and repairs of machines that changed nothing else."""
        self.down: AbstractSet[int] = frozenset()
        """Numbers of the machines that are down now."""
        self._awaited: AbstractSet[int] = frozenset()
        """Machines that have been down since the first of these failures and repairs."""

    @property
    def is_out(self) -> bool:
        """Return whether too many steps have passed without a decision; the run is over if no job runs either.

        Failures and repairs of machines end a run only once every machine that was down has been back.
        """
        return self._idle > IDLE_STEPS or (self._faults > IDLE_STEPS and not self._awaited)

    def watch(self, now: Seconds, decision: Decision, events: Sequence[Event], moves: int) -> None:
        """Count a step.

        Raises:
            EunomiaError: the policy makes no progress; the error names policy and time.
        """
        self._instant = self._instant + 1 if now == self._now else 0
        self._now = now
        if moves != self._moves:
            self._stuck = self._idle = self._faults = 0
            self._moves, self.moved_at = moves, now
        elif decision.transitions or decision.offers:
            self._stuck += 1
            self._idle = self._faults = 0
        elif not events:
            self._stuck += 1
            self._idle += 1
        elif _MACHINES.issuperset(map(type, events)):  # no policy causes a failure
            self._awaited = self._awaited & self.down if self._faults else frozenset(self.down)
            self._faults += 1
        else:
            self._stuck += 1
            self._idle = self._faults = 0
        if not decision.wake_at > now or self._instant > INSTANT_STEPS or self._stuck > STUCK_STEPS:
            self._refuse(now, decision)

    def _refuse(self, now: Seconds, decision: Decision) -> None:
        place = f"{self._policy} at {now} s"
        if not decision.wake_at > now:
            raise EunomiaError("wake_at must be later than now", value=str(decision.wake_at), place=place)
        if self._instant > INSTANT_STEPS:
            raise EunomiaError("time must go on", value=f"{self._instant} steps at one moment", place=place)
        value = f"{self._stuck} steps without a start, an end or an arrival"
        raise EunomiaError("a policy must make progress", value=value, place=place)
