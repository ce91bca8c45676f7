"""The solver front for matrices: the chain, what it records, and what it refuses."""

import importlib
import math
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from eunomia_solvers import Limits, LinearProgram, SolveError, Solver, SparseRows, Status, linear, solve_linear
from eunomia_solvers import gurobi as gurobi_backend
from eunomia_solvers.raw import Answer


def knapsack(values: list[float], weights: list[float], capacity: float, *, integral: bool) -> LinearProgram:
    return LinearProgram.of(
        values,
        rows=SparseRows.dense([weights]),
        row_upper=capacity,
        upper=1.0,
        integral=integral,
        maximise=True,
    )


@pytest.mark.parametrize("solver", [Solver.GUROBI, Solver.HIGHS, Solver.SCIPY])
def test_an_integer_programme_gives_the_answer_computed_by_hand(solver: Solver) -> None:
    found = solve_linear(knapsack([60.0, 100.0, 120.0], [10, 20, 30], 50, integral=True), solver=solver)
    assert found.x.tolist() == [0.0, 1.0, 1.0]
    assert found.objective == pytest.approx(220.0)
    assert found.record.solver is solver
    assert found.record.status is Status.OPTIMAL
    assert found.record.gap == pytest.approx(0.0, abs=1e-9)
    assert found.record.variables == 3
    assert found.record.constraints == 1
    assert found.record.passed == ()


def test_an_interior_solution_lies_in_the_middle_of_the_optimal_face() -> None:
    flat = knapsack([1.0, 1.0], [1.0, 1.0], 1.0, integral=False)
    assert sorted(solve_linear(flat).x.tolist()) == [0.0, 1.0]
    middle = solve_linear(flat, limits=Limits(corner=False))
    assert middle.x.tolist() == pytest.approx([0.5, 0.5], abs=1e-3)
    assert middle.objective == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("solver", [Solver.GUROBI, Solver.HIGHS, Solver.SCIPY, Solver.CLARABEL])
def test_the_relaxation_gives_the_answer_computed_by_hand(solver: Solver) -> None:
    found = solve_linear(knapsack([60.0, 100.0, 120.0], [10, 20, 30], 50, integral=False), solver=solver)
    assert found.objective == pytest.approx(240.0, abs=1e-6)
    assert found.x == pytest.approx([1.0, 1.0, 2 / 3], abs=1e-6)
    assert found.record.solver is solver


@pytest.mark.parametrize("size", [1e-9, 1e9])
def test_the_objective_is_scaled_to_order_one(size: float) -> None:
    """Literal costs of 1e-9 are below HiGHS' absolute dual tolerance: every answer would look optimal."""
    found = solve_linear(knapsack([60 * size, 100 * size, 120 * size], [10, 20, 30], 50, integral=True))
    assert found.x.tolist() == [0.0, 1.0, 1.0]
    assert found.objective == pytest.approx(220.0 * size)


def test_equality_rows_and_range_rows_are_solved() -> None:
    program = LinearProgram.of(
        [1.0, 2.0], rows=SparseRows.dense([[1, 1], [1, -1]]), row_lower=[4.0, -1.0], row_upper=[4.0, 1.0]
    )
    for solver in (Solver.GUROBI, Solver.HIGHS, Solver.SCIPY, Solver.CLARABEL):
        found = solve_linear(program, solver=solver)
        assert found.x == pytest.approx([2.5, 1.5], abs=1e-6)
        assert found.record.solver is solver


def test_highs_solves_programmes_beyond_the_free_size_of_gurobi_and_the_reason_is_recorded() -> None:
    many = 2001
    program = knapsack(list(np.linspace(1, 2, many)), [1.0] * many, 100, integral=False)
    found = solve_linear(program, solver=Solver.GUROBI)
    assert found.record.solver is Solver.HIGHS
    assert [one.solver for one in found.record.passed] == [Solver.GUROBI]
    assert (
        "2001 variables and 1 constraints are beyond its free licence (2000 and 2000)" in found.record.passed[0].reason
    )


