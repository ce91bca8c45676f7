"""The interface to all solvers: it sets limits, seed and threads, scales the problem, and checks and records answers.

Nothing else in Eunomia calls a solver. ``solve_linear`` takes matrices, ``solve_cvxpy`` a cvxpy problem; both try a
chain of solvers in a fixed order and record why a solver was skipped. Importing this package imports no solver.
"""

from eunomia_solvers.conic import solve_cvxpy
from eunomia_solvers.growing import GrowingProgram
from eunomia_solvers.linear import LINEAR_CHAIN, solve_linear
from eunomia_solvers.outcome import Limits, Passed, Solution, SolveError, Solver, SolverRecord, Status
from eunomia_solvers.program import LinearProgram, SparseRows

__all__ = [
    "LINEAR_CHAIN",
    "GrowingProgram",
    "Limits",
    "LinearProgram",
    "Passed",
    "Solution",
    "SolveError",
    "Solver",
    "SolverRecord",
    "SparseRows",
    "Status",
    "solve_cvxpy",
    "solve_linear",
]
