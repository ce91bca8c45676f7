"""Solve a cvxpy problem with a fixed chain of solvers for its kind; cvxpy never chooses a solver itself.

By default cvxpy picks Gurobi where gurobipy is installed, and fails beyond the size that the free licence allows.
"""

import importlib
import time
from typing import Any, Final

import numpy as np

from eunomia_solvers.gurobi import environment, free_size_exceeded
from eunomia_solvers.outcome import Limits, Passed, Solution, SolveError, Solver, SolverRecord, Status
from eunomia_solvers.raw import UnavailableError

LINEAR: Final = (Solver.HIGHS, Solver.SCIPY)
QUADRATIC: Final = (Solver.CLARABEL, Solver.OSQP)
CONIC: Final = (Solver.CLARABEL, Solver.SCS)

_TOLERANCE: Final = {Solver.OSQP: 1e-5, Solver.SCS: 1e-5}
"""Largest violation accepted from the first-order methods; 1e-6 is accepted from other solvers."""


def chain_for(problem: Any) -> tuple[Solver, ...]:
    """Return the solvers for a problem of this kind, in the order in which they are tried."""
    if problem.is_mixed_integer() or (problem.is_qp() and problem.objective.args[0].is_pwl()):
        return LINEAR
    return QUADRATIC if problem.is_qp() else CONIC


def solve_cvxpy(
    problem: Any,
    *,
    solver: Solver | None = None,
    limits: Limits | None = None,
    seed: int = 0,
    scale: float = 1.0,
    place: str | None = None,
) -> Solution:
    """Solve a ``cvxpy.Problem`` and set the values of its variables; ``x`` concatenates them in the problem's order.

    Args:
        problem: the problem to solve.
        solver: the solver to try before the chain; None tries the chain only.
        limits: when the solver must stop; None: no limits, and a gap of 0.
        seed: the random seed passed to the solver.
        scale: the objective's order of magnitude; the objective is divided by this, to suit absolute tolerances.
        place: the caller's name, for error messages.

    Raises:
        SolveError: the problem is infeasible or unbounded, or no solver found a feasible answer.
    """
    limits = limits or Limits()
    asked = () if solver is None else (solver,)
    cp: Any = importlib.import_module("cvxpy")
    goal = type(problem.objective)(problem.objective.args[0] / scale)
    scaled = cp.Problem(goal, problem.constraints)
    passed: list[Passed] = []
    began = time.process_time()
    for candidate in (*asked, *(one for one in chain_for(problem) if one not in asked)):
        try:
            status = _attempt(cp, scaled, candidate, limits, seed)
        except UnavailableError as missing:
            passed.append(Passed(solver=candidate, reason=str(missing)))
            continue
        if status in (Status.INFEASIBLE, Status.UNBOUNDED):
            raise SolveError(status, (*passed, Passed(solver=candidate, reason=status.value)), place=place)
        violation = max((float(np.max(one.violation())) for one in problem.constraints), default=0.0)
        if violation <= _TOLERANCE.get(candidate, 1e-6):
            cut = scaled.status == "user_limit" and limits.seconds is not None
            gap = limits.gap if status is Status.OPTIMAL else float("nan")
            record = _record(problem, candidate, status, tuple(passed), time.process_time() - began, gap, cut)
            return _solution(problem, record)
        passed.append(Passed(solver=candidate, reason=f"its answer breaks a constraint by {violation:.1e}"))
    raise SolveError(Status.FAILED, tuple(passed), place=place)


def _attempt(cp: Any, problem: Any, solver: Solver, limits: Limits, seed: int) -> Status:
    """Run one solver and return how it ended.

    Raises:
        UnavailableError: the solver is not installed, does not support the problem, or gave no answer.
    """
    name = solver.name
    if name not in cp.installed_solvers():
        raise UnavailableError("not installed")
    if solver is Solver.GUROBI:
        _check_gurobi(problem, limits, seed)
    try:
        problem.solve(solver=name, **_options(solver, limits, seed))
    except cp.error.SolverError as failed:
        raise UnavailableError(str(failed).splitlines()[0]) from failed
    except Exception as failed:
        if solver is Solver.GUROBI:  # cvxpy passes errors such as 10010 on, sometimes as another type
            raise UnavailableError(f"{type(failed).__name__}: {failed}") from failed
        raise
    status = {
        cp.OPTIMAL: Status.OPTIMAL,
        cp.OPTIMAL_INACCURATE: Status.FEASIBLE,
        cp.USER_LIMIT: Status.FEASIBLE,
        cp.INFEASIBLE: Status.INFEASIBLE,
        cp.UNBOUNDED: Status.UNBOUNDED,
        "infeasible_or_unbounded": Status.INFEASIBLE,
    }.get(problem.status)
    if status is None or (status is Status.FEASIBLE and any(one.value is None for one in problem.variables())):
        raise UnavailableError(str(problem.status))
    return status


