"""Decides when a running job has stalled: no worker showed progress for longer than its phase may take.

Progress is a step, a log entry, a checkpoint, or a pulse of the helper, such as one per batch of an evaluation. The
caller passes in the observations and the time; the watch itself ends nothing.
"""

import enum
from collections.abc import Callable, Hashable, Mapping
from types import MappingProxyType
from typing import Final

from eunomia.model.shapes import value
from eunomia.units import format_duration
from eunomia_appmaster.node.loop_clock import MOST_GAP_SECONDS, LoopClock
from eunomia_appmaster.node.system import MACHINE


class Phase(enum.IntEnum):
    """What a worker does, as its helper reports it; the numbers are those in pulses and in launcher.proto."""

    UNKNOWN = 0
    """The worker does not use the training helper."""
    START = 1
    """From the start of its process to the first batch or forward pass."""
    FIRST_STEP = 2
    """Until the end of the first optimizer step, which includes compilation and filling caches."""
    STEPS = 3
    """It fetches a batch, or is between a forward pass and the optimizer step."""
    EVALUATION = 4
    """Anything else that a script does between steps, mostly evaluations."""
    CHECKPOINT = 5
    STOPPED = 6
    """Its process is stopped (SIGSTOP, a debugger), as the launcher observes."""
    PEERS = 7
    """It waits for other workers of its gang, which changes its size live."""

    @property
    def words(self) -> str:
        """The phase as text for messages."""
        return _WORDS[self]


_WORDS: Final = {
    Phase.UNKNOWN: "its run",
    Phase.START: "its start",
    Phase.FIRST_STEP: "its first step",
    Phase.STEPS: "a step",
    Phase.EVALUATION: "an evaluation, or other code between steps",
    Phase.CHECKPOINT: "a checkpoint",
    Phase.STOPPED: "a step",
    Phase.PEERS: "a step",
}

ALLOWANCES: Final[Mapping[Phase, float]] = MappingProxyType(
    {Phase.START: 1800.0, Phase.FIRST_STEP: 1200.0, Phase.EVALUATION: 1800.0, Phase.CHECKPOINT: 900.0}
)
"""Seconds without progress that are allowed in phases whose length does not depend on the step time."""
LEAST_SECONDS: Final = 60.0
"""Shortest limit in seconds if no ``stall_after`` is set."""
DEFAULT_STEPS: Final = 20.0
"""Multiple of the measured step time that one step may take."""
LEAST_AFTER_SECONDS: Final = 5.0
"""Shortest ``stall_after`` in seconds, since workers report once per second."""
PEERS_MARGIN_SECONDS: Final = 60.0
"""Seconds added to the longest limit for a worker's wait for its peers, since its app master must end a stall first."""
PEERS_WITHOUT_LIMIT_SECONDS: Final = 30 * 86400.0
"""Seconds of a worker's wait for its peers if jobs are never ended as stalled; workers need some limit."""
LEAST_STEPS: Final = 3.0
"""Shortest limit in steps, even with a shorter ``stall_after``, since a shorter one would end healthy jobs."""


@value
class StallLimits:
    """How long a job may make no progress.

    Attributes:
        steps: limit as a multiple of the measured step time.
        after: limit in seconds, which replaces ``steps`` and shorter allowances; None: not set.
        off: whether jobs are never ended as stalled.
    """

    steps: float = DEFAULT_STEPS
    after: float | None = None
    off: bool = False

    def seconds(self, phase: Phase, step_seconds: float | None) -> float | None:
        """Return the limit in a phase, in seconds; None: there is none."""
        if self.off:
            return None
        slow = LEAST_STEPS * (step_seconds or 0.0)
        if phase is Phase.UNKNOWN:
            return None if self.after is None else max(self.after, slow)
        if phase in ALLOWANCES:
            return max(ALLOWANCES[phase], self.after or 0.0, slow)
        if self.after is not None:
            return max(self.after, slow)
        if step_seconds is None:  # the speed is unknown, as after one step; STOPPED needs none
            return LEAST_SECONDS if phase is Phase.STOPPED else ALLOWANCES[Phase.FIRST_STEP]
        return max(LEAST_SECONDS, self.steps * step_seconds)

    @property
    def peers_seconds(self) -> float:
        """Seconds for which a worker waits for its peers, longer than the limit of any phase that a peer may be in.

        Only if steps are so slow that the multiple of their time is the longest limit, the wait is shorter than it.
        """
        if self.off:
            return PEERS_WITHOUT_LIMIT_SECONDS
        return max(*ALLOWANCES.values(), self.after or 0.0) + PEERS_MARGIN_SECONDS

    def too_short_for(self, step_seconds: float | None) -> bool:
        """Return whether ``after`` is shorter than the job's steps allow."""
        return self.after is not None and step_seconds is not None and self.after < LEAST_STEPS * step_seconds


