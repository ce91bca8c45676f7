"""The rate of each job on each GPU type, from its menu; used by policies and refiners."""

import numpy as np

from eunomia import Menus
from eunomia.units import Ints, Reals, Rows

NOWHERE = 1e-6
"""Fraction of a job's best rate below which a rate counts as 0: the job cannot run on that type."""


def rates_by_type(menus: Menus, jobs: Rows, gpus: Ints, types: int) -> Reals:
    """Return iterations per second on ``gpus`` GPUs at the closest locality, [job, type]; 1 if no rate is known.

    A rate for the type itself takes precedence over a rate valid for any type. If the menu has rates only for some
    types, the job cannot run on the other types.
    """
    points = menus.points
    found = np.full((jobs.size, types), np.nan)
    if points.gpus.size == 0:
        return np.ones_like(found)
    nearness = np.where(points.locality < 0, 0, points.locality)
    order = np.lexsort((-points.basis, nearness))[::-1]  # the closest locality is written last
    curves = int(points.start.size) - 1
    curve = menus.curve[jobs]
    largest = np.zeros(curves + 1, np.int64)
    largest[curve] = gpus  # the last row is for jobs without a menu
    used = order[(points.gpus[order] == largest[points.curve[order]]) & ~np.isnan(points.rate[order])]
    table = np.full((curves + 1, types + 1), np.nan)
    table[points.curve[used], points.gpu_type[used]] = points.rate[used]  # -1, any type, is the last column
    by_job = table[curve]
    found = np.where(np.isnan(by_job[:, :types]), by_job[:, types:], by_job[:, :types])
    unknown = np.isnan(found).all(axis=1)
    found[unknown] = 1.0
    found = np.nan_to_num(found)
    rates: Reals = np.where(found < NOWHERE * found.max(axis=1, keepdims=True), 0.0, found)
    return rates
