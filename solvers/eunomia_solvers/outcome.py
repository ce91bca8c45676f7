"""The record of a solve: the solver, its limits, the gap to the optimum, and the solvers that failed before."""

from enum import Enum

from eunomia.errors import EunomiaError
from eunomia.model.shapes import builds, value
from eunomia.units import Reals


class Solver(Enum):
    """The solvers that Eunomia knows."""

    GUROBI = "gurobi"
    HIGHS = "highs"
    SCIPY = "scipy"
    CLARABEL = "clarabel"
    OSQP = "osqp"
    SCS = "scs"


class Status(Enum):
    """How a solve ended."""

    OPTIMAL = "optimal"
    """The answer is optimal within the requested gap."""
    FEASIBLE = "feasible"
    """A limit was met; the answer is feasible, and ``gap`` is its distance from the optimum."""
    INFEASIBLE = "infeasible"
    UNBOUNDED = "unbounded"
    LIMIT = "limit"
    """A limit was met before there was an answer."""
    FAILED = "failed"


@value
class Limits:
    """Where a solver must stop. Iterations, nodes and gap are the same on every machine; time is a last resort."""

    iterations: int | None = None
    nodes: int | None = None
    gap: float = 0.0
    """Relative gap at which an integer solution is good enough."""
    corner: bool = True
    """False: HiGHS stops at an interior point of a continuous programme's optima, near their middle, instead of going
    on to a corner. Where optima are many, the middle does not jump with the noise of coefficients; corners do."""
    seconds: float | None = None


@value
class Passed:
    """A solver of the chain that failed or did not suit, with the reason."""

    solver: Solver
    reason: str


@value
class SolverRecord:
    """The record of one solve, for journal and report."""

    solver: Solver
    version: str
    status: Status
    gap: float
    """Relative distance between objective and bound; 0 for a continuous problem solved to tolerance."""
    seconds: float
    """CPU time, building the solver's model included."""
    variables: int
    constraints: int
    passed: tuple[Passed, ...] = ()
    cut_short: bool = False
    """A time limit ended it: another machine may answer differently, so the run is not reproducible."""


@builds
class Solution:
    """Values of the variables, in the order of the programme's columns, and the objective in its own units."""

    x: Reals
    objective: float
    bound: float
    """Bound on the objective: no feasible answer is better."""
    record: SolverRecord
    row_price: Reals | None = None
    """[constraints] change of the objective for one more unit of each row's bound, at a corner of a continuous
    programme; None: the solver gives none."""


class SolveError(EunomiaError):
    """No solver of the chain gave a feasible answer; ``status`` distinguishes an infeasible problem from a failure."""

    def __init__(self, status: Status, passed: tuple[Passed, ...], *, place: str | None = None) -> None:
        self.status = status
        self.passed = passed
        said = "; ".join(f"{one.solver.value}: {one.reason}" for one in passed)
        super().__init__("the programme must have an optimum that a solver can find", value=said, place=place)
