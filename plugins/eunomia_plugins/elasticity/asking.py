"""Choose the sizes at which running jobs should be measured."""

from collections.abc import Iterator

import numpy as np

from eunomia import Probes, Snapshot
from eunomia.units import NONE, Ints, Rows

Choice = tuple[int, int]
"""A job row and a number of GPUs."""


def sizes_to_probe(snapshot: Snapshot) -> Probes | None:
    """Return, for each job, the smallest size not measured yet on the GPU type that it runs on or requests.

    Measurements are shared among the jobs of a kind that has known rates or jobs of several apps: each size is measured
    with one job of the kind. All other jobs are measured separately.

    Args:
        snapshot: the current state.

    Returns:
        At most one size per job, jobs by arrival; None if all sizes are known.
    """
    asking = _Asking(snapshot)
    chosen = sorted([*asking.of_kinds(), *asking.of_others()])
    if not chosen:
        return None
    rows, gpus = np.array(chosen, np.int64).T
    return Probes(jobs=rows.astype(np.int32), gpus=gpus)


class _Asking:
    def __init__(self, snapshot: Snapshot) -> None:
        cluster, jobs, active = snapshot.cluster, snapshot.jobs, snapshot.active
        self._snapshot = snapshot
        on = snapshot.holdings.job[: cluster.gpus]
        running, first, count = np.unique(on[on != NONE], return_index=True, return_counts=True)
        self._gpus = np.zeros(jobs.most.size, np.int64)
        self._gpus[running] = count
        self._type = np.maximum(jobs.gpu_type, 0)
        self._type[running] = cluster.gpu_type[np.flatnonzero(on != NONE)[first]]
        self._of_type = cluster.capacity
        self._shared = self._shared_kinds()
        self._shares = np.isin(jobs.job_kind[active], list(self._shared))

    def _shared_kinds(self) -> set[int]:
        """Return the kinds with known rates or jobs of several apps; an app is the kind of jobs that declare none."""
        jobs, active = self._snapshot.jobs, self._snapshot.active
        pairs = np.unique(np.column_stack([jobs.job_kind[active], jobs.app[active]]), axis=0)
        kinds, apps = np.unique(pairs[:, 0], return_counts=True)
        return set(kinds[apps > 1].tolist()) | set(self._snapshot.profiles)

    def of_kinds(self) -> Iterator[Choice]:
        jobs, active = self._snapshot.jobs, self._snapshot.active[self._shares]
        kinds = jobs.job_kind[active]
        for kind in np.unique(kinds).tolist():
            yield from self._of_kind(kind, active[kinds == kind])

    def _of_kind(self, kind: int, rows: Rows) -> Iterator[Choice]:
        """Yield a job for each size and type at which no job of the kind was measured; running jobs first."""
        known = {(rate.gpus, rate.gpu_type) for rate in self._snapshot.profiles.get(kind, ())}
        names = self._snapshot.cluster.gpu_types
        here = np.column_stack([self._gpus[rows], self._type[rows]])
        known |= {(size, names[kind]) for size, kind in np.unique(here, axis=0).tolist()}
        missing = {
            (size, gpu_type)
            for least, most, gpu_type in np.unique(self._ranges(rows), axis=0).tolist()
            for size in _sizes(least, most)
            if (size, names[gpu_type]) not in known
        }
        ordered = rows[np.argsort(self._gpus[rows] == 0, kind="stable")]
        for job, (least, most, gpu_type) in zip(ordered.tolist(), self._ranges(ordered).tolist(), strict=True):
            if not missing:
                return
            size = next((size for size in _sizes(least, most) if (size, gpu_type) in missing), None)
            if size is not None:
                missing.remove((size, gpu_type))
                yield job, size

    def of_others(self) -> Iterator[Choice]:
        """Yield each job without a shared kind, and its smallest unmeasured size; the job's app master measures it."""
        rows, names = self._snapshot.active[~self._shares], self._snapshot.cluster.gpu_types
        for job, (least, most, kind) in zip(rows.tolist(), self._ranges(rows).tolist(), strict=True):
            own = self._snapshot.measured.get(job, ())
            seen = {point.gpus for point in own if point.gpu_type == names[kind]} | {int(self._gpus[job])}
            left = [size for size in _sizes(least, most) if size not in seen]
            if left:
                yield job, left[0]

    def _ranges(self, rows: Rows) -> Ints:
        """Return smallest size, largest size (at most the cluster's GPUs of the type) and GPU type of each job."""
        jobs, kind = self._snapshot.jobs, self._type[rows]
        ranges: Ints = np.column_stack([jobs.least[rows], np.minimum(jobs.most[rows], self._of_type[kind]), kind])
        return ranges


def _sizes(least: int, most: int) -> list[int]:
    """Return ``least``, ``most`` and the powers of two between them, ascending."""
    powers = {1 << bit for bit in range(most.bit_length())}
    return sorted({least, most} | {size for size in powers if least < size < most}) if least <= most else []
