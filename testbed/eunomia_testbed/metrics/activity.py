"""What slots did for their holders: each lease cut by when its job made steps."""

import numpy as np

from eunomia.units import Ints, Reals
from eunomia_testbed.simulator.run import SimulatedRun

_SAME = 1e-6
"""Seconds below which two moments are one."""


def segment_columns(run: SimulatedRun) -> dict[str, object]:
    """Columns ``job_row, gpu, start_seconds, end_seconds, activity`` of what slots did; empty without kept segments.

    A lease before its job's first step is ``start``, or ``restore`` where the job had held GPUs before; after its last
    step ``save`` where the job lost the lease unfinished, else ``idle``, and so are stretches in between.
    """
    pieces = [_of_job(run, job, spans) for job, spans in _runs_by_job(run)]
    gathered = {name: [piece[name] for piece in pieces] for name in ("job_row", "gpu", "start_seconds", "end_seconds")}
    kinds = [np.empty(0), np.empty(0, np.int64)]
    columns: dict[str, object] = {
        name: np.concatenate([kinds[name in ("job_row", "gpu")], *parts]) for name, parts in gathered.items()
    }
    columns["activity"] = [activity for piece in pieces for activity in piece["activity"]]
    return columns


def merged_runs(job: Ints, start: Reals, end: Reals) -> tuple[Ints, Reals, Reals]:
    """Stretches by job with those that touch made one, ordered by job and start."""
    order = np.lexsort((start, job))
    job, start, end = job[order], start[order], end[order]
    if not job.size:
        return job, start, end
    fresh = np.concatenate([[True], (job[1:] != job[:-1]) | (start[1:] > end[:-1] + _SAME)])
    first = np.flatnonzero(fresh)
    return job[first], start[first], np.maximum.reduceat(end, first)


def _runs_by_job(run: SimulatedRun) -> list[tuple[int, tuple[Reals, Reals]]]:
    if not run.segments.job.size:
        return []
    job, start, end = merged_runs(run.segments.job, run.segments.start_seconds, run.segments.end_seconds)
    bounds = np.searchsorted(job, np.arange(run.state.size + 1))
    held = np.unique(run.leases.job[run.leases.job >= 0]).tolist()
    return [(row, (start[bounds[row] : bounds[row + 1]], end[bounds[row] : bounds[row + 1]])) for row in held]


def _of_job(run: SimulatedRun, job: int, spans: tuple[Reals, Reals]) -> dict[str, list[object]]:
    rows = np.flatnonzero(run.leases.job == job)
    first_start = float(run.leases.start_seconds[rows].min())
    found: dict[str, list[object]] = {
        name: [] for name in ("job_row", "gpu", "start_seconds", "end_seconds", "activity")
    }
    for row in rows.tolist():
        begin, end = float(run.leases.start_seconds[row]), float(run.leases.end_seconds[row])
        end = run.end_seconds if end != end else end
        again = begin > first_start + _SAME
        lost = run.leases.ended_by[row] in ("expired", "preempted", "lost")
        for start, stop, activity in _cut(begin, end, spans, again=again, lost=lost):
            found["job_row"].append(job)
            found["gpu"].append(int(run.leases.gpu[row]))
            found["start_seconds"].append(start)
            found["end_seconds"].append(stop)
            found["activity"].append(activity)
    return found


def _cut(
    begin: float, end: float, spans: tuple[Reals, Reals], *, again: bool, lost: bool
) -> list[tuple[float, float, str]]:
    """A lease's stretches with what was done in each."""
    starts, ends = spans
    inside = (ends > begin + _SAME) & (starts < end - _SAME)
    pieces: list[tuple[float, float, str]] = []
    at = begin
    for start, stop in zip(starts[inside].tolist(), ends[inside].tolist(), strict=True):
        if start > at + _SAME:
            pieces.append((at, start, ("restore" if again else "start") if not pieces else "idle"))
        pieces.append((max(at, start), min(stop, end), "run"))
        at = min(stop, end)
    if end > at + _SAME:
        ran = bool(pieces)
        pieces.append((at, end, ("save" if lost else "idle") if ran else ("restore" if again else "start")))
    return pieces
