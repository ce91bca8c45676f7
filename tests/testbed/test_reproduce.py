"""``eunomia reproduce``: verdicts, the grid, what is kept, and a small run from the command line to the page."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from eunomia.cli import run
from eunomia.errors import InputError
from eunomia_testbed.reproduce.command import chosen
from eunomia_testbed.reproduce.page import page
from eunomia_testbed.reproduce.paper import Paper, Runs, cells_of
from eunomia_testbed.reproduce.papers import find_paper, paper_names
from eunomia_testbed.reproduce.running import Store, run_cells
from eunomia_testbed.reproduce.table import count_line, fixed_lines, plain_rows, screen_lines
from eunomia_testbed.reproduce.themis import paper as themis
from eunomia_testbed.reproduce.themis.alone import run_cell
from eunomia_testbed.reproduce.themis.cells import (
    POLICIES,
    Cell,
    Figures,
    app_demands,
    make_cluster,
    make_profile,
    make_workload,
    shortened,
)
from eunomia_testbed.reproduce.themis.grid import Grid, ThemisRuns
from eunomia_testbed.reproduce.themis.table3 import bid_table
from eunomia_testbed.reproduce.verdicts import Measured, Verdict, all_of, judged

CLAIMS = themis.PAPER.claims(Grid())
OWN = sorted(path.parent.name for path in Path(themis.__file__).parents[1].glob("*/paper.py"))
"""Papers with a folder in this package."""


def cells_in(grid: Grid) -> tuple[Cell, ...]:
    """Every cell of Themis' claims."""
    return cells_of(grid.seeds, themis.PAPER.claims(grid))


def fake_paper(**changed: Any) -> Paper[Any, Any, Any]:
    """Themis with parts replaced: a class without fields to replace, so its slots are copied."""
    parts = {field.name: getattr(themis.PAPER, field.name) for field in dataclasses.fields(themis.PAPER)}
    return Paper(**parts | changed)


def figures(*, rho: float = 1.0, hours: float = 10.0, seconds: float = 100.0, score: float = 1.0) -> Figures:
    """Three apps, the last of which has that ρ and completion time."""
    return Figures(
        rho=(0.5, 0.8, rho),
        jct_seconds=(50.0, 60.0, seconds),
        gpu_seconds=(0.0, 0.0, hours * 3600.0),
        work_gpu_seconds=(10.0, 20.0, 30.0),
        placement_score=(float("nan"), float("nan"), score),
        job_gpus=(1, 2, 4),
        makespan_seconds=1000.0,
        unfinished=0,
        rounds=10,
        faults=0,
        decision_seconds=0.1,
    )


# --- verdicts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("here", "direction", "better", "verdict"),
    [
        (2.2, True, False, Verdict.HOLDS),
        (2.0, True, False, Verdict.HOLDS),
        (1.9, True, False, Verdict.DIRECTION),
        (3.0, True, True, Verdict.HOLDS),
        (2.2, False, False, Verdict.FAILS),
        (float("nan"), True, True, Verdict.FAILS),
    ],
)
def test_a_number_holds_within_a_tenth_or_if_it_is_better(
    here: float, direction: bool, better: bool, verdict: Verdict
) -> None:
    assert judged(here, 2.2, direction=direction, better=better) is verdict


def test_several_numbers_are_as_good_as_the_worst() -> None:
    assert all_of([Verdict.HOLDS, Verdict.DIRECTION]) is Verdict.DIRECTION
    assert all_of([Verdict.FAILS, Verdict.DIRECTION]) is Verdict.FAILS
    assert all_of([Verdict.HOLDS]) is Verdict.HOLDS


# --- cells ------------------------------------------------------------------------------------------------------------


def test_the_clusters_are_the_papers() -> None:
    assert (make_cluster("testbed").gpus, len(make_cluster("testbed").machines)) == (64, 20)
    assert [make_cluster("testbed", shrink).gpus for shrink in (1, 2, 4)] == [64, 32, 16]
    assert make_cluster("simulator").gpus == 168
    assert make_cluster("lying").gpus == 64


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_has_the_lease_of_its_cell(policy: str) -> None:
    profile = make_profile(Cell(policy=policy, seed=0, lease_seconds=300.0))
    assert profile.rounds.lease == 300.0
    assert profile.rounds.settle == 60.0
    profile.stages(make_cluster("testbed"))


