"""Computes the metrics of each user over all of the user's apps."""

import numpy as np

from eunomia.units import Ints, Reals
from eunomia_testbed.metrics.judged import Judged, sum_by
from eunomia_testbed.simulator.logs.run import SimulatedRun
from eunomia_testbed.workload import Workload


def user_columns(run: SimulatedRun, workload: Workload, judged: Judged) -> dict[str, object]:
    """Return the columns of the table ``users``, with a row for each user of the workload."""
    apps, users = workload.apps, len(workload.users.id)
    figures = judged.apps
    slot_seconds = sum_by(apps.user, figures.slot_seconds, users)
    total = slot_seconds.sum()
    return {
        "weight": workload.users.weight,
        "apps": np.bincount(apps.user, minlength=users),
        "jobs": np.bincount(apps.user[workload.jobs.app], minlength=users),
        "apps_finished": np.bincount(apps.user, run.app_state == "finished", minlength=users),
        "arrival_seconds": _reduced(np.fmin, apps.user, apps.arrival_seconds, users),
        "finish_seconds": _reduced(np.fmax, apps.user, run.app_finish_seconds, users),
        "jct_mean_seconds": _mean(apps.user, figures.jct_seconds, users),
        "jct_p99_seconds": _quantile(apps.user, figures.jct_seconds, users, 0.99),
        "wait_seconds": sum_by(apps.user, figures.wait_seconds, users),
        "slot_seconds": slot_seconds,
        "slot_share": slot_seconds / total if total > 0.0 else np.full(users, np.nan),
        "rho_mean": _mean(apps.user, figures.rho, users),
        "rho_worst": _reduced(np.fmax, apps.user, figures.rho, users),
        "rho_static_worst": _reduced(np.fmax, apps.user, figures.rho_static, users),
    }


def _mean(rows: Ints, values: Reals, size: int) -> Reals:
    """Return the mean of the known values by user row; NaN if none is known."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return sum_by(rows, values, size) / np.bincount(rows, ~np.isnan(values), minlength=size)


def _reduced(reduce: np.ufunc, rows: Ints, values: Reals, size: int) -> Reals:
    """Return the minimum or maximum of the known values by user row; NaN if none is known."""
    found = np.full(size, np.nan)
    reduce.at(found, rows, values)
    return found


def _quantile(rows: Ints, values: Reals, size: int, at: float) -> Reals:
    """Return a quantile of the known values by user row, interpolated linearly between ranks; NaN if unknown."""
    known = ~np.isnan(values)
    order = np.lexsort((values[known], rows[known]))
    ascending, count = values[known][order], np.bincount(rows[known], minlength=size)
    first = np.cumsum(count) - count
    rank = first + at * np.maximum(count - 1, 0)
    low = np.clip(np.floor(rank).astype(np.int64), 0, max(0, ascending.size - 1))
    high = np.minimum(low + 1, np.maximum(first + count - 1, 0))
    if not ascending.size:
        return np.full(size, np.nan)
    found = ascending[low] + (ascending[np.clip(high, 0, ascending.size - 1)] - ascending[low]) * (rank - low)
    return np.where(count > 0, found, np.nan)
