"""The solver front for cvxpy problems: the right chain, the solver always named, nothing taken unchecked."""

import math

import cvxpy as cp
import numpy as np
import pytest

from eunomia_solvers import Limits, SolveError, Solver, Status, solve_cvxpy


def test_each_kind_of_problem_is_solved_by_its_preferred_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    x = cp.Variable(2, nonneg=True)
    z = cp.Variable(2, boolean=True)
    cases = [
        (cp.Problem(cp.Maximize(cp.sum(x)), [x <= 1]), Solver.HIGHS, 2.0),
        (cp.Problem(cp.Maximize(cp.sum(z)), [z[0] + z[1] <= 1]), Solver.HIGHS, 1.0),
        (cp.Problem(cp.Minimize(cp.sum_squares(x - 1))), Solver.CLARABEL, 0.0),
        (cp.Problem(cp.Maximize(cp.sum(cp.log(x))), [cp.sum(x) <= 2]), Solver.CLARABEL, 0.0),
    ]
    for problem, solver, optimum in cases:
        found = solve_cvxpy(problem)
        assert found.record.solver is solver
        assert found.record.status is Status.OPTIMAL
        assert found.objective == pytest.approx(optimum, abs=1e-6)


@pytest.mark.parametrize("solver", [Solver.OSQP, Solver.CLARABEL, Solver.SCS])
def test_each_solver_solves_a_quadratic_programme(solver: Solver) -> None:
    x = cp.Variable(2)
    problem = cp.Problem(cp.Minimize(cp.sum_squares(x - np.array([1.0, 2.0]))), [cp.sum(x) <= 2])
    found = solve_cvxpy(problem, solver=solver)
    assert found.record.solver is solver
    assert found.x == pytest.approx([0.5, 1.5], abs=1e-4)


def test_both_solvers_of_logarithmic_objectives_give_the_same_objective() -> None:
    x = cp.Variable(3)
    problem = cp.Problem(cp.Maximize(cp.sum(cp.log(x))), [np.array([1.0, 2.0, 4.0]) @ x <= 3])
    answers = [solve_cvxpy(problem, solver=solver) for solver in (Solver.CLARABEL, Solver.SCS)]
    for found in answers:
        assert found.objective == pytest.approx(-math.log(8.0), abs=1e-4)


def test_results_of_a_scaled_programme_are_in_the_original_units() -> None:
    x = cp.Variable(2, nonneg=True)
    problem = cp.Problem(cp.Maximize(1e-10 * x[0] + 2e-10 * x[1]), [cp.sum(x) <= 1])
    found = solve_cvxpy(problem, scale=1e-10)
    assert found.objective == pytest.approx(2e-10)
    assert found.x == pytest.approx([0.0, 1.0], abs=1e-9)


@pytest.mark.parametrize(("many", "solver"), [(50, Solver.GUROBI), (2100, Solver.HIGHS)])
def test_gurobi_is_used_only_within_its_free_size(many: int, solver: Solver) -> None:
    x = cp.Variable(many)
    problem = cp.Problem(cp.Maximize(np.linspace(1, 2, many) @ x), [x >= 0, x <= 1, cp.sum(x) <= 10])
    found = solve_cvxpy(problem, solver=Solver.GUROBI)
    assert found.record.solver is solver
    assert found.objective == pytest.approx(np.linspace(1, 2, many)[-10:].sum())
    if solver is Solver.HIGHS:
        assert "beyond its free licence" in found.record.passed[0].reason


def test_an_infeasible_problem_is_reported_as_infeasible() -> None:
    x = cp.Variable()
    with pytest.raises(SolveError, match="infeasible") as caught:
        solve_cvxpy(cp.Problem(cp.Minimize(x), [x >= 1, x <= 0]))
    assert caught.value.status is Status.INFEASIBLE
    with pytest.raises(SolveError, match="unbounded"):
        solve_cvxpy(cp.Problem(cp.Minimize(x)))


def test_an_integer_problem_is_solved_to_the_requested_gap() -> None:
    z = cp.Variable(30, boolean=True)
    weights = np.arange(10, 40)
    problem = cp.Problem(cp.Maximize(weights @ z), [weights @ z <= 200.5])
    assert solve_cvxpy(problem, limits=Limits(gap=0.0)).objective == pytest.approx(200.0)
    assert solve_cvxpy(problem, limits=Limits(gap=0.1)).record.gap == 0.1
