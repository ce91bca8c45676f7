"""The SciPy back end: ``scipy.optimize.milp``, the last solver of the chain for linear programmes."""

import math

import numpy as np

from eunomia_solvers.outcome import Limits, Status
from eunomia_solvers.program import LinearProgram
from eunomia_solvers.raw import Answer, UnavailableError

_STATUS = {0: Status.OPTIMAL, 1: Status.LIMIT, 2: Status.INFEASIBLE, 3: Status.UNBOUNDED, 4: Status.FAILED}


def solve(program: LinearProgram, limits: Limits, seed: int) -> Answer:
    """Solve a linear or mixed-integer programme; the seed and the iteration limit have no effect.

    Raises:
        UnavailableError: SciPy is not installed.
    """
    try:
        import scipy
        from scipy import optimize, sparse
    except ImportError as missing:
        raise UnavailableError(f"not installed ({missing})") from missing
    shape = (program.constraints, program.variables)
    matrix = sparse.csr_array((program.rows.value, program.rows.index, program.rows.start), shape=shape)
    options = {"mip_rel_gap": limits.gap, "node_limit": limits.nodes, "time_limit": limits.seconds}
    found = optimize.milp(
        program.cost,
        integrality=program.integral.astype(int),
        bounds=optimize.Bounds(program.lower, program.upper),
        constraints=[optimize.LinearConstraint(matrix, program.row_lower, program.row_upper)] if shape[0] else [],
        options={name: limit for name, limit in options.items() if limit is not None},
    )
    status = _STATUS[found.status]
    bound = getattr(found, "mip_dual_bound", None)
    return Answer(
        status=Status.FEASIBLE if status is Status.LIMIT and found.x is not None else status,
        x=None if found.x is None else np.asarray(found.x),
        bound=-math.inf if bound is None else float(bound),
        version=scipy.__version__,
        said=str(found.message),
        cut_short=status is Status.LIMIT and limits.seconds is not None,
    )