def test_a_cell_has_a_key_of_its_own() -> None:
    cells = cells_in(Grid())
    assert len({cell.key for cell in cells}) == len(cells) == len(set(cells))
    usual = Cell(policy="themis", seed=0)
    assert Cell(policy="themis", seed=0).key == usual.key != dataclasses.replace(usual, slowdown_error=0.0).key


def test_a_shortened_workload_is_the_same_many_times_as_fast() -> None:
    cell = Cell(policy="themis", seed=3, apps=4, shorter=1.0)
    whole = make_workload(cell)
    fast = shortened(whole, 4.0)
    assert fast.jobs.iterations.tolist() == whole.jobs.iterations.tolist()
    assert (fast.jobs.seconds_per_iteration * 4.0).tolist() == whole.jobs.seconds_per_iteration.tolist()
    assert (fast.apps.arrival_seconds * 4.0).tolist() == pytest.approx(whole.apps.arrival_seconds.tolist())


def test_an_app_is_entitled_to_what_a_phase_of_its_search_can_use() -> None:
    workload = make_workload(Cell(policy="themis", seed=0, workload="2", apps=6))
    demands = app_demands(workload)
    for app in range(6):
        most = workload.jobs.most[workload.jobs.app == app]
        assert most.size <= demands[app] <= most.sum()


def test_a_run_does_all_work_and_its_rho_is_that_of_equation_two() -> None:
    cell = Cell(policy="srsf", seed=0, apps=3, shorter=64.0)
    told = run_cell(cell)
    assert told.unfinished == told.faults == 0
    work = make_workload(cell)
    asked = (work.jobs.iterations * work.jobs.seconds_per_iteration * work.jobs.most).sum()
    assert sum(told.work_gpu_seconds) == pytest.approx(asked)
    assert sum(told.gpu_seconds) >= asked
    assert run_cell(cell).rho == told.rho


# --- the grid ---------------------------------------------------------------------------------------------------------


def test_every_claim_is_measured_by_cells_of_the_grid() -> None:
    grid = Grid(seeds=(0, 1))
    done = {cell.key: figures(rho=1.0 + 0.01 * number % 0.5) for number, cell in enumerate(cells_in(grid))}
    found = [claim.measure(Runs(grid=grid, done=done)) for claim in CLAIMS]
    assert [one for one in found if one.verdict is Verdict.UNMEASURED] == []
    assert all(one.reason and one.text for one in found)


def test_without_runs_nothing_is_claimed() -> None:
    runs: ThemisRuns = Runs(grid=Grid(), done={})
    found = {claim.figure: claim.measure(runs) for claim in CLAIMS}
    assert {one.verdict for figure, one in found.items() if figure != "Table 3"} == {Verdict.UNMEASURED}


def test_only_seeds_that_all_policies_have_run_are_compared() -> None:
    grid = Grid(seeds=(0, 1))
    done = {grid.testbed("1", policy, 0).key: figures() for policy in POLICIES}
    done[grid.testbed("1", "themis", 1).key] = figures()
    by = Runs(grid=grid, done=done).by_policy(lambda policy, seed: grid.testbed("1", policy, seed), POLICIES)
    assert {policy: len(found) for policy, found in by.items()} == dict.fromkeys(POLICIES, 1)


def test_worst_rho_is_held_against_the_papers() -> None:
    grid = Grid(seeds=(0,))
    claim = next(claim for claim in CLAIMS if claim.figure == "Fig 9")
    worst = {policy: 3.3 if policy == "slaq" else 2.3 for policy in POLICIES} | {"themis": 1.0}
    done = {grid.testbed("1", policy, 0).key: figures(rho=rho) for policy, rho in worst.items()}
    found = claim.measure(Runs(grid=grid, done=done))
    assert (found.text, found.verdict) == ("2.30, 3.30", Verdict.HOLDS)
    done[grid.testbed("1", "srsf", 0).key] = figures(rho=0.9)
    assert claim.measure(Runs(grid=grid, done=done)).verdict is Verdict.FAILS


