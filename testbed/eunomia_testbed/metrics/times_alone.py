"""Finish-time fairness of a run's apps from its log, if the time of each job alone is known before the run.

A simulation computes fairness from its own speeds (``metrics.judged``); these are the same definitions for the log of a
real run whose rates were measured before.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from eunomia.model.shapes import builds, value
from eunomia.units import Reals
from eunomia_testbed.metrics import fairness
from eunomia_testbed.run_log.log import RunLog


@value
class TimesAlone:
    """The work and times alone of each job of an app, known before the run.

    Attributes:
        serial_seconds: seconds of the job's work on one GPU; NaN: unknown.
        exclusive_seconds: seconds of the job's work at its best size and placement.
        most: the job's largest number of GPUs.
        iterations: the job's total work in iterations.
    """

    serial_seconds: float
    exclusive_seconds: float
    most: int
    iterations: float


@builds
class AppRho:
    """Columns of the table of apps, in the order of ``RunLog.apps``; NaN: unknown."""

    alone_seconds: Reals
    mean_apps: Reals
    rho: Reals
    rho_static: Reals
    rho_contention: Reals
    rho_exclusive: Reals


def judge_apps(log: RunLog, alone: Mapping[str, TimesAlone], gpus: int) -> AppRho:
    """Return all kinds of rho of a live run's apps, by the same definitions as ``metrics.judged``.

    Args:
        log: log of the run.
        alone: times alone of each app's jobs, by app name; other apps get NaN.
        gpus: number of GPUs of the cluster.
    """
    apps, jobs = log.app_log, log.arrivals
    names = [log.apps[row] for row in jobs.app.tolist()]
    known = [alone.get(name) for name in names]
    done = _done_shares(log, known)
    serial = _column(None if one is None else one.serial_seconds for one in known) * done
    exclusive = _column(None if one is None else one.exclusive_seconds for one in known) * done
    most = _column(None if one is None else one.most for one in known)

    def summed(values: Reals) -> Reals:
        return np.bincount(jobs.app, np.nan_to_num(values, nan=0.0), minlength=len(log.apps)).astype(float)

    demand = summed(most)
    alone_seconds = fairness.alone_seconds(summed(serial), demand, gpus)
    longest = fairness.exclusive_seconds(summed(exclusive * most), demand, gpus, jobs.app, exclusive)
    arrival, finish, jct = (_column(each) for each in (apps.arrival_seconds, apps.finish_seconds, apps.jct_seconds))
    begun, over = (_column(each) for each in (jobs.arrival_seconds, jobs.finish_seconds))
    present = fairness.Presence(begun[np.isfinite(begun)], over[np.isfinite(begun)])
    mean_apps = fairness.Presence(arrival, finish).over(arrival, finish)
    mean_jobs = np.maximum(1.0, present.over(arrival, finish) / max(1, gpus))
    return AppRho(
        alone_seconds=np.where(alone_seconds > 0.0, alone_seconds, np.nan),
        mean_apps=mean_apps,
        rho=fairness.rho(jct, alone_seconds, mean_apps),
        rho_static=fairness.rho(jct, longest, fairness.static_contention(len(names), gpus)),
        rho_contention=fairness.rho(jct, longest, mean_jobs),
        rho_exclusive=fairness.rho(jct, longest),
    )


def _done_shares(log: RunLog, known: Sequence[TimesAlone | None]) -> Reals:
    """Return by job the fraction of the work that its app needed; below 1 if the tuner ended the job early."""
    return np.array(
        [
            1.0 if one is None or state != "stopped" else min(1.0, (iterations or 0) / one.iterations)
            for one, state, iterations in zip(known, log.arrivals.state, log.arrivals.iterations, strict=True)
        ]
    )


def _column(values: Iterable[float | None]) -> Reals:
    """Return optional numbers as an array, with NaN for None."""
    return np.array([np.nan if each is None else each for each in values], dtype=float)
