"""The variants of finish-time fairness, and metrics computed from them.

Every variant is rho = time in the shared cluster / (time alone x contention); they differ in the contention:

- ``themis``: N_avg, the mean number of apps in the cluster over the app's life (Themis, NSDI'20, section 4.2, eq. 2);
- ``static``: jobs of the trace per GPU, at least 1 (Gavel's and Shockwave's published rho);
- ``contention``: mean jobs in the cluster over the job's life per GPU, at least 1 (Shockwave, appendix F);
- ``exclusive``: 1.
"""

from typing import Final

import numpy as np

from eunomia.units import Ints, Reals

KINDS: Final = ("themis", "static", "contention", "exclusive")
UNFAIR_RHO: Final = 1.05
"""rho above which an app counts as treated unfairly: 1, plus a margin for whole GPUs and rounds (Shockwave)."""


def mean_present(arrival_seconds: Reals, finish_seconds: Reals) -> Reals:
    """Return, for each app (or job), the mean number present over its life, including itself; see ``Presence``."""
    return Presence(arrival_seconds, finish_seconds).over(arrival_seconds, finish_seconds)


class Presence:
    """The number of apps (or jobs) present over time, as a step function.

    Args:
        start_seconds: start of each app or job.
        end_seconds: end of each app or job; NaN: never.
    """

    def __init__(self, start_seconds: Reals, end_seconds: Reals) -> None:
        self.moments, self.present = presence(start_seconds, end_seconds)
        self._area = np.concatenate([[0.0], np.cumsum(self.present[:-1] * np.diff(self.moments))])

    def over(self, arrival_seconds: Reals, finish_seconds: Reals) -> Reals:
        """Return the mean number present over each life; for a life of 0 s, the number at that time, at least 1.

        Args:
            arrival_seconds: start of each life.
            finish_seconds: end of each life; NaN: the life does not end, and its mean is NaN.
        """
        if not self.moments.size:
            return np.ones_like(arrival_seconds)
        life = finish_seconds - arrival_seconds
        late = np.where(np.isnan(finish_seconds), arrival_seconds, finish_seconds)
        shared = np.interp(late, self.moments, self._area) - np.interp(arrival_seconds, self.moments, self._area)
        with np.errstate(divide="ignore", invalid="ignore"):
            mean: Reals = shared / life
        short = np.flatnonzero(life == 0.0)
        at_once = np.searchsorted(self.moments, arrival_seconds[short], side="right") - 1
        mean[short] = np.maximum(1.0, self.present[np.clip(at_once, 0, None)])
        return mean


def presence(start_seconds: Reals, end_seconds: Reals) -> tuple[Reals, Reals]:
    """Return the number present as a step function: ascending times of changes, and the number from each time on.

    An end of NaN counts as never.
    """
    ends = end_seconds[np.isfinite(end_seconds)]
    moments = np.concatenate([start_seconds, ends])
    change = np.concatenate([np.ones(start_seconds.size), -np.ones(ends.size)])
    return accumulate(moments, change)


def accumulate(moments: Reals, change: Reals) -> tuple[Reals, Reals]:
    """Return a step function from its changes: distinct times, ascending, and the value from each time on."""
    if not moments.size:
        return moments, change
    order = np.argsort(moments, kind="stable")
    sorted_moments, value = moments[order], change[order]
    del order  # frees memory: there may be millions of rows
    np.cumsum(value, out=value)
    last = np.append(np.flatnonzero(np.diff(sorted_moments)), moments.size - 1)
    return sorted_moments[last], value[last]


def alone_seconds(work_gpu_seconds: Reals, demand_gpus: Reals, cluster_gpus: int) -> Reals:
    """Return T_cluster in seconds: each app's work on all GPUs that it can use, at linear speed-up (Themis, 4.2).

    Args:
        work_gpu_seconds: by app, GPU-seconds of all its jobs.
        demand_gpus: by app, the most GPUs that its jobs can use together.
        cluster_gpus: number of GPUs of the cluster (R_C).
    """
    return work_gpu_seconds / np.clip(demand_gpus, 1, max(1, cluster_gpus))


def exclusive_seconds(
    work_gpu_seconds: Reals, demand_gpus: Reals, cluster_gpus: int, app: Ints, job_alone_seconds: Reals
) -> Reals:
    """Return each app's seconds alone: all its work on the GPUs that it can use, but at least its longest job.

    Args:
        work_gpu_seconds: by app, GPU-seconds of all its jobs at their own sizes.
        demand_gpus: by app, the most GPUs that its jobs can use together.
        cluster_gpus: number of GPUs of the cluster.
        app: by job, the row of its app.
        job_alone_seconds: by job, the seconds of the job alone; NaN: unknown.
    """
    found = alone_seconds(work_gpu_seconds, demand_gpus, cluster_gpus)
    np.fmax.at(found, app, job_alone_seconds)
    return found


def rho(jct_seconds: Reals, alone: Reals, contention: Reals | float = 1.0) -> Reals:
    """Return shared time / (time alone x contention); NaN if the time alone is 0 or a value is unknown."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found = jct_seconds / (alone * contention)
    return np.where(np.isfinite(found), found, np.nan)


def static_contention(jobs: int, cluster_gpus: int) -> float:
    """Return the jobs of the trace per GPU, at least 1.

    Source: ``get_finish_time_fairness`` of Gavel's and Shockwave's simulator.
    """
    return max(1.0, jobs / max(1, cluster_gpus))


def jain(rhos: Reals) -> float | None:
    """Return Jain's index of x = 1 / rho, the received fraction of the fair share; None: no positive rho.

    The index (sum x)^2 / (n sum x^2) is 1 if all x are equal, and 1 / n if one has everything (Jain, Chiu, Hawe 1984).
    """
    with np.errstate(divide="ignore"):
        shares = 1.0 / rhos[rhos > 0.0]
    return float(shares.sum() ** 2 / (shares.size * np.square(shares).sum())) if shares.size else None
