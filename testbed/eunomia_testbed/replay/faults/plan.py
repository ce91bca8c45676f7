"""The plan of a replay's faults, drawn from a seed and used by the real runs and the simulation alike."""

import enum
import itertools
import math
import random
from collections.abc import Sequence
from typing import Final

from eunomia.errors import InputError
from eunomia.model.shapes import value
from eunomia.units import format_duration
from eunomia.words import did_you_mean, shown
from eunomia_appmaster.node.supervisor import HEALTHY_SECONDS, MOST_FAILURES, MOST_PAUSE_SECONDS


class FaultKind(enum.StrEnum):
    """A kind of fault that a replay carries out on its own processes."""

    WORKER = "worker"
    """SIGKILL for a worker of a job that makes steps."""
    APP_MASTER = "app-master"
    """SIGKILL for an app master."""
    ARBITER = "arbiter"
    """SIGKILL for the arbiter, which its supervisor restarts."""
    LAUNCHER = "launcher"
    """SIGKILL for the launcher, which its supervisor restarts."""
    STOP = "stop"
    """SIGSTOP for a worker of a job that makes steps, and SIGCONT some seconds later."""


OF_WORKERS: Final = frozenset({FaultKind.WORKER, FaultKind.STOP})
ABSENT: Final = {
    "slot": "the launcher of a replay loses no slot by order",
    "node": "a replay has one node",
    "disk": "a run's folder is on no file system of its own",
}
"""Kinds that a replay cannot carry out, each with the reason."""
STOP_SECONDS: Final = (2.0, 8.0)
"""Shortest and longest stop in seconds, below the limits after which a stopped process counts as hung."""
PART: Final = 0.85
"""Fraction of the shortest simulated makespan in which all faults fall, so that each finds a running job."""
WITHIN: Final = (0.1, 0.9)
"""Range of a fault's time within its own slice of that period, so that no two faults coincide."""
MOST_OF_ONE_JOB: Final = 3
"""Largest number of faults of one job's workers; more kills within ten minutes would exhaust its retries."""
LASTING_SECONDS: Final = HEALTHY_SECONDS + MOST_PAUSE_SECONDS
"""Seconds after which a restart of arbiter or launcher no longer counts towards the supervisor's limit."""


@value
class Fault:
    """A planned fault.

    Attributes:
        number: number in the plan, from 1.
        at_seconds: seconds after the first submission.
        kind: what is done.
        draw: number in [0, 1) that selects the target among those present at that time.
        lasts_seconds: seconds from a stop to its continuation; 0: a kill.
    """

    number: int
    at_seconds: float
    kind: FaultKind
    draw: float
    lasts_seconds: float = 0.0


@value
class FaultPlan:
    """The faults of every run of a replay, in order of time."""

    seed: int
    within_seconds: float
    """Seconds after the first submission within which all faults fall."""
    faults: tuple[Fault, ...]

    def words(self) -> str:
        """Return the plan as one line."""
        kinds = list(dict.fromkeys(fault.kind.value for fault in self.faults))
        counts = ", ".join(f"{sum(fault.kind == kind for fault in self.faults)} {kind}" for kind in sorted(kinds))
        return f"{len(self.faults)} faults in the first {format_duration(self.within_seconds)} of each run: {counts}"


def chosen(count: int, draw: float) -> tuple[int, float]:
    """Return the index of the target that a draw selects, and a new draw in [0, 1) for a choice within it.

    Args:
        count: number of targets; above 0.
        draw: number in [0, 1).
    """
    place = draw * count
    index = min(count - 1, int(place))
    return index, place - index


def drawn_plan(count: int, seed: int, kinds: Sequence[FaultKind], makespan_seconds: float) -> FaultPlan:
    """Draw a plan: all kinds equally often, in random order, each fault in its own slice of the time.

    Args:
        count: number of faults; above 0.
        seed: seed of all draws.
        kinds: kinds of the faults; at least one.
        makespan_seconds: shortest simulated makespan of a run.

    Raises:
        InputError: there are more faults than seconds, or arbiter or launcher would be killed so often in a row that
            the supervisor would not restart it again.
    """
    within = PART * makespan_seconds
    if count > within:
        rule = "--faults must be at most one a second of the time in which jobs surely run"
        raise InputError(rule, value=f"{count} in {within:.0f} s", place="--faults")
    chance = random.Random(seed)
    share, deck = within / count, list[FaultKind]()
    faults = []
    for number in range(count):
        if not deck:
            deck = sorted(kinds)
            chance.shuffle(deck)
        kind = deck.pop()
        at = (number + chance.uniform(*WITHIN)) * share
        draw, lasts = chance.random(), chance.uniform(*STOP_SECONDS)
        stop = lasts if kind is FaultKind.STOP else 0.0
        faults.append(Fault(number=number + 1, at_seconds=at, kind=kind, draw=draw, lasts_seconds=stop))
    for kind in (FaultKind.ARBITER, FaultKind.LAUNCHER):
        _check_restarts(kind, [fault.at_seconds for fault in faults if fault.kind is kind])
    return FaultPlan(seed=seed, within_seconds=within, faults=tuple(faults))


def _check_restarts(kind: FaultKind, times: Sequence[float]) -> None:
    """Check that a process is not killed so often in a row that its supervisor stops restarting it."""
    in_row = most = min(1, len(times))
    for before, after in itertools.pairwise(times):
        in_row = in_row + 1 if after - before < LASTING_SECONDS else 1
        most = max(most, in_row)
    if most >= MOST_FAILURES:
        rule = (
            f"the {kind.value} must not be killed {MOST_FAILURES} times in a row within {LASTING_SECONDS:.0f} s of "
            "each other, after which it is restarted no more (take fewer --faults, or a lower --speed)"
        )
        raise InputError(rule, value=f"{most} times", place="--faults")


def kinds_of(text: str | None) -> tuple[FaultKind, ...]:
    """Parse ``--fault-kinds``.

    Args:
        text: kinds, separated by commas; None: all.

    Raises:
        InputError: a kind is unknown, cannot be carried out, or is given twice.
    """
    if text is None:
        return tuple(FaultKind)
    known = [kind.value for kind in FaultKind]
    names = [part.strip() for part in text.split(",")]
    for name in names:
        if name in ABSENT:
            rule = f"a fault must be of a kind that a replay can carry out ({', '.join(known)})"
            raise InputError(rule, value=f"{shown(name)}: {ABSENT[name]}", place="--fault-kinds")
        if name not in known:
            rule = f"a kind of fault must be one of {', '.join(known)}"
            raise InputError(rule, value=f"{shown(name)}{did_you_mean(name, known)}", place="--fault-kinds")
    if len(set(names)) < len(names):
        raise InputError("a kind of fault must be given once", value=shown(text), place="--fault-kinds")
    return tuple(FaultKind(name) for name in names)


def shortest_makespan(makespans: Sequence[float]) -> float:
    """Return the shortest finite makespan in seconds; 0: there is none."""
    return min((each for each in makespans if math.isfinite(each)), default=0.0)