@value
class Observed:
    """An observation of a running job's workers at one moment.

    Attributes:
        news: a value that changes whenever a worker makes progress, or the gang changes.
        phases: phases of its workers; empty: no worker has started.
        step_seconds: seconds per step, as last measured; None: unknown.
        logged: whether a job without the helper has logged or reported anything yet.
    """

    news: Hashable
    phases: tuple[Phase, ...] = ()
    step_seconds: float | None = None
    logged: bool = True

    @property
    def phase(self) -> Phase:
        """The phase that determines the limit: that of a stopped worker first, since the others wait for it."""
        if Phase.STOPPED in self.phases:
            return Phase.STOPPED
        return max(self.phases, key=_ORDER.index, default=Phase.START)


_ORDER: Final = (
    Phase.PEERS,
    Phase.STOPPED,
    Phase.STEPS,
    Phase.UNKNOWN,
    Phase.CHECKPOINT,
    Phase.START,
    Phase.FIRST_STEP,
    Phase.EVALUATION,
)
"""Phases in order of precedence: a gang waits for the worker that may take longest."""


@value
class Stall:
    """A job without progress for longer than its limit.

    Attributes:
        phase: its present phase.
        silent_seconds: seconds without progress while the watch ran.
        limit_seconds: the exceeded limit.
    """

    phase: Phase
    silent_seconds: float
    limit_seconds: float

    def words(self) -> str:
        """Return the stall as text, such as ``no progress for 63 s in a step (limit 60 s)``."""
        silent, limit = format_duration(round(self.silent_seconds)), format_duration(round(self.limit_seconds, 1))
        return f"no progress for {silent} in {self.phase.words} (limit {limit})"


@value
class _Known:
    news: Hashable
    phase: Phase
    at: float
    """Time of the last progress in seconds, plus the time for which a worker was stopped since."""
    stopped_at: float = 0.0
    """Time in seconds at which a worker was stopped, in ``Phase.STOPPED``."""


class StallWatch:
    """Follows the progress of jobs. After a gap of the caller's loop, silence is counted from zero.

    Args:
        limits: the same for all jobs.
        clock: returns seconds; see ``LoopClock``.
    """

    def __init__(self, limits: StallLimits, clock: Callable[[], float] = MACHINE.uptime) -> None:
        self.limits = limits
        shortest = LEAST_SECONDS if limits.after is None else limits.after
        self._clock = LoopClock(clock, most_gap=min(MOST_GAP_SECONDS, shortest / 4.0))
        self._known: dict[int, _Known] = {}

    def tick(self) -> bool:
        """Record that the caller's loop runs; returns whether it had a gap."""
        return self._clock.tick()

    def look(self, job: int, seen: Observed) -> Stall | None:
        """Return the stall of a running job; None: it makes progress, or its limit is not reached.

        A new phase is progress, unless it only means that a process was stopped or continued: a stopped worker's
        silence is counted from the stop, and not at all once it continues.
        """
        known, phase, now = self._known.get(job), seen.phase, self._clock.now()
        if known is None or known.news != seen.news or self._is_new(known.phase, phase):
            known = _Known(news=seen.news, phase=phase, at=now, stopped_at=now)
        elif phase is not known.phase:
            stopped = now - known.stopped_at if known.phase is Phase.STOPPED else 0.0
            known = _Known(news=seen.news, phase=phase, at=known.at + stopped, stopped_at=now)
        self._known[job] = known
        since = known.stopped_at if phase is Phase.STOPPED else known.at
        limit, silent = self._limit(seen), self._clock.silence(since)
        if limit is None or silent < limit:
            return None
        return Stall(phase=phase, silent_seconds=silent, limit_seconds=limit)

    def forgive(self, job: int) -> None:
        """Restart the limit of a job."""
        self._known.pop(job, None)

    def keep_only(self, jobs: "set[int]") -> None:
        """Forget all other jobs."""
        for job in self._known.keys() - jobs:
            del self._known[job]

    def _limit(self, seen: Observed) -> float | None:
        limit = self.limits.seconds(seen.phase, seen.step_seconds)
        if limit is not None and seen.phase is Phase.UNKNOWN and not seen.logged:
            return max(limit, ALLOWANCES[Phase.FIRST_STEP])
        return limit

    @staticmethod
    def _is_new(before: Phase, now: Phase) -> bool:
        return before is not now and Phase.STOPPED not in (before, now)
