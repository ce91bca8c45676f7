"""The HiGHS back end, called through its own Python interface."""

import importlib
from typing import Any

import numpy as np

from eunomia.units import Ints, Reals
from eunomia_solvers.outcome import Limits, Status
from eunomia_solvers.program import LinearProgram, SparseRows
from eunomia_solvers.raw import Answer, UnavailableError


def solve(program: LinearProgram, limits: Limits, seed: int) -> Answer:
    """Solve a linear or mixed-integer programme.

    Raises:
        UnavailableError: highspy is not installed.
    """
    highspy = _imported()
    engine = highspy.Highs()
    options = _options(limits, seed)
    if not (limits.corner or program.integral.any()):
        options |= {"solver": "ipm", "run_crossover": "off", "presolve": "off"}
    for name, option in options.items():
        engine.setOptionValue(name, option)
    engine.passModel(_model(highspy, program))
    engine.run()
    info, state = engine.getInfo(), engine.getModelStatus().name
    status = _status(state, info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible)
    answered = status in (Status.OPTIMAL, Status.FEASIBLE)
    priced = status is Status.OPTIMAL and limits.corner and not program.integral.any()
    found = engine.getSolution()
    return Answer(
        status=status,
        x=np.asarray(found.col_value) if answered else None,
        row_price=np.asarray(found.row_dual) if priced else None,
        bound=float(info.mip_dual_bound if program.integral.any() else info.objective_function_value),
        version=engine.version(),
        said=state,
        cut_short=state == "kTimeLimit",
    )


class Session:
    """A continuous programme loaded in HiGHS, whose basis is kept while rows are added and removed.

    Args:
        program: the initial programme.

    Raises:
        UnavailableError: highspy is not installed.
    """

    def __init__(self, program: LinearProgram) -> None:
        self._engine = _imported().Highs()
        for name, option in (_options(Limits(), 0) | {"solver": "simplex", "presolve": "off"}).items():
            self._engine.setOptionValue(name, option)
        self._engine.passModel(_model(_imported(), program))

    def add(self, rows: SparseRows, lower: Reals, upper: Reals) -> None:
        """Append rows to the programme."""
        index, start = rows.index.astype(np.int32), rows.start[:-1].astype(np.int32)
        self._engine.addRows(len(rows), lower, upper, index.size, start, index, rows.value)

    def leave_out(self, which: Ints) -> None:
        """Remove rows, given their indices in ascending order."""
        self._engine.deleteRows(which.size, which.astype(np.int32))

    def solve(self) -> Answer:
        """Solve the programme, starting from the last basis."""
        self._engine.run()
        state = self._engine.getModelStatus().name
        status = _status(state, False)
        return Answer(
            status=status,
            x=np.asarray(self._engine.getSolution().col_value) if status is Status.OPTIMAL else None,
            version=self._engine.version(),
            said=state,
        )


def _imported() -> Any:
    try:
        return importlib.import_module("highspy")
    except ImportError as missing:
        raise UnavailableError(f"not installed ({missing})") from missing


def _options(limits: Limits, seed: int) -> dict[str, Any]:
    options: dict[str, Any] = {
        "output_flag": False,
        "threads": 1,
        "random_seed": seed,
        "mip_rel_gap": limits.gap,
        "mip_abs_gap": 0.0 if limits.gap == 0.0 else 1e-6,
    }
    if limits.iterations is not None:
        options |= {"simplex_iteration_limit": limits.iterations, "ipm_iteration_limit": limits.iterations}
    if limits.nodes is not None:
        options["mip_max_nodes"] = limits.nodes
    if limits.seconds is not None:
        options["time_limit"] = limits.seconds
    return options


def _model(highspy: Any, program: LinearProgram) -> Any:
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = program.variables, program.constraints
    lp.col_cost_ = program.cost
    lp.col_lower_, lp.col_upper_ = program.lower, program.upper
    lp.row_lower_, lp.row_upper_ = program.row_lower, program.row_upper
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = program.rows.start.astype(np.int32)
    lp.a_matrix_.index_ = program.rows.index.astype(np.int32)
    lp.a_matrix_.value_ = program.rows.value
    if program.integral.any():
        kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
        lp.integrality_ = [kinds[int(whole)] for whole in program.integral]
    return lp


def _status(state: str, feasible: bool) -> Status:
    if state in ("kOptimal", "kModelEmpty"):
        return Status.OPTIMAL
    if state == "kInfeasible":
        return Status.INFEASIBLE
    if state in ("kUnbounded", "kUnboundedOrInfeasible"):
        return Status.UNBOUNDED
    if state in ("kTimeLimit", "kIterationLimit", "kSolutionLimit"):
        return Status.FEASIBLE if feasible else Status.LIMIT
    return Status.FAILED
