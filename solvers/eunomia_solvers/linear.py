"""Solve linear and mixed-integer programmes with a chain of solvers: Gurobi if requested, HiGHS, SciPy."""

import math
import time
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from eunomia_solvers import clarabel, gurobi, highs, scipy
from eunomia_solvers.outcome import Limits, Passed, Solution, SolveError, Solver, SolverRecord, Status
from eunomia_solvers.program import LinearProgram
from eunomia_solvers.raw import Answer, UnavailableError

LINEAR_CHAIN: Final = (Solver.HIGHS, Solver.SCIPY)
"""The default solvers, in the order in which they are tried."""

FEASIBLE_WITHIN: Final = 1e-6
"""Largest violation of a row, relative to the size of its terms, that still counts as feasible."""

Backend = Callable[[LinearProgram, Limits, int], Answer]
_BACKENDS: Final[Mapping[Solver, Backend]] = {
    Solver.GUROBI: gurobi.solve,
    Solver.HIGHS: highs.solve,
    Solver.SCIPY: scipy.solve,
    Solver.CLARABEL: clarabel.solve,
}


def solve_linear(
    program: LinearProgram,
    *,
    solver: Solver | None = None,
    limits: Limits | None = None,
    seed: int = 0,
    place: str | None = None,
) -> Solution:
    """Solve on one thread with the requested solver, or else with the first solver of the chain that succeeds.

    Args:
        program: the programme to solve.
        solver: the solver to try before the chain; None tries the chain only. Clarabel solves no integer programmes.
        limits: when the solver must stop; None: no limits, and a gap of 0.
        seed: the random seed passed to the solver.
        place: the caller's name, for error messages.

    Raises:
        SolveError: the programme is infeasible or unbounded, or no solver found a feasible answer.
    """
    asked = () if solver is None else (solver,)
    passed: list[Passed] = []
    began = time.process_time()
    for candidate in (*asked, *(one for one in LINEAR_CHAIN if one not in asked)):
        try:
            answer = _BACKENDS[candidate](scaled(program), limits or Limits(), seed)
        except UnavailableError as missing:
            passed.append(Passed(solver=candidate, reason=str(missing)))
            continue
        if answer.status in (Status.INFEASIBLE, Status.UNBOUNDED):
            said = (*passed, Passed(solver=candidate, reason=answer.status.value))
            raise SolveError(answer.status, said, place=place)
        fault = answer_fault(program, answer)
        if fault is None:
            return _solution(program, answer, candidate, tuple(passed), time.process_time() - began)
        passed.append(Passed(solver=candidate, reason=fault))
    raise SolveError(Status.FAILED, tuple(passed), place=place)


def scaled(program: LinearProgram) -> LinearProgram:
    """Return the equivalent minimisation, with the objective scaled so that its largest cost is 1."""
    sign = -1.0 if program.maximise else 1.0
    return LinearProgram(
        cost=sign * program.cost / program.scale,
        rows=program.rows,
        row_lower=program.row_lower,
        row_upper=program.row_upper,
        lower=program.lower,
        upper=program.upper,
        integral=program.integral,
    )


def answer_fault(program: LinearProgram, answer: Answer) -> str | None:
    """Return why an answer is rejected, or None if it is accepted."""
    if answer.x is None or not np.isfinite(answer.x).all():
        return answer.said or answer.status.value
    violation = program.violation(program.rounded(answer.x))
    return None if violation <= FEASIBLE_WITHIN else f"its answer breaks a constraint by {violation:.1e}"


def _solution(
    program: LinearProgram, answer: Answer, solver: Solver, passed: tuple[Passed, ...], seconds: float
) -> Solution:
    """Return the solution, with the objective in the units of the programme."""
    x = program.rounded(np.asarray(answer.x))
    objective = float(program.cost @ x)
    sign = -1.0 if program.maximise else 1.0
    mixed, exact = bool(program.integral.any()), 0.0 if answer.status is Status.OPTIMAL else math.nan
    bound = sign * answer.bound * program.scale if mixed and np.isfinite(answer.bound) else objective
    record = SolverRecord(
        solver=solver,
        version=answer.version,
        status=answer.status,
        gap=max(0.0, sign * (objective - bound)) / max(abs(objective), program.scale) if mixed else exact,
        seconds=seconds,
        variables=program.variables,
        constraints=program.constraints,
        passed=passed,
        cut_short=answer.cut_short,
    )
    price = None if answer.row_price is None else sign * answer.row_price * program.scale
    return Solution(x=x, objective=objective, bound=bound, record=record, row_price=price)
