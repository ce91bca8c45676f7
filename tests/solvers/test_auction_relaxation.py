"""One linear programme, the Themis auction's relaxation, through Gurobi, HiGHS and Clarabel: the same optimum."""

import sys
from pathlib import Path

import numpy as np
import pytest

from eunomia.contract.bundles import Bundle, ByBundle, MachineClasses, Part
from eunomia_plugins.themis.auction import gains, useful_rows
from eunomia_plugins.themis.counting import count
from eunomia_plugins.themis.patterns import auction_program
from eunomia_solvers import LinearProgram, Solver, solve_linear

sys.path.insert(0, str(Path(__file__).parents[1] / "plugins" / "themis"))

from themis_instances import random_bids

from strength import examples


def relaxation(table: ByBundle) -> LinearProgram:
    gain = gains(table)
    rows = useful_rows(table, gain)
    return auction_program(table, gain, rows, count(table, rows), integral=False)


@pytest.mark.parametrize("seed", range(examples(50)))
def test_three_solvers_give_the_same_objective(seed: int) -> None:
    program = relaxation(random_bids(np.random.default_rng(seed), odd=seed % 2 == 0))
    found = [solve_linear(program, solver=solver) for solver in (Solver.GUROBI, Solver.HIGHS, Solver.CLARABEL)]
    assert [one.record.solver for one in found] == [Solver.GUROBI, Solver.HIGHS, Solver.CLARABEL]
    assert all(one.record.passed == () for one in found)
    assert [one.objective for one in found] == pytest.approx([found[0].objective] * 3, abs=1e-6)


def test_highs_solves_programmes_beyond_the_free_size_of_gurobi_and_this_is_recorded() -> None:
    """300 bidders with 8 rows each: 2400 variables."""
    classes = MachineClasses.of(machine=range(64), free=[8] * 64, gpu_type=[0] * 64, rack=[0] * 64)
    rng = np.random.default_rng(0)
    bids = [[Bundle(float(rng.uniform(0.1, 0.9)), (Part(0, gpus),)) for gpus in range(1, 9)] for _ in range(300)]
    program = relaxation(ByBundle.of(classes, [1.0] * 300, bids))
    assert program.variables > 2000
    found = solve_linear(program, solver=Solver.GUROBI)
    assert found.record.solver is Solver.HIGHS
    assert [one.solver for one in found.record.passed] == [Solver.GUROBI]
    assert "beyond its free licence" in found.record.passed[0].reason
    assert found.objective == pytest.approx(solve_linear(program, solver=Solver.CLARABEL).objective, abs=1e-6)
