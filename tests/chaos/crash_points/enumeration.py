"""Every point of a script: the process stopped there, started again, and the end compared."""

import multiprocessing
from collections import Counter
from collections.abc import Iterator, Sequence

from chaos.crash_points.joining import MACHINE
from chaos.crash_points.world import APP_MASTER, ARBITER, LAUNCHER, STORE, AppSpec, Outcome, run_once
from eunomia.model.shapes import builds, value

KINDS = (ARBITER, APP_MASTER, LAUNCHER)
CHUNK, RUNS_PER_PROCESS = 4, 40
"""Runs leave threads that wait for ever, so that a process slows down: another one takes its place."""


@value
class Stopped:
    """One run with a stop.

    Attributes:
        kind: of process.
        number: of the point, from 1.
        point: what it is.
        differences: from the run without a stop; none: it recovered.
        seconds: virtual, until all was over.
        restarts: how many more incarnations its jobs that change live had than in the run without a stop.
    """

    kind: str
    number: int
    point: str
    differences: tuple[str, ...]
    seconds: float
    restarts: int = 0


@builds
class Script:
    """What is run."""

    name: str
    apps: Sequence[AppSpec]
    slots: int
    """Of each node."""
    nodes: int = 1
    scene: str = ""
    """``joins``: a machine joins with a token, before the apps are submitted; ``leaves``: it is removed later, too."""

    live: bool = False
    """Whether a job changes live, so that its store is stopped, too."""

    @property
    def kinds(self) -> Sequence[str]:
        """Kinds of processes that are stopped."""
        if self.live:
            return (*KINDS, STORE)
        return (ARBITER, MACHINE) if self.scene else KINDS


def undisturbed(script: Script, kind: str) -> Outcome:
    """The run without a stop, with all points of processes of that kind.

    Raises:
        RuntimeError: it breaks a rule by itself.
    """
    outcome = run_once(script.apps, slots=script.slots, nodes=script.nodes, scene=script.scene, kind=kind)
    if outcome.broken:
        raise RuntimeError(f"the undisturbed run must be clean: {outcome.broken}")
    return outcome


def stopped(script: Script, kind: str, number: int, expected: Outcome) -> Stopped:
    """Stop at one point and hold the end against the expected one."""
    outcome = run_once(
        script.apps, slots=script.slots, nodes=script.nodes, scene=script.scene, kind=kind, stop_at=number
    )
    found = list(outcome.broken)
    if outcome.points[:number] != expected.points[:number]:
        found.append("it went another way before the stop")
    found += differences(expected.end, outcome.end)
    return Stopped(
        kind=kind,
        number=number,
        point=expected.points[number - 1],
        differences=tuple(found),
        seconds=outcome.seconds,
        restarts=len(outcome.sizes) - len(expected.sizes),
    )


def differences(expected: object, seen: object, where: str = "") -> list[str]:
    """Say what differs, with the place."""
    if isinstance(expected, dict) and isinstance(seen, dict) and expected.keys() == seen.keys():
        return [text for key in expected for text in differences(expected[key], seen[key], f"{where}/{key}")]
    if isinstance(expected, list) and isinstance(seen, list) and len(expected) == len(seen):
        pairs = enumerate(zip(expected, seen, strict=True))
        return [text for index, (one, other) in pairs for text in differences(one, other, f"{where}/{index}")]
    return [] if expected == seen else [f"{where}: {seen!r} in place of {expected!r}"]


def enumerate_points(
    script: Script, kinds: Sequence[str] = (), *, processes: int = 1, part: tuple[int, int] = (0, 1)
) -> Iterator[Stopped]:
    """Stop at every point of the script, one run each.

    Args:
        script: what is run.
        kinds: of processes that are stopped; none: the script's.
        processes: that run it side by side.
        part: which part of how many equal ones of the points, from 0.
    """
    work = []
    for kind in kinds or script.kinds:
        expected = undisturbed(script, kind)
        numbers = range(1 + part[0], len(expected.points) + 1, part[1])
        work += [(script, kind, number, expected) for number in numbers]
    if processes == 1:
        yield from (stopped(*one) for one in work)
        return
    with multiprocessing.get_context("spawn").Pool(processes, maxtasksperchild=RUNS_PER_PROCESS // CHUNK) as pool:
        yield from pool.imap(_stopped, work, chunksize=CHUNK)


def _stopped(work: tuple[Script, str, int, Outcome]) -> Stopped:
    return stopped(*work)


def table(runs: Sequence[Stopped]) -> list[tuple[str, str, int, int, int]]:
    """Rows of process, kind of point, points, recovered, different."""
    points: Counter[tuple[str, str]] = Counter()
    wrong: Counter[tuple[str, str]] = Counter()
    for run in runs:
        row = (run.kind, _kind_of_point(run.point))
        points[row] += 1
        wrong[row] += bool(run.differences)
    return [(*row, count, count - wrong[row], wrong[row]) for row, count in points.items()]


def _kind_of_point(point: str) -> str:
    what, _, moment = point.partition(": ")[2].partition(": ")
    return f"{what}, {moment}"