def _check_gurobi(problem: Any, limits: Limits, seed: int) -> None:
    """Raise UnavailableError if the compiled problem is larger than Gurobi's free licence allows."""
    _, env = environment(seed, limits)
    with env:
        free = env.getParam("LicenseID") == 0
    if not free:
        return
    data = problem.get_problem_data("GUROBI")[0]
    rows = sum(int(data[name].shape[0]) for name in ("A", "F", "G") if data.get(name) is not None)
    reason = free_size_exceeded(int(np.size(data["c" if "c" in data else "q"])), rows)
    if reason is not None:
        raise UnavailableError(reason)


def _options(solver: Solver, limits: Limits, seed: int) -> dict[str, Any]:
    """Return the limits and the seed under the solver's own option names."""
    seconds, iterations = limits.seconds, limits.iterations
    options: dict[Solver, dict[str, Any]] = {
        Solver.HIGHS: {
            "threads": 1,
            "random_seed": seed,
            "mip_rel_gap": limits.gap,
            "mip_abs_gap": 0.0 if limits.gap == 0.0 else 1e-6,
            "time_limit": seconds,
            "mip_max_nodes": limits.nodes,
            "simplex_iteration_limit": iterations,
        },
        Solver.GUROBI: {
            "Threads": 1,
            "Seed": seed,
            "MIPGap": limits.gap,
            "TimeLimit": seconds,
            "NodeLimit": limits.nodes,
            "IterationLimit": iterations,
        },
        Solver.CLARABEL: {"max_threads": 1, "max_iter": iterations, "time_limit": seconds},
        Solver.OSQP: {"eps_abs": 1e-8, "eps_rel": 1e-8, "max_iter": iterations or 100_000, "time_limit": seconds},
        Solver.SCS: {"eps": 1e-8, "max_iters": iterations or 100_000, "time_limit_secs": seconds},
    }
    named = {name: value for name, value in options.get(solver, {}).items() if value is not None}
    if solver is Solver.SCIPY:
        limited = {"mip_rel_gap": limits.gap, "time_limit": seconds, "node_limit": limits.nodes}
        return {"scipy_options": {key: value for key, value in limited.items() if value is not None}}
    return named


def _record(
    problem: Any,
    solver: Solver,
    status: Status,
    passed: tuple[Passed, ...],
    seconds: float,
    gap: float,
    cut_short: bool,
) -> SolverRecord:
    """Return the record of a solve.

    ``gap`` is the requested gap if an integer problem was solved to optimality, as cvxpy reports no bound.
    """
    metrics = problem.size_metrics
    return SolverRecord(
        solver=solver,
        version=_version(solver),
        status=status,
        gap=gap,
        seconds=seconds,
        variables=int(metrics.num_scalar_variables),
        constraints=int(metrics.num_scalar_eq_constr + metrics.num_scalar_leq_constr),
        passed=passed,
        cut_short=cut_short,
    )


def _solution(problem: Any, record: SolverRecord) -> Solution:
    """Return the solution, with the objective in the units of the problem."""
    x = np.concatenate([np.ravel(one.value, order="F") for one in problem.variables()] or [np.empty(0)])
    objective = float(problem.objective.value)
    return Solution(x=x, objective=objective, bound=objective, record=record)


def _version(solver: Solver) -> str:
    from importlib import metadata

    wheels = {Solver.HIGHS: "highspy", Solver.GUROBI: "gurobipy"}
    try:
        return metadata.version(wheels.get(solver, solver.value))
    except metadata.PackageNotFoundError:
        return "unknown"
