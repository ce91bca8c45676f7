"""The Gurobi back end, used only on request and if its licence allows the size."""

import importlib
from typing import Any, Final

import numpy as np

from eunomia_solvers.outcome import Limits, Status
from eunomia_solvers.program import LinearProgram
from eunomia_solvers.raw import Answer, UnavailableError

FREE_VARIABLES: Final = 2000
FREE_CONSTRAINTS: Final = 2000
"""Maximum number of constraints that the licence shipped with gurobipy allows."""

_TOO_LARGE: Final = 10010
"""Gurobi's error code for a model larger than its licence allows."""


def free_size_exceeded(variables: int, constraints: int) -> str | None:
    """Return why a model is too large for the free licence, or None if it is not."""
    if variables <= FREE_VARIABLES and constraints <= FREE_CONSTRAINTS:
        return None
    return (
        f"{variables} variables and {constraints} constraints are beyond its free licence "
        f"({FREE_VARIABLES} and {FREE_CONSTRAINTS})"
    )


def environment(seed: int, limits: Limits) -> tuple[Any, Any]:
    """Return the module ``gurobipy`` and a silent single-threaded environment.

    Raises:
        UnavailableError: gurobipy is not installed, or has no valid licence.
    """
    try:
        module = importlib.import_module("gurobipy")
    except ImportError as missing:
        raise UnavailableError(f"not installed ({missing})") from missing
    params: dict[str, Any] = {"OutputFlag": 0, "Threads": 1, "Seed": seed, "MIPGap": limits.gap}
    if limits.gap == 0.0:
        params["MIPGapAbs"] = 0.0
    for name, limit in (("IterationLimit", limits.iterations), ("NodeLimit", limits.nodes)):
        if limit is not None:
            params[name] = float(limit)
    if limits.seconds is not None:
        params["TimeLimit"] = limits.seconds
    try:
        return module, module.Env(params=params)
    except module.GurobiError as refused:
        raise UnavailableError(f"no valid licence ({refused})") from refused


def solve(program: LinearProgram, limits: Limits, seed: int) -> Answer:
    """Solve a linear or mixed-integer programme.

    Raises:
        UnavailableError: gurobipy is not installed, has no licence, or the programme exceeds the licence.
    """
    module, env = environment(seed, limits)
    with env:
        if env.getParam("LicenseID") == 0:  # the licence in gurobipy's own wheel
            reason = free_size_exceeded(program.variables, program.constraints)
            if reason is not None:
                raise UnavailableError(reason)
        try:
            with module.Model(env=env) as model:
                return _run(module, model, program)
        except module.GurobiError as refused:
            if refused.errno == _TOO_LARGE:
                raise UnavailableError(f"the licence refuses the size ({refused})") from refused
            raise UnavailableError(str(refused)) from refused


def _run(module: Any, model: Any, program: LinearProgram) -> Answer:
    kinds = np.where(program.integral, module.GRB.INTEGER, module.GRB.CONTINUOUS).tolist()
    columns = model.addVars(
        program.variables, lb=program.lower.tolist(), ub=program.upper.tolist(), obj=program.cost.tolist(), vtype=kinds
    )
    x = list(columns.values())
    for row, (lower, upper) in enumerate(zip(program.row_lower, program.row_upper, strict=True)):
        span = slice(program.rows.start[row], program.rows.start[row + 1])
        names = [x[column] for column in program.rows.index[span]]
        _constrain(model, module.LinExpr(program.rows.value[span].tolist(), names), lower, upper)
    model.optimize()
    return _answer(module, model, program)


def _constrain(model: Any, expression: Any, lower: float, upper: float) -> None:
    """Add one row as one or two inequalities or an equation; Gurobi's range constraint would add a variable."""
    if lower == upper:
        model.addConstr(expression == lower)
        return
    if np.isfinite(upper):
        model.addConstr(expression <= upper)
    if np.isfinite(lower):
        model.addConstr(expression >= lower)


def _answer(module: Any, model: Any, program: LinearProgram) -> Answer:
    code, grb = model.Status, module.GRB
    answered = model.SolCount > 0
    status = {
        grb.OPTIMAL: Status.OPTIMAL,
        grb.INFEASIBLE: Status.INFEASIBLE,
        grb.UNBOUNDED: Status.UNBOUNDED,
        grb.INF_OR_UNBD: Status.UNBOUNDED,
    }.get(code, Status.FEASIBLE if answered else Status.LIMIT)
    return Answer(
        status=status,
        x=np.asarray(model.X) if answered else None,
        bound=float(model.ObjBound) if answered and program.integral.any() else -np.inf,
        version=".".join(map(str, module.gurobi.version())),
        said=f"status {code}",
        cut_short=code == grb.TIME_LIMIT,
    )
