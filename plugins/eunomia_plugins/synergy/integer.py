"""Solve Synergy-Opt's first programme for few jobs with an integer solver; variables count equal jobs by point."""

import numpy as np

from eunomia.units import Ints
from eunomia_plugins.synergy.programme import OptProgramme
from eunomia_solvers import Limits, LinearProgram, SparseRows, solve_linear


def solved(instance: OptProgramme) -> Ints:
    """Return the optimal numbers of jobs, [group, point].

    Raises:
        SolveError: no choice of points fits.
    """
    groups, points = instance.value.shape
    every = np.arange(groups * points)
    rows = [(every, column.ravel()) for column in instance.need]
    rows += [(every[group * points : (group + 1) * points], np.ones(points)) for group in range(groups)]
    programme = LinearProgram.of(
        instance.value.ravel(),
        rows=SparseRows.of(rows),
        row_lower=[-np.inf, -np.inf, *instance.count.tolist()],
        row_upper=[1.0, 1.0, *instance.count.tolist()],
        upper=np.repeat(instance.count, points),
        integral=True,
        maximise=True,
    )
    found = solve_linear(programme, limits=Limits(gap=0.0), place="synergy_opt").x
    jobs: Ints = np.rint(found).astype(np.int64).reshape(groups, points)
    return jobs
