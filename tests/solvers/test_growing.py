"""Programmes whose rows come and go: each answer is that of a solve from the beginning."""

import importlib
from typing import Any

import numpy as np
import pytest

from eunomia.units import Reals
from eunomia_solvers import GrowingProgram, LinearProgram, SolveError, SparseRows, solve_linear


def begun(cost: Reals) -> LinearProgram:
    return LinearProgram.of(cost, rows=SparseRows.dense([np.ones(cost.size)]), row_upper=10.0, maximise=True)


def without_highs(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.import_module

    def imported(name: str, package: str | None = None) -> Any:
        if name == "highspy":
            raise ImportError("no highspy")
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", imported)


@pytest.mark.parametrize("installed", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_a_growing_programme_has_the_same_optimum_as_one_solved_from_scratch(
    seed: int, installed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not installed:
        without_highs(monkeypatch)
    luck = np.random.default_rng(seed)
    cost = 1000.0 * luck.uniform(1.0, 2.0, 6)
    growing = GrowingProgram(begun(cost))
    assert cost @ growing.solve() == pytest.approx(10.0 * cost.max())
    for number in range(6):
        rows = luck.uniform(0.1, 1.0, (3, 6))
        growing.add(SparseRows.dense(rows), np.full(3, -np.inf), luck.uniform(1.0, 4.0, 3))
        if number % 2:
            growing.leave_out(luck.choice(len(growing.program.rows) - 1, 2, replace=False) + 1)
        alone = solve_linear(growing.program)
        assert cost @ growing.solve() == pytest.approx(alone.objective, rel=1e-9)
    assert growing.program.constraints == 1 + 6 * 3 - 3 * 2


def test_contradicting_rows_raise_an_error() -> None:
    growing = GrowingProgram(begun(np.array([1.0, 2.0])), place="here")
    growing.add(SparseRows.dense([[1.0, 1.0]]), np.array([11.0]), np.array([np.inf]))
    with pytest.raises(SolveError):
        growing.solve()
