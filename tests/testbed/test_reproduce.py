"""``eunomia reproduce``: verdicts, the grid, what is kept, and a small run from the command line to the page."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest

from eunomia.cli import run
from eunomia.errors import InputError, InputErrors
from eunomia_testbed.reproduce.command import chosen
from eunomia_testbed.reproduce.estimates import estimated
from eunomia_testbed.reproduce.files import NeededFile, check_files
from eunomia_testbed.reproduce.keys import grid_keys
from eunomia_testbed.reproduce.page import page
from eunomia_testbed.reproduce.paper import Paper, Runs, cells_of
from eunomia_testbed.reproduce.papers import find_paper, paper_names
from eunomia_testbed.reproduce.recipes import run_profile
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
    make_workload,
    recipe_of,
    shortened,
)
from eunomia_testbed.reproduce.themis.paper import Grid
from eunomia_testbed.reproduce.themis.table3 import bid_table
from eunomia_testbed.reproduce.verdicts import Measured, Verdict
from eunomia_testbed.spec.settings import filled

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
        arbiter_ms=(2.0, 9.0),
        agent_ms=(0.5, 0.7),
    )


# --- cells ------------------------------------------------------------------------------------------------------------


def test_clusters_of_the_reproduction_equal_those_of_the_paper() -> None:
    assert (make_cluster("testbed").gpus, len(make_cluster("testbed").machines)) == (64, 20)
    assert [make_cluster("testbed", shrink).gpus for shrink in (1, 2, 4)] == [64, 32, 16]
    assert make_cluster("simulator").gpus == 168
    assert make_cluster("lying").gpus == 64


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_has_the_lease_of_its_cell(policy: str) -> None:
    profile = run_profile(recipe_of(Cell(policy=policy, seed=0, lease_seconds=300.0)))
    assert profile.rounds.lease == 300.0
    assert profile.rounds.settle == 60.0
    profile.stages(make_cluster("testbed"))


def test_each_cell_has_a_unique_key() -> None:
    cells = cells_in(Grid())
    assert len({cell.key for cell in cells}) == len(cells) == len(set(cells))
    usual = Cell(policy="themis", seed=0)
    assert Cell(policy="themis", seed=0).key == usual.key != dataclasses.replace(usual, slowdown_error=0.0).key


def test_a_shortened_workload_has_the_same_iterations_at_a_multiple_of_the_speed() -> None:
    cell = Cell(policy="themis", seed=3, apps=4, shorter=1.0)
    whole = make_workload(cell)
    fast = shortened(whole, 4.0)
    assert fast.jobs.iterations.tolist() == whole.jobs.iterations.tolist()
    assert (fast.jobs.seconds_per_iteration * 4.0).tolist() == whole.jobs.seconds_per_iteration.tolist()
    assert (fast.apps.arrival_seconds * 4.0).tolist() == pytest.approx(whole.apps.arrival_seconds.tolist())


def test_the_demand_of_an_app_is_limited_by_a_phase_of_its_search() -> None:
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
    missing = {row[2] for group in themis.ROWS.file.missing for row in group.rows}
    found = {claim.text: claim.measure(Runs(grid=grid, done=done)) for claim in themis.PAPER.claims(grid)}
    unmeasured = (Verdict.UNMEASURED, Verdict.NOT_MEASURABLE)
    assert {text for text, one in found.items() if one.text == "-"} == missing
    assert all((one.verdict in unmeasured) for text, one in found.items() if text in missing)
    assert all(one.reason and one.text for one in found.values())


def test_only_a_cell_of_themis_records_the_time_of_each_auction() -> None:
    made = run_cell(Cell(policy="themis", seed=0, apps=3, shorter=64.0))
    assert 0 < len(made.arbiter_ms) == len(made.agent_ms) <= made.rounds
    assert min(made.arbiter_ms) > 0.0 < min(made.agent_ms)
    assert run_cell(Cell(policy="srtf", seed=0, apps=3, shorter=64.0)).arbiter_ms == ()
    number = themis.NUMBERS["arbiter, 95th percentile"]
    assert 2.0 < number(figures()) < 9.0
    assert math.isnan(number(dataclasses.replace(figures(), arbiter_ms=())))


def test_claims_in_the_lead_group_cover_seven_policies_three_contentions_and_both_slowdowns() -> None:
    cells = {cell for claim in chosen(themis.PAPER.claims(Grid()), ["lead"]) for cell in claim.cells(0)}
    runs = {(cell.policy, cell.shrink, cell.slowdowns) for cell in cells if cell.policy != "alone"}
    assert len(runs) == 7 * 3 * 2 and {cell.workload for cell in cells} == {"flat"}
    assert all((themis.PAPER.seconds(cell) or 0.0) > 0.0 for seed in (0, 4) for cell in cells_in(Grid(seeds=(seed,))))


def test_apps_that_starve_under_gandiva_are_named() -> None:
    by_seed = {"gandiva": [figures(rho=23.7), figures(rho=4.0)], "srtf": [figures(rho=9.0), figures()]}
    assert themis.starved(by_seed).endswith("the number of seeds of 2: gandiva: app02 23.7 in 2")
    grid, done = fig_nine((0, 1), {"themis": 1.0, "gandiva": 5.0})
    found = claim_of(grid, "Fig 9").measure(Runs(grid=grid, done=done))
    assert "gandiva: app02 5 in 2" in found.reason


def test_an_app_that_reports_less_work_than_it_has_finishes_earlier() -> None:
    usual = {"workload": "identical", "cluster": "lying", "apps": 8, "iterations_error": 0.0, "slowdown_error": 0.0}
    honest, less, paper_way = (
        run_cell(Cell(policy="themis", seed=0, **usual, **more))  # type: ignore[arg-type]
        for more in ({}, {"work_lie": -0.3}, {"standing_slowdown": True})
    )
    assert less.jct_seconds[-1] < 0.95 * honest.jct_seconds[-1]
    assert honest.jct_seconds != paper_way.jct_seconds
    recipe = recipe_of(Cell(policy="themis", seed=0, standing_slowdown=True))
    assert recipe.settings["plugins.themis.standing_slowdown"] is True


def test_without_simulations_every_claim_is_not_measured() -> None:
    runs: Runs[Grid, Cell, Figures] = Runs(grid=Grid(), done={})
    found = {claim.figure: claim.measure(runs) for claim in CLAIMS if claim.figure not in ("Table 1", "Table 3")}
    assert {one.verdict for one in found.values()} <= {Verdict.UNMEASURED, Verdict.NOT_MEASURABLE}
    assert found["Fig 9"].verdict is Verdict.UNMEASURED


def claim_of(grid: Grid, figure: str) -> Any:
    """The first claim of a figure."""
    return next(claim for claim in themis.PAPER.claims(grid) if claim.figure == figure)


def fig_nine(seeds: tuple[int, ...], worst: dict[str, float]) -> tuple[Grid, dict[str, Figures]]:
    """A grid and the figures of its cells for Figure 9, with a worst ρ by policy."""
    grid = Grid(seeds=seeds, slowdowns="footnote")
    cells = [cell for seed in seeds for cell in claim_of(grid, "Fig 9").cells(seed)]
    return grid, {cell.key: figures(rho=worst.get(cell.policy, 2.3)) for cell in cells if cell.policy != "alone"}


def test_only_seeds_that_all_policies_have_run_are_compared() -> None:
    grid, done = fig_nine((0, 1), {"themis": 1.0})
    last = [cell for cell in claim_of(grid, "Fig 9").cells(1) if cell.policy == "srsf"]
    found = claim_of(grid, "Fig 9").measure(
        Runs(grid=grid, done={key: one for key, one in done.items() if key != last[0].key})
    )
    assert {len(numbers) for numbers in found.by_seed.values()} == {1}
    assert found.verdict is Verdict.UNDECIDED and "one seed" in found.reason


def test_the_worst_rho_is_compared_with_the_paper_over_five_seeds() -> None:
    five = (0, 1, 2, 3, 4)
    grid, done = fig_nine(five, {"themis": 1.0, "slaq": 3.3})
    found = claim_of(grid, "Fig 9").measure(Runs(grid=grid, done=done))
    assert (found.text, found.verdict) == ("2.30, 3.30", Verdict.HOLDS)
    assert "chosen among 6 by this very number, so chance favours it" in found.reason
    grid, done = fig_nine(five, {"themis": 1.0, "slaq": 3.3, "srsf": 0.9})
    assert claim_of(grid, "Fig 9").measure(Runs(grid=grid, done=done)).verdict is Verdict.FAILS
    grid, done = fig_nine((0, 1, 2, 3), {"themis": 1.0, "slaq": 3.3})
    assert claim_of(grid, "Fig 9").measure(Runs(grid=grid, done=done)).verdict is Verdict.UNDECIDED


def test_a_claim_states_what_its_verdict_depends_on() -> None:
    grid = Grid()
    claim = claim_of(grid, "Fig 16")
    cells = [cell for seed in grid.seeds for cell in claim.cells(seed)]
    done = {cell.key: figures(hours=10.81 if cell.policy == "gandiva" else 10.0) for cell in cells}
    same = claim.measure(Runs(grid=grid, done=done))
    assert (same.verdict, same.beside, same.depends_on) == (Verdict.HOLDS, {"analytic S": "holds: +8.1 %"}, "")
    done |= {cell.key: figures(hours=10.0) for cell in cells if cell.slowdowns == "analytic"}
    other = claim.measure(Runs(grid=grid, done=done))
    assert (other.verdict, other.depends_on) == (Verdict.HOLDS, "S")
    assert other.beside == {"analytic S": "does not hold: +0.0 %"}
    one = Grid(slowdowns="analytic")
    assert claim_of(one, "Fig 16").measure(Runs(grid=one, done=done)).verdict is Verdict.FAILS


def test_figures_of_cells_simulated_by_other_code_are_stale(tmp_path: Path) -> None:
    grid = Grid(slowdowns="footnote")
    claim, store = claim_of(grid, "Fig 16"), Store(tmp_path, Figures, "of now")
    cells = [cell for seed in grid.seeds for cell in claim.cells(seed)]
    for cell in cells:
        store.save(cell, figures())
    path = store.folder / f"{cells[0].key}.json"
    again = Store(tmp_path, Figures, "of now")
    done = again.load(cells)
    assert not claim.measure(Runs(grid=grid, done=done, stale=again.stale())).stale
    path.write_text(json.dumps(json.loads(path.read_text()) | {"code": "other"}))
    done = again.load(cells)
    assert again.stale() == {cells[0].key}
    assert claim.measure(Runs(grid=grid, done=done, stale=again.stale())).stale


def test_a_stopped_run_can_be_resumed(tmp_path: Path) -> None:
    ran: list[Cell] = []

    def fake(cell: Cell) -> Figures:  # what a simulation gives is not what is tested here
        ran.append(cell)
        return figures()

    grid, paper, store = Grid(seeds=(0,)), fake_paper(run=fake), Store(tmp_path, Figures, "of now")
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


def test_a_damaged_file_of_a_cell_is_refused_by_its_path(tmp_path: Path) -> None:
    store, cell = Store(tmp_path, Figures, "of now"), cells_in(Grid())[0]
    store.save(cell, figures())
    assert store.load([cell])[cell.key].gpu_seconds == figures().gpu_seconds
    path = store.folder / f"{cell.key}.json"
    path.write_text(path.read_text()[:40])
    with pytest.raises(InputError, match="a cell's file must be whole") as refused:
        store.load([cell])
    assert str(path) in str(refused.value)


def test_a_claim_needs_only_its_own_cells() -> None:
    grid = Grid(seeds=(0,))
    for claim in themis.PAPER.claims(grid):
        done = {cell.key: figures(rho=1.0 + 0.01 * number) for number, cell in enumerate(claim.cells(0))}
        assert not done or claim.measure(Runs(grid=grid, done=done)).text != "-", claim.figure


@pytest.mark.parametrize("name", ["fig9", "Fig 9", "FIGURE 9"])
def test_claims_can_be_selected_by_the_figure_of_the_paper(name: str) -> None:
    assert [claim.figure for claim in chosen(CLAIMS, [name])] == ["Fig 9"] * 2
    assert [claim.figure for claim in chosen(CLAIMS, [name, "fig15"])] == ["Fig 9"] * 2 + ["Fig 15"] * 4


def test_an_unknown_claim_is_refused() -> None:
    with pytest.raises(InputError, match=r'claim must be one of: .*Table 3, .*Fig 9, .*did you mean "Table 5"'):
        chosen(CLAIMS, ["Tabel 5"])


# --- table, page, command ---------------------------------------------------------------------------------------------


def test_the_table_states_the_fixed_decisions_and_the_number_of_claims_that_hold() -> None:
    lines = fixed_lines(themis.PAPER.fixed(Grid()))
    text = " ".join(line.strip() for line in lines)
    assert "adds up to 168, not 256" in text and "20 apps of the paper's 85" in text
    assert all(len(line) <= 118 for line in lines)
    rows = [
        (claim, Measured(text="1", verdict=verdict, reason="why"))
        for claim, verdict in zip(CLAIMS[:3], [Verdict.HOLDS, Verdict.FAILS, Verdict.DIRECTION], strict=False)
    ]
    assert count_line(rows) == (
        "1 of 3 claims hold, 1 in direction, 1 does not hold, 0 undecided, 0 by construction, 0 not measurable here, "
        "0 not measured"
    )
    assert [row["verdict"] for row in plain_rows(rows)] == ["holds", "does not hold", "in direction"]
    assert all(len(line) <= 140 for line in screen_lines(rows))


def test_the_page_needs_no_other_file() -> None:
    grid = Grid(seeds=(0,))
    done = {cell.key: figures() for cell in cells_in(grid)}
    runs: Runs[Grid, Cell, Figures] = Runs(grid=grid, done=done)
    made = page("Themis", [(claim, claim.measure(runs)) for claim in CLAIMS], ["<fixed>"])
    assert made.startswith("<!doctype html>") and "http" not in made
    assert made.count("<tr>") == len(CLAIMS) + 1 and "<svg" in made and "&lt;fixed&gt;" in made


def test_table_3_of_themis_has_the_bid_computed_from_the_definitions() -> None:
    assert bid_table()["4 GPUs"] == 1.064


def test_the_command_writes_a_folder_and_refuses_another_run_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(themis, "PAPER", fake_paper(run=lambda cell: figures()))
    out = tmp_path / "run"

    def reproduced(*more: str, seeds: str = "0") -> int:
        return run(["reproduce", "themis", "--seeds", seeds, "-j", "1", "--out", str(out), *more])

    assert reproduced("--json") == 0
    outcome = json.loads(capsys.readouterr().out)
    assert outcome["schema"] == "eunomia/reproduce@2" and outcome["simulations"]["done"] == outcome["simulations"]["of"]
    assert {"claims.json", "fixed.json", "report.html", "cells"} == {path.name for path in out.iterdir()}
    assert reproduced() == 2
    assert "must be a new folder, or --resume be given" in capsys.readouterr().err
    assert reproduced("--resume", seeds="1") == 2
    assert "sizes of the earlier run, but got seeds [1] in place of [0] (" in capsys.readouterr().err
    assert reproduced("--resume", "-q") == 0
    assert capsys.readouterr().out == f"{out}\n"
    assert reproduced("--resume", "--strict", "-q") == 1


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        (["--out", "taken"], "--out must be a folder, but got the file taken (--out)"),
        (["--out", "taken/run"], "a run's folder must be one that can be written, but got [Errno 20] Not a directory"),
        (["--out", "other", "--resume"], "an earlier eunomia reproduce left, but got other, without fixed.json"),
        (["--resume"], "--resume must stand with --out"),
        (["--docs", "taken"], "--docs must name a folder, but got the file taken (--docs)"),
    ],
)
def test_an_unusable_folder_is_refused_before_anything_runs(
    flags: list[str], error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[object] = []

    def seen(cell: object) -> Figures:
        ran.append(cell)
        return figures()

    monkeypatch.setattr(themis, "PAPER", fake_paper(run=seen))
    monkeypatch.chdir(tmp_path)
    Path("taken").write_text("mine")
    Path("other").mkdir()
    Path("other", "notes.txt").write_text("mine")
    assert run(["reproduce", "themis", "--seeds", "0", "-j", "1", *flags]) == 2
    assert error in capsys.readouterr().err
    assert not ran and sorted(path.name for path in tmp_path.iterdir()) == ["other", "taken"]


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


def test_selected_claims_simulate_only_their_own_cells(
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
    assert [claim["figure"] for claim in outcome["claims"]] == ["Table 3", "Fig 18", "Fig 18", "Fig 18"]
    assert outcome["fixed"] == {"seeds": [0], "testbed_apps": 4, "simulator_apps": 4, "slowdowns": "analytic"}
    assert run(["reproduce", "themis", "--only", "fig99", *flags]) == 2
    assert "claim must be one of" in capsys.readouterr().err


def test_an_unknown_model_of_slowdowns_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    assert run(["reproduce", "themis", "--set", "slowdowns=analytic,fotnote", "--out", str(out)]) == 2
    assert 'slowdowns must be of: footnote, analytic, but got "fotnote"' in capsys.readouterr().err
    assert not out.exists()


def test_a_paper_of_another_package_is_run_like_the_built_in_ones(
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
    assert "Fig 1     SRTF halves the mean JCT" in told and "of 2 claims hold" in told
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


@pytest.mark.parametrize("paper", OWN)
def test_the_cpu_time_of_a_paper_is_estimated_beforehand(paper: str) -> None:
    own = find_paper(paper)
    grid = own.grid()
    cells = cells_of(grid.seeds[:1], own.claims(grid))
    known = [seconds for seconds in map(own.seconds, cells) if seconds is not None]
    assert len(known) > 0.4 * len(cells) and min(known) > 0.0
    assert "s of CPU time" in estimated(own.seconds, cells)


@pytest.mark.parametrize("paper", paper_names())
def test_an_error_in_a_key_of_a_paper_lists_its_keys(paper: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["reproduce", paper, "--set", "keys"]) == 2
    assert "--set must be KEY=VALUE with one of " in capsys.readouterr().err


@pytest.mark.parametrize("paper", paper_names())
def test_help_gives_each_key_with_its_default_and_meaning(paper: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["reproduce", paper, "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    keys = list(grid_keys(find_paper(paper).grid))
    assert keys and all(key.meaning.endswith(".") and f"{key.name}={key.default}" in text for key in keys)
    assert all(key.meaning in text for key in keys)
    others = [name for name in paper_names() if name != paper]
    assert f"Keys of --set, {paper}" in text and not any(f"Keys of --set, {name}" in text for name in others)
    for key in keys:
        assert filled(find_paper(paper).grid, [f"{key.name}={key.default}"], "--set") == find_paper(paper).grid()


def test_help_without_a_paper_lists_the_keys_of_all_papers(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["reproduce", "--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"Keys of --set, {paper}:" in text for paper in paper_names())


def test_help_names_a_paper_that_does_not_load_and_has_the_keys_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = tmp_path / "broken_paper-1.dist-info"
    made.mkdir()
    (made / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-paper\nVersion: 1\n")
    (made / "entry_points.txt").write_text("[eunomia.papers]\nbroken = there_is_no_such_module:PAPER\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert run(["reproduce", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "Keys of --set, broken: does not load ModuleNotFoundError: No module named" in text
    assert "testbed_apps=20" in text


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("oef --set hours=-1 --set four_tenants=0", "four_tenants must be at least 4, but got 0 (--set)"),
        ("synergy --set jobs_per_hour=inf", "jobs_per_hour must be at least 0.01, and finite, but got inf (--set)"),
        ("themis --set testbed_apps=0", "testbed_apps must be at least 2, but got 0 (--set)"),
        ("shockwave --set scales=64,x", 'scales must be numbers of GPUs, such as 64,128,256, but got "64,x" (--set'),
        ("shockwave --set scales=0", 'scales must be numbers of GPUs, such as 64,128,256, but got "0" (--set scales)'),
    ],
)
def test_impossible_sizes_are_refused(
    words: str, error: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert run(["reproduce", *words.split(), "--out", str(out)]) == 2
    assert error in capsys.readouterr().err and not out.exists()


# --- files of others --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("paper", "settings", "rules"),
    [
        ("afs", [], ["trace must be the file of", "scaling must be the file of"]),
        ("oef", ["--set", "throughputs=none.gz"], ["throughputs must be the file of Gavel's measured rates"]),
        ("shockwave", [], ["throughputs must be the file of measured rates"]),
        ("synergy", [], ["data must be the folder with", "trace must be the file of Philly's trace"]),
    ],
)
def test_missing_files_are_named_before_anything_is_printed(
    paper: str,
    settings: list[str],
    rules: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["reproduce", paper, "--out", "run", *settings]) == 2
    told = capsys.readouterr()
    lines = told.err.splitlines()
    assert told.out == "" and len(lines) == len(rules) and not Path("run").exists()
    assert all(line.startswith(f"error: {rule}") for line, rule in zip(lines, rules, strict=True))


def test_a_run_without_simulations_needs_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["reproduce", "synergy", "--only", "table2", "--out", "tables", "-q"]) == 0
    assert run(["reproduce", "afs", "--within", "0s", "--out", "later", "-q"]) == 0


def test_the_error_for_a_missing_file_in_a_folder_names_the_folder(tmp_path: Path) -> None:
    (tmp_path / "there.csv").write_text("")
    folder = str(tmp_path)
    files = [NeededFile(path=f"{folder}/{name}.csv", rule="R", folder=folder) for name in ("there", "one", "two")]
    with pytest.raises(InputErrors) as refused:
        check_files([*files, *files, NeededFile(path=folder, rule="S")], "reproduce x")
    assert [str(error) for error in refused.value.errors] == [
        f'R, but got "{folder}" without one.csv, two.csv (reproduce x)',
        f'S, but got "{folder}" (reproduce x)',
    ]
    check_files(files[:1], "reproduce x")
