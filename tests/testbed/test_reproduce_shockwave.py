"""Shockwave as a paper, and its planner on the published trace, where the measured rates are."""

import json
from pathlib import Path

import pytest
from real_data import shared_data

from eunomia.cli import run
from eunomia.errors import InputError
from eunomia_testbed.reproduce.paper import Runs, cells_of
from eunomia_testbed.reproduce.shockwave.cells import ShockwaveCell, ShockwaveFigures, make_rates, run_cell
from eunomia_testbed.reproduce.shockwave.claims import NOT_DONE
from eunomia_testbed.reproduce.shockwave.grid import CANONICAL_SEED, SETTINGS, ShockwaveGrid
from eunomia_testbed.reproduce.shockwave.measures import GOALS, PUBLISHED, above_one, four_figures
from eunomia_testbed.reproduce.shockwave.paper import PAPER
from eunomia_testbed.reproduce.verdicts import Verdict

RATES = "shockwave/tacc_throughputs.json.gz"


def grid() -> ShockwaveGrid:
    return ShockwaveGrid(throughputs=str(shared_data(RATES)))


def test_the_planner_is_at_least_as_good_as_published_in_all_four_figures() -> None:
    found = four_figures(run_cell(grid().cell("shockwave", 0)))
    assert all(here <= printed for here, printed in zip(found, PUBLISHED, strict=True)), found


def test_budgets_by_urgency_reach_the_goals_in_all_four() -> None:
    found = four_figures(run_cell(grid().cell("shockwave_urgent", 0)))
    assert all(here <= goal for here, goal in zip(found, GOALS, strict=True)), found


def figures(
    *, makespan: float = 100.0, rho: float = 1.0, jct: float = 10.0, gaps: tuple[float, ...] = ()
) -> ShockwaveFigures:
    return ShockwaveFigures(
        rho=(0.5, rho),
        jct_seconds=(jct, jct),
        adapts=(False, True),
        makespan_seconds=makespan,
        restarts=0,
        rounds=1,
        plans=len(gaps),
        gaps=gaps,
    )


def test_the_part_of_unfair_jobs_is_counted_above_the_limit_that_the_claim_names() -> None:
    one = figures(rho=1.04)  # and 0.5
    assert (above_one(one), four_figures(one)[3]) == (0.5, 0.0)
    assert four_figures(figures(rho=1.06))[3] == 0.5
    assert four_figures(figures(rho=1.05))[3] == 0.0
    texts = [claim.text for claim in PAPER.claims(ShockwaveGrid())]
    assert not [text for text in texts if "unfair" in text]
    assert all("> 1" in text for text in texts if text.startswith(("part of jobs", "jobs with")))


def test_claims_without_runs_are_not_measured_and_those_not_done_say_what_they_need() -> None:
    runs: Runs[ShockwaveGrid, ShockwaveCell, ShockwaveFigures] = Runs(grid=ShockwaveGrid(), done={})
    found = {claim.figure: claim.measure(runs) for claim in PAPER.claims(ShockwaveGrid())}
    assert {one.verdict for one in found.values()} == {Verdict.UNMEASURED}
    for figure, *_ in NOT_DONE:
        assert found[figure].reason.startswith("not done: ")
    assert {"Fig 3", "Fig 11", "Fig 14", "Fig 17"} <= {figure for figure, *_ in NOT_DONE}


def test_every_claim_is_measured_once_its_cells_are_there() -> None:
    own = ShockwaveGrid(seeds=(0, 1))
    claims = PAPER.claims(own)
    done = {
        cell.key: figures(
            makespan=100.0 if cell.policy.startswith("shockwave") else 140.0,
            rho=1.1 if cell.policy.startswith("shockwave") else 2.4,
            gaps=(1e-4,),
        )
        for cell in cells_of(own.seeds, claims)
    }
    runs = Runs(grid=own, done=done)
    rows = [(claim, claim.measure(runs)) for claim in claims]
    skipped = {figure for figure, *_ in NOT_DONE}
    assert all((found.verdict is Verdict.UNMEASURED) == (claim.figure in skipped) for claim, found in rows)
    makespans = next(found for claim, found in rows if claim.text.startswith("makespan over Shockwave's: Themis"))
    assert (makespans.text, makespans.verdict) == ("1.40", Verdict.HOLDS)
    assert PAPER.pictures(runs)


def test_cells_of_figures_are_those_that_the_paper_names() -> None:
    own = ShockwaveGrid()
    assert own.cell("shockwave", 0).trace_seed == CANONICAL_SEED
    assert [own.scaled(gpus, "shockwave", 0).jobs for gpus in (64, 128, 256)] == [220, 460, 900]
    assert [own.fresh("shockwave", seed).trace_seed for seed in range(5)] == [11, 12, 13, 14, 15]
    assert sorted({own.fresh("shockwave", seed).gpus for seed in range(5)}) == [32, 64, 128]
    assert {own.fresh("ossp", seed).least_between_seconds for seed in range(5)} == {0.0}
    (k, regularizer), *rest = SETTINGS
    assert {(k / 2, regularizer), (2 * k, regularizer), (k, regularizer / 2), (k, 2 * regularizer)} == set(rest)


def test_missing_rates_are_named_with_the_way_to_give_them(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"throughputs must be the file of measured rates .*--set throughputs=FILE"):
        make_rates(str(tmp_path / "none.json"))


def test_a_small_run_leaves_a_page_with_what_was_fixed(tmp_path: Path) -> None:
    rates = str(shared_data(RATES))
    out = tmp_path / "out"
    given = ["reproduce", "shockwave", "--set", f"throughputs={rates}", "--seeds", "0", "--only", "fig12"]
    assert run([*given, "--out", str(out), "-q", "-j", "1"]) == 0
    (claim,) = json.loads((out / "claims.json").read_text())["claims"]
    assert claim["figure"] == "Fig 12"
    assert len(claim["values"]) == 3
    assert "seeds from 25" in (out / "report.html").read_text()
