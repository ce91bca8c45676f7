"""The Clarabel back end: an interior-point method for continuous linear programmes, to check other solvers."""

import importlib
from typing import Any, Final

import numpy as np

from eunomia_solvers.outcome import Limits, Status
from eunomia_solvers.program import LinearProgram
from eunomia_solvers.raw import Answer, UnavailableError

_STATUS: Final = {
    "Solved": Status.OPTIMAL,
    "AlmostSolved": Status.FEASIBLE,
    "PrimalInfeasible": Status.INFEASIBLE,
    "DualInfeasible": Status.UNBOUNDED,
    "MaxIterations": Status.LIMIT,
    "MaxTime": Status.LIMIT,
}


def solve(program: LinearProgram, limits: Limits, seed: int) -> Answer:
    """Solve a continuous linear programme; the seed has no effect, as the method is deterministic.

    Raises:
        UnavailableError: Clarabel is not installed, or the programme has integer variables.
    """
    if program.integral.any():
        raise UnavailableError("it solves no whole-number variables")
    try:
        module: Any = importlib.import_module("clarabel")
        from scipy import sparse
    except ImportError as missing:
        raise UnavailableError(f"not installed ({missing})") from missing
    settings = module.DefaultSettings()
    settings.verbose, settings.max_threads = False, 1
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-10
    settings.max_iter = limits.iterations or settings.max_iter
    if limits.seconds is not None:
        settings.time_limit = limits.seconds
    matrix, right, equations = _standard_form(program, sparse)
    cones = [module.ZeroConeT(equations), module.NonnegativeConeT(right.size - equations)]
    nothing = sparse.csc_matrix((program.variables, program.variables))
    found = module.DefaultSolver(nothing, program.cost, matrix, right, cones, settings).solve()
    said = str(found.status)
    status = _STATUS.get(said, Status.FAILED)
    return Answer(
        status=status,
        x=np.asarray(found.x) if status in (Status.OPTIMAL, Status.FEASIBLE) else None,
        bound=float(found.obj_val_dual),
        version=module.__version__,
        said=said,
        cut_short=said == "MaxTime",
    )


def _standard_form(program: LinearProgram, sparse: Any) -> tuple[Any, Any, int]:
    """Return A, b and the number of equations of ``A x + s = b``: equations first, then rows and bounds as ``<=``."""
    shape = (program.constraints, program.variables)
    rows = sparse.csr_matrix((program.rows.value, program.rows.index, program.rows.start), shape=shape)
    unit = sparse.identity(program.variables, format="csr")
    equal = program.row_lower == program.row_upper
    below = ~equal & np.isfinite(program.row_upper)
    above = ~equal & np.isfinite(program.row_lower)
    high, low = np.isfinite(program.upper), np.isfinite(program.lower)
    matrix = sparse.vstack([rows[equal], rows[below], -rows[above], unit[high], -unit[low]], format="csc")
    right = np.concatenate(
        [
            program.row_upper[equal],
            program.row_upper[below],
            -program.row_lower[above],
            program.upper[high],
            -program.lower[low],
        ]
    )
    return matrix, right, int(equal.sum())