def test_a_run_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    ran: list[Cell] = []

    def fake(cell: Cell) -> Figures:  # what a simulation gives is not what is tested here
        ran.append(cell)
        return figures()

    grid, paper, store = Grid(seeds=(0,)), fake_paper(run=fake), Store(tmp_path, Figures)
    cells = cells_in(grid)

    def go(cells: tuple[Cell, ...], seconds: float) -> dict[str, Figures]:
        return run_cells(paper, cells, store, processes=1, seconds=seconds, done_one=lambda *news: None)

    for cell in cells[:10]:
        store.save(cell, figures(rho=7.0))
    done = go(cells, 60.0)
    assert ran == list(cells[10:])
    assert len(done) == len(cells) and done[cells[0].key].worst_rho == 7.0
    ran.clear()
    go(cells, 60.0)
    assert ran == []
    go(cells_in(Grid(seeds=(1,))), 0.0)
    assert ran == []  # no time left


def test_a_spoiled_file_is_named(tmp_path: Path) -> None:
    store, cell = Store(tmp_path, Figures), cells_in(Grid())[0]
    store.save(cell, figures())
    assert store.load([cell])[cell.key].gpu_seconds == figures().gpu_seconds
    path = store.folder / f"{cell.key}.json"
    path.write_text(path.read_text()[:40])
    with pytest.raises(InputError, match="a cell's file must be whole") as refused:
        store.load([cell])
    assert str(path) in str(refused.value)


def test_the_cells_behind_a_claim_are_all_that_it_needs() -> None:
    grid = Grid(seeds=(0,))
    for claim in themis.PAPER.claims(grid):
        done = {cell.key: figures(rho=1.0 + 0.01 * number) for number, cell in enumerate(claim.cells(0))}
        assert claim.measure(Runs(grid=grid, done=done)).verdict is not Verdict.UNMEASURED, claim.figure


@pytest.mark.parametrize("name", ["fig9", "Fig 9", "FIGURE 9"])
def test_claims_are_chosen_by_their_figure(name: str) -> None:
    assert [claim.figure for claim in chosen(CLAIMS, [name])] == ["Fig 9"] * 2
    assert [claim.figure for claim in chosen(CLAIMS, [name, "fig15"])] == ["Fig 9"] * 2 + ["Fig 15"] * 4


def test_an_unknown_claim_is_refused() -> None:
    with pytest.raises(InputError, match=r'claim must be one of: Table 3, Fig 9, .*did you mean "Table 5"'):
        chosen(CLAIMS, ["Tabel 5"])


# --- table, page, command ---------------------------------------------------------------------------------------------


def test_the_table_says_what_is_fixed_and_how_many_hold() -> None:
    lines = fixed_lines(themis.PAPER.fixed(Grid()))
    text = " ".join(line.strip() for line in lines)
    assert "adds up to 168, not 256" in text and "20 apps of the paper's 85" in text
    assert all(len(line) <= 118 for line in lines)
    rows = [
        (claim, Measured(text="1", verdict=verdict, reason="why"))
        for claim, verdict in zip(CLAIMS, [Verdict.HOLDS, Verdict.FAILS, Verdict.DIRECTION], strict=False)
    ]
    assert count_line(rows) == (
        "1 of 3 claims hold, 1 in direction only, 1 do not (with the reason), 0 not measurable on their workload, "
        "0 not measured here"
    )
    assert [row["verdict"] for row in plain_rows(rows)] == ["holds", "does not hold", "direction only"]
    assert all(len(line) <= 140 for line in screen_lines(rows))


def test_the_page_stands_alone() -> None:
    grid = Grid(seeds=(0,))
    done = {cell.key: figures() for cell in cells_in(grid)}
    runs: ThemisRuns = Runs(grid=grid, done=done)
    made = page("Themis", [(claim, claim.measure(runs)) for claim in CLAIMS], themis.PAPER.pictures(runs), ["<fixed>"])
    assert made.startswith("<!doctype html>") and "http" not in made
    assert made.count("<tr>") == len(CLAIMS) + 1 and "<svg" in made and "&lt;fixed&gt;" in made


def test_table_three_is_that_of_the_definitions() -> None:
    assert bid_table()[4] == 1.064


def test_the_command_leaves_a_folder_and_refuses_another_run_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(themis, "PAPER", fake_paper(run=lambda cell: figures()))
    out = tmp_path / "run"

    def reproduced(*more: str, seeds: str = "0") -> int:
        return run(["reproduce", "themis", "--seeds", seeds, "-j", "1", "--out", str(out), *more])

    assert reproduced("--json") == 0
    outcome = json.loads(capsys.readouterr().out)
    assert outcome["schema"] == "eunomia/reproduce@1" and outcome["simulations"]["done"] == outcome["simulations"]["of"]
    assert {"claims.json", "fixed.json", "report.html", "cells"} == {path.name for path in out.iterdir()}
    assert reproduced() == 2
    assert "must be a new folder, or --resume be given" in capsys.readouterr().err
    assert reproduced("--resume", seeds="1") == 2
    assert "must be given the seeds and apps of the earlier run" in capsys.readouterr().err
    assert reproduced("--resume", "-q") == 0
    assert capsys.readouterr().out == f"{out}\n"
    assert reproduced("--resume", "--strict", "-q") == 1