def test_a_refusal_by_gurobi_itself_is_handled_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check before the call is switched off, so that error 10010 itself comes."""
    monkeypatch.setattr(gurobi_backend, "free_size_exceeded", lambda variables, constraints: None)
    many = 2500
    found = solve_linear(knapsack([1.0] * many, [1.0] * many, 100, integral=False), solver=Solver.GUROBI)
    assert found.record.solver is Solver.HIGHS
    assert "the licence refuses the size" in found.record.passed[0].reason


def test_without_highs_scipy_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.import_module

    def without(name: str, package: str | None = None) -> Any:
        if name == "highspy":
            raise ImportError("no highspy")
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", without)
    found = solve_linear(knapsack([60.0, 100.0, 120.0], [10, 20, 30], 50, integral=True))
    assert found.record.solver is Solver.SCIPY
    assert found.record.passed[0].reason == "not installed (no highspy)"
    assert found.objective == pytest.approx(220.0)


@pytest.mark.parametrize("solver", [Solver.GUROBI, Solver.HIGHS, Solver.SCIPY, Solver.CLARABEL])
def test_an_infeasible_programme_raises_an_error_that_states_it(solver: Solver) -> None:
    program = LinearProgram.of([1.0], rows=SparseRows.dense([[1.0]]), row_lower=2.0, upper=1.0)
    with pytest.raises(SolveError, match="infeasible") as caught:
        solve_linear(program, solver=solver, place="a test")
    assert caught.value.status in (Status.INFEASIBLE, Status.UNBOUNDED)
    assert "(a test)" in str(caught.value)


def test_an_integer_programme_is_not_given_to_clarabel() -> None:
    found = solve_linear(knapsack([1.0, 1.0], [1, 1], 1, integral=True), solver=Solver.CLARABEL)
    assert found.record.solver is Solver.HIGHS
    assert found.record.passed[0].solver is Solver.CLARABEL


def test_a_node_limit_leaves_a_feasible_answer_with_its_gap() -> None:
    rng = np.random.default_rng(3)
    weights = rng.integers(20, 100, size=(5, 60)).astype(float)
    program = LinearProgram.of(
        weights.sum(axis=0) + rng.integers(0, 20, 60),
        rows=SparseRows.dense(weights),
        row_upper=weights.sum(axis=1) / 3,
        upper=1.0,
        integral=True,
        maximise=True,
    )
    short = solve_linear(program, limits=Limits(nodes=1))
    assert short.record.status is Status.FEASIBLE
    assert 0.0 < short.record.gap < 0.1
    assert short.bound >= short.objective
    assert program.violation(short.x) <= 1e-6
    assert not short.record.cut_short


def test_bad_coefficients_are_refused() -> None:
    with pytest.raises(ValueError, match="broadcast"):
        LinearProgram.of([1.0], rows=SparseRows.dense([[1.0]]), row_lower=[1.0, 2.0])
    for cost, rows in (([np.nan], [[1.0]]), ([1.0], [[1.0, 2.0]]), ([1.0], [[np.inf]])):
        with pytest.raises(Exception, match="of a programme must"):
            LinearProgram.of(cost, rows=SparseRows.dense(rows))


def test_importing_the_solver_interface_imports_no_solver() -> None:
    code = (
        f"import sys; sys.path[:] = {sys.path!r}; import eunomia_solvers; "
        "sys.exit(str({'highspy', 'scipy', 'cvxpy', 'gurobipy', 'clarabel'} & set(sys.modules) or ''))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == ""


@pytest.mark.parametrize(("status", "gap"), [(Status.OPTIMAL, 0.0), (Status.FEASIBLE, math.nan)])
def test_the_gap_of_a_continuous_answer_that_is_not_proved_optimal_is_unknown(
    monkeypatch: pytest.MonkeyPatch, status: Status, gap: float
) -> None:
    answer = Answer(status=status, x=np.array([1.0]), version="test")
    monkeypatch.setitem(linear._BACKENDS, Solver.HIGHS, lambda *_: answer)  # type: ignore[arg-type]
    found = solve_linear(knapsack([1.0], [1.0], 1.0, integral=False), solver=Solver.HIGHS)
    assert found.record.gap == pytest.approx(gap, nan_ok=True)
