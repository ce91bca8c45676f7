"""Synergy-Opt's programmes as the paper states them (A.1), with whole jobs: specifications for the fast solvers."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from eunomia.units import Reals
from eunomia_solvers import Limits, LinearProgram, SparseRows, solve_linear


class Rates(NamedTuple):
    """One job's matrix as a list of points, and its proportional rate."""

    cpus: Reals
    memory_gib: Reals
    rate: Reals
    proportional: float


def stated(jobs: Sequence[Rates], capacity: tuple[float, float], *, whole: bool = True) -> float:
    """Return the greatest sum of rates, each as a multiple of the job's proportional rate.

    Args:
        jobs: at least one.
        capacity: CPUs and GiB of all machines together.
        whole: whether a job takes one point; else it may divide its time among its points, which is the bound of
            Theorem A.1.

    Raises:
        SolveError: not even the proportional rates fit together.
    """
    start = np.cumsum([0, *(job.rate.size for job in jobs)])
    columns = [np.arange(*start[turn : turn + 2]) for turn in range(len(jobs))]
    value = np.concatenate([job.rate / job.proportional for job in jobs])
    every, least = np.arange(value.size), 1.0 - 1e-9
    rows = [
        (every, np.concatenate([job.cpus for job in jobs])),
        (every, np.concatenate([job.memory_gib for job in jobs])),
        *((mine, np.ones(mine.size)) for mine in columns),
    ]
    count, free = len(jobs), [-np.inf, -np.inf]
    lower, upper = [*free, *[1.0] * count], [*capacity, *[1.0] * count]
    if not whole:
        rows += [(mine, value[mine]) for mine in columns]
        lower, upper = [*lower, *[least] * count], [*upper, *[np.inf] * count]
    programme = LinearProgram.of(
        value,
        rows=SparseRows.of(rows),
        row_lower=lower,
        row_upper=upper,
        # A job with one point has none that is slower. With a row a job for that, HiGHS 1.15 cuts off the optimum.
        upper=np.where(value >= least, 1.0, 0.0) if whole else 1.0,
        integral=whole,
        maximise=True,
    )
    return float(solve_linear(programme, limits=Limits(gap=0.0), place="synergy_opt").objective)
