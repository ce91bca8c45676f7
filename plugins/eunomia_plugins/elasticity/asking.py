"""Chooses the sizes at which running jobs are to be measured."""

import numpy as np

from eunomia import Probes, Snapshot
from eunomia_plugins.elasticity.curves import Known


def sizes_to_probe(snapshot: Snapshot, known: Known) -> Probes | None:
    """Ask for the smallest size of each job that was not measured on the GPU type that it runs on, or asks for.

    Args:
        snapshot: the state of this moment.
        known: rates by job.

    Returns:
        At most one size a job, jobs by arrival; None: all are known.
    """
    jobs, held, cluster = snapshot.jobs, snapshot.holdings, snapshot.cluster
    on, chosen = held.job[: cluster.gpus], []
    for job in snapshot.active.tolist():
        mine = np.flatnonzero(on == job)
        kind = int(cluster.gpu_type[mine[0]]) if mine.size else max(0, int(jobs.gpu_type[job]))
        seen = {point.gpus for point in known.get(job, ()) if point.gpu_type == cluster.gpu_types[kind]}
        most = min(int(jobs.most[job]), int((cluster.gpu_type == kind).sum()))
        seen.add(mine.size)  # its app master measures it there
        left = [size for size in _sizes(int(jobs.least[job]), most) if size not in seen]
        if left:
            chosen.append((job, left[0]))
    if not chosen:
        return None
    rows, gpus = np.array(chosen, np.int64).T
    return Probes(jobs=rows.astype(np.int32), gpus=gpus)


def _sizes(least: int, most: int) -> list[int]:
    """The least and the most size, and the powers of two between, ascending."""
    powers = {1 << bit for bit in range(most.bit_length())}
    return sorted({least, most} | {size for size in powers if least < size < most}) if least <= most else []
