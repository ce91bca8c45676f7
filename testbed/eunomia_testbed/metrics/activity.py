"""The activity of GPUs: splits each lease into the periods of its job's activities."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from eunomia.units import Ints, Reals
from eunomia_testbed.simulator.logs.run import SimulatedRun

_LOST = frozenset({"expired", "preempted", "lost"})
_SAME = 1e-6
"""Times that differ by less than this many seconds count as equal."""


def segment_columns(run: SimulatedRun) -> tuple[Ints, Ints, Reals, Reals, list[str]]:
    """Return the columns job (row), GPU, start, end (seconds), activity; empty if no segments were kept.

    Before its job's first step, a lease is ``start``, or ``restore`` if the job had held GPUs before. After the last
    step, the lease is ``save`` if the job lost it unfinished, or else ``idle``. Periods without steps in between are
    ``idle``. A GPU that is added to a running job is ``start`` until the job uses it (``--cost join``).
    """
    rows = [row for job, spans in _runs_by_job(run) for row in _of_job(job, spans)]
    job, gpu, start, end, activity = zip(*rows, strict=True) if rows else ((),) * 5
    return (
        np.array(job, np.int64),
        np.array(gpu, np.int64),
        np.array(start, float),
        np.array(end, float),
        list(activity),
    )


def merged_runs(job: Ints, start: Reals, end: Reals) -> tuple[Ints, Reals, Reals]:
    """Return job, start and end of running periods, ordered by job and start, with adjacent ones merged."""
    order = np.lexsort((start, job))
    job, start, end = job[order], start[order], end[order]
    if not job.size:
        return job, start, end
    fresh = np.concatenate([[True], (job[1:] != job[:-1]) | (start[1:] > end[:-1] + _SAME)])
    first = np.flatnonzero(fresh)
    return job[first], start[first], np.maximum.reduceat(end, first)


class _Held(NamedTuple):
    """A job's leases, its running periods, and its runs with a fixed gang; each list is ascending.

    Attributes:
        starts: start of each running period.
        ends: end of each running period.
        leases: GPU, start, end and cause of the end of each lease.
        run_starts: start of each run with a fixed gang.
        run_ends: end of each run.
        run_gpus: number of GPUs of each run.
    """

    starts: list[float]
    ends: list[float]
    leases: list[tuple[int, float, float, str]]
    run_starts: Reals
    run_ends: Reals
    run_gpus: Ints


def _runs_by_job(run: SimulatedRun) -> list[tuple[int, _Held]]:
    log = run.segments
    if not log.job.size:
        return []
    job, start, end = merged_runs(log.job, log.start_seconds, log.end_seconds)
    every = np.arange(run.state.size + 1)
    bounds = np.searchsorted(job, every).tolist()
    starts, ends = start.tolist(), end.tolist()
    order = np.lexsort((log.start_seconds, log.job))
    single = np.searchsorted(log.job[order], every).tolist()
    run_starts, run_ends, run_gpus = log.start_seconds[order], log.end_seconds[order], log.gpus[order]
    found = []
    for row, leases in sorted(_leases_by_job(run).items()):
        of_job, runs = slice(bounds[row], bounds[row + 1]), slice(single[row], single[row + 1])
        held = _Held(starts[of_job], ends[of_job], leases, run_starts[runs], run_ends[runs], run_gpus[runs])
        found.append((row, held))
    return found


def _leases_by_job(run: SimulatedRun) -> dict[int, list[tuple[int, float, float, str]]]:
    """Return the leases of each job, in the order of the log; an open lease ends with the run."""
    held = run.leases
    until = np.where(np.isnan(held.end_seconds), run.end_seconds, held.end_seconds)
    columns = (held.gpu.tolist(), held.start_seconds.tolist(), until.tolist(), held.ended_by.tolist())
    found: dict[int, list[tuple[int, float, float, str]]] = {}
    for job, lease in zip(held.job.tolist(), zip(*columns, strict=True), strict=True):
        if job >= 0:
            found.setdefault(job, []).append(lease)
    return found


def _of_job(job: int, held: _Held) -> Iterator[tuple[int, int, float, float, str]]:
    first_start = min(begin for _, begin, _, _ in held.leases)
    for gpu, begin, end, ended_by in held.leases:
        again, lost = begin > first_start + _SAME, ended_by in _LOST
        joined = _joins(begin, held) if again else None
        if joined is not None:
            yield job, gpu, begin, min(joined, end), "start"
            begin = joined
        if begin < end - _SAME:
            for start, stop, activity in _cut(begin, end, held, again=again, lost=lost):
                yield job, gpu, start, stop, activity


def _joins(begin: float, held: _Held) -> float | None:
    """Return the time at which a run first uses a GPU added during an earlier run; None: not added to a run.

    A run uses the GPUs that its job held at the run's start. If their number equals that of the run, a GPU that the job
    got later is first used in the next run.
    """
    before = bisect_left(held.starts, begin - _SAME) - 1
    if before < 0 or held.ends[before] <= begin + _SAME:
        return None
    at = int(np.searchsorted(held.run_starts, begin - _SAME)) - 1
    start, end = float(held.run_starts[at]), float(held.run_ends[at])
    if end <= begin + _SAME or held.run_gpus[at] != sum(
        since <= start + _SAME and until >= begin + _SAME for _, since, until, _ in held.leases
    ):
        return None
    return float(held.run_starts[at + 1]) if at + 1 < held.run_starts.size else end


def _cut(begin: float, end: float, held: _Held, *, again: bool, lost: bool) -> list[tuple[float, float, str]]:
    """Return the periods of a lease: start, end and activity of each."""
    inside = slice(bisect_right(held.ends, begin + _SAME), bisect_left(held.starts, end - _SAME))
    pieces: list[tuple[float, float, str]] = []
    at = begin
    for start, stop in zip(held.starts[inside], held.ends[inside], strict=True):
        if start > at + _SAME:
            pieces.append((at, start, ("restore" if again else "start") if not pieces else "idle"))
        pieces.append((max(at, start), min(stop, end), "run"))
        at = min(stop, end)
    if end > at + _SAME:
        ran = bool(pieces)
        pieces.append((at, end, ("save" if lost else "idle") if ran else ("restore" if again else "start")))
    return pieces