def test_a_run_refused_at_its_first_cell_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(cell: object) -> Figures:
        raise InputError("trace must be a file", value="philly.csv", place="--set trace")

    out = tmp_path / "run"
    command = ["reproduce", "themis", "--seeds", "0", "-j", "1", "--out", str(out), "--no-progress"]
    monkeypatch.setattr(themis, "PAPER", fake_paper(run=refused))
    assert run(command) == 2
    assert not out.exists()
    monkeypatch.setattr(themis, "PAPER", fake_paper(run=lambda cell: figures()))
    assert run(command) == 0


def test_only_runs_the_cells_of_its_claims(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(themis, "PAPER", fake_paper(run=lambda cell: figures()))
    out = tmp_path / "run"
    flags = ["--seeds", "0", "-j", "1", "--out", str(out), "--apps", "4", "--no-progress", "--json"]
    flags += ["--set", "slowdowns=analytic"]
    assert run(["reproduce", "themis", "--only", "fig18", "--only", "table3", *flags]) == 0
    told = capsys.readouterr()
    outcome = json.loads(told.out)
    assert told.err == "" and outcome["simulations"]["of"] == 6 == len(list((out / "cells").iterdir()))
    assert [claim["figure"] for claim in outcome["claims"]] == ["Table 3", "Fig 18"]
    assert outcome["fixed"] == {"seeds": [0], "testbed_apps": 4, "simulator_apps": 4, "slowdowns": "analytic"}
    assert run(["reproduce", "themis", "--only", "fig99", *flags]) == 2
    assert "claim must be one of" in capsys.readouterr().err


def test_a_model_of_slowdowns_must_be_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    assert run(["reproduce", "themis", "--set", "slowdowns=analytic,fotnote", "--out", str(out)]) == 2
    assert 'slowdowns must be of: footnote, analytic, but got "fotnote"' in capsys.readouterr().err
    assert not out.exists()


def test_a_paper_of_another_package_is_run_like_those_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    package = tmp_path / "short_paper.py"
    guide = (Path(__file__).parents[2] / "docs/how-to/add-a-paper.md").read_text()
    package.write_text(guide.partition("```python\n")[2].partition("```")[0])
    made = tmp_path / "short_paper-1.dist-info"
    made.mkdir()
    (made / "METADATA").write_text("Metadata-Version: 2.1\nName: short-paper\nVersion: 1\n")
    (made / "entry_points.txt").write_text("[eunomia.papers]\nshort = short_paper:PAPER\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert paper_names() == sorted(["short", *OWN])
    out = tmp_path / "run"
    flags = ["--seeds", "0-1", "--set", "jobs=5", "-j", "1", "--out", str(out), "--no-progress"]
    assert run(["reproduce", "short", *flags]) == 0
    told = capsys.readouterr().out
    assert "Fig 1     SRTF halves the mean JCT" in told and "of 1 claims hold" in told
    assert "4 of 4 simulations done" in told
    assert run(["reproduce", "short", "--apps", "4", *flags]) == 2
    assert "--apps must stand with a paper that has apps" in capsys.readouterr().err
    monkeypatch.setenv("EUNOMIA_NO_PLUGINS", "1")
    assert paper_names() == OWN


def test_an_unknown_paper_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["reproduce", "themsi"]) == 2
    rule = f'paper must be one of: {", ".join(OWN)}, but got "themsi"; did you mean "themis"?'
    assert rule in capsys.readouterr().err
    assert find_paper("themis") is themis.PAPER


@pytest.mark.parametrize("paper", paper_names())
def test_the_keys_of_a_paper_are_named_where_one_is_wrong(paper: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["reproduce", paper, "--set", "keys"]) == 2
    assert "--set must be KEY=VALUE with one of " in capsys.readouterr().err
    assert run(["reproduce", "--help"]) == 0
    assert "a wrong key lists" in " ".join(capsys.readouterr().out.split())
