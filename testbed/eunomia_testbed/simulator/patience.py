"""The guard over a run's progress: a policy that makes none is refused, and nothing waits for ever."""

from collections.abc import Sequence

from eunomia.decisions import Decision
from eunomia.errors import EunomiaError
from eunomia.events import Event, MachineBack, MachineLost
from eunomia.units import Seconds

IDLE_STEPS = 500
"""Steps in a row in which nothing comes and nothing is decided; where nothing runs either, a run is over after them."""
STUCK_STEPS = 200_000
"""Steps in a row without a start, an end or an arrival."""
INSTANT_STEPS = 1_000
"""Steps at one moment."""
_MACHINES = frozenset({MachineLost, MachineBack})


class Patience:
    """Counts steps that lead nowhere.

    Args:
        policy: named in errors.
    """

    def __init__(self, policy: str) -> None:
        self._policy = policy
        self.moved_at = Seconds(0.0)
        """When a job last came, started or ended."""
        self._now = Seconds(-1.0)
        self._moves = -1
        self._idle = self._stuck = self._instant = 0

    @property
    def is_out(self) -> bool:
        """Whether nothing has been decided for so long that nothing will be."""
        return self._idle > IDLE_STEPS

    def watch(self, now: Seconds, decision: Decision, events: Sequence[Event], moves: int) -> None:
        """Watch a step.

        Raises:
            EunomiaError: the policy makes no progress; it names policy and time.
        """
        self._instant = self._instant + 1 if now == self._now else 0
        if moves != self._moves:
            self._stuck, self._moves, self.moved_at = 0, moves, now
        else:
            self._stuck += 1
        self._now = now
        if not decision.wake_at > now or self._instant > INSTANT_STEPS or self._stuck > STUCK_STEPS:
            self._refuse(now, decision)
        if decision.transitions or decision.offers or not _MACHINES.issuperset(map(type, events)):
            self._idle = 0
        else:
            self._idle += 1

    def _refuse(self, now: Seconds, decision: Decision) -> None:
        place = f"{self._policy} at {now} s"
        if not decision.wake_at > now:
            raise EunomiaError("wake_at must be later than now", value=str(decision.wake_at), place=place)
        if self._instant > INSTANT_STEPS:
            raise EunomiaError("time must go on", value=f"{self._instant} steps at one moment", place=place)
        said = f"{self._stuck} steps without a start, an end or an arrival"
        raise EunomiaError("a policy must make progress", value=said, place=place)
