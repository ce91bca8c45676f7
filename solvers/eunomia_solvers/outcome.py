"""The record of a solve: the solver, its limits, the gap to the optimum, and the solvers that failed before it."""

from enum import Enum

from eunomia.errors import EunomiaError
from eunomia.model.shapes import builds, value
from eunomia.units import Reals


class Solver(Enum):
    """The solvers that Eunomia supports."""

    GUROBI = "gurobi"
    HIGHS = "highs"
    SCIPY = "scipy"
    CLARABEL = "clarabel"
    OSQP = "osqp"
    SCS = "scs"


class Status(Enum):
    """How a solve ended."""

    OPTIMAL = "optimal"
    """The solver proved the answer optimal within the requested gap."""
    FEASIBLE = "feasible"
    """The solver stopped early with a feasible answer; ``gap`` bounds its distance from the optimum; NaN: not known."""
    INFEASIBLE = "infeasible"
    UNBOUNDED = "unbounded"
    LIMIT = "limit"
    """The solver reached a limit before it found an answer."""
    FAILED = "failed"


@value
class Limits:
    """When a solver must stop. Iterations, nodes and gap are reproducible on every machine; a time limit is not."""

    iterations: int | None = None
    nodes: int | None = None
    gap: float = 0.0
    """Relative gap at which an integer solution is good enough."""
    corner: bool = True
    """Whether HiGHS returns a corner (a basic solution) of a continuous programme; False: an interior point of the
    optimal face, which noise in the coefficients changes less than a corner where there are many optima."""
    seconds: float | None = None


@value
class Passed:
    """A solver of the chain that failed or was skipped, with the reason."""

    solver: Solver
    reason: str


@value
class SolverRecord:
    """The record of one solve, written to the journal and the report."""

    solver: Solver
    version: str
    status: Status
    gap: float
    """Relative distance between objective and bound; 0 for a continuous problem solved to tolerance; NaN: not known."""
    seconds: float
    """CPU time in seconds, including the time to build the solver's model."""
    variables: int
    constraints: int
    passed: tuple[Passed, ...] = ()
    cut_short: bool = False
    """Whether a time limit ended the solve; the run is then not reproducible on other machines."""


@builds
class Solution:
    """The values of the variables, in the order of the programme's columns, and the unscaled objective."""

    x: Reals
    objective: float
    bound: float
    """Bound on the objective: no feasible answer is better. The objective itself if the solver reports no bound."""
    record: SolverRecord
    row_price: Reals | None = None
    """[constraints] dual values: change of the objective per unit of each row's bound, at a corner of a continuous
    programme; None if the solver gives none."""


class SolveError(EunomiaError):
    """No solver of the chain found a feasible answer; ``status`` distinguishes an infeasible problem from a failure."""

    def __init__(self, status: Status, passed: tuple[Passed, ...], *, place: str | None = None) -> None:
        self.status = status
        self.passed = passed
        said = "; ".join(f"{one.solver.value}: {one.reason}" for one in passed)
        super().__init__("the programme must have an optimum that a solver can find", value=said, place=place)
