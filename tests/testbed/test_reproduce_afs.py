"""``reproduce afs``: a small trace through every policy, its claims with all their cells, and what is refused."""

import dataclasses
import json
from pathlib import Path

import pytest
from real_data import shared_data

from eunomia.cli import run
from eunomia.errors import InputError
from eunomia_testbed.generators.afs import MOST_GPUS
from eunomia_testbed.reproduce.afs.cells import POLICIES, AfsFigures, run_cell
from eunomia_testbed.reproduce.afs.claims import NOT_DONE
from eunomia_testbed.reproduce.afs.grid import ORDER, AfsGrid
from eunomia_testbed.reproduce.afs.paper import PAPER, said
from eunomia_testbed.reproduce.paper import Runs, cells_of
from eunomia_testbed.reproduce.verdicts import Verdict

MODEL = "Inception4Model256"


@pytest.fixture
def grid(tmp_path: Path) -> AfsGrid:
    """A trace of 60 jobs that overload 64 GPUs, and rates that grow with the root of GPUs."""
    header = "job_id,submit_s,submit_local,duration_s,num_gpus,vc,status,afs_model\n"
    rows = [
        f"ph{row},{row * 60},x,{600 + 977 * row % 9000},{(1, 2, 4, 8)[row % 4]},2869ce,Pass,{MODEL}\n"
        for row in range(60)
    ]
    trace, scaling = tmp_path / "philly.csv", tmp_path / "scaling.csv"
    trace.write_text(header + "".join(rows))
    steps = [f"{MODEL},1,{gpus},{12.0 / gpus**0.5}\n" for gpus in range(1, MOST_GPUS[MODEL] + 1)]
    scaling.write_text("model,global_batch,num_gpus,step_time_s\n" + "".join(steps))
    return AfsGrid(clusters="2869ce", trace=str(trace), scaling=str(scaling))


@pytest.mark.parametrize("policy", list(POLICIES))
def test_every_policy_finishes_every_job(grid: AfsGrid, policy: str) -> None:
    figures = run_cell(grid.cell(policy, "2869ce", 0))
    assert 0.0 < figures.mean_jct_seconds < figures.p99_jct_seconds <= figures.makespan_seconds
    assert len(figures.jct_by_length_seconds) == 4
    assert figures.efficiency > 0.0


def test_costs_make_jobs_longer_and_packing_changes_the_sizes(grid: AfsGrid) -> None:
    plain, costly, packed = (run_cell(make("afs_l", "2869ce", 0)) for make in (grid.cell, grid.costly, grid.packed))
    assert costly.mean_jct_seconds > plain.mean_jct_seconds
    assert packed.mean_jct_seconds != plain.mean_jct_seconds
    assert grid.packed("srtf", "2869ce", 0) == grid.cell("srtf", "2869ce", 0)


@pytest.mark.parametrize(("policy", "hours"), [("srtf", 23.92), ("srsf", 24.04)])
def test_average_completion_times_on_the_fourth_cluster(policy: str, hours: float) -> None:
    trace, curves = shared_data("philly/philly_full_reconstructed.csv.gz"), shared_data("afs/afs_scaling.csv")
    figures = run_cell(AfsGrid(trace=str(trace), scaling=str(curves)).cell(policy, "e13805", 0))
    assert figures.mean_jct_seconds / 3600.0 == pytest.approx(hours, rel=0.01)


def figures(*, hours: float) -> AfsFigures:
    return AfsFigures(
        mean_jct_seconds=3600.0 * hours,
        p99_jct_seconds=7200.0 * hours,
        makespan_seconds=1e5,
        restarts=3,
        jct_by_length_seconds=(hours, 2 * hours, 3 * hours, 4 * hours),
        queue=hours,
        efficiency=1.0 / hours,
        blocking=hours,
    )


def test_every_claim_is_measured_once_its_cells_are_there() -> None:
    own = AfsGrid(clusters=",".join(ORDER))
    claims = PAPER.claims(own)
    hours = {"afs_l": 10.0, "afs_p": 12.0, "srtf": 27.0, "tiresias": 36.0}
    done = {cell.key: figures(hours=hours.get(cell.policy, 18.0)) for cell in cells_of((0,), claims)}
    runs = Runs(grid=own, done=done)
    rows = [(claim, claim.measure(runs)) for claim in claims]
    left_out = {text for _, text, *_ in NOT_DONE}
    assert all((found.verdict is Verdict.UNMEASURED) == (claim.text in left_out) for claim, found in rows)
    by_text = {claim.text: found for claim, found in rows}
    srtf = by_text["average JCT over AFS-L's: SRTF"]
    assert (srtf.text, srtf.verdict) == ("2.70 to 2.70", Verdict.HOLDS)
    assert by_text["average JCT of AFS-P over that of AFS-L"].text == "1.20"
    assert by_text["average JCT of AFS-S over that of AFS-P"].verdict is Verdict.DIRECTION
    assert by_text["QL, CE and BI over time on #9: AFS-L's over SRTF's"].verdict is Verdict.HOLDS
    assert len(PAPER.pictures(runs)) == len(ORDER)


def test_claims_without_runs_are_not_measured_and_a_worse_policy_does_not_hold() -> None:
    own = AfsGrid()
    claims = PAPER.claims(own)
    empty = Runs(grid=own, done=dict[str, AfsFigures]())
    assert {claim.measure(empty).verdict for claim in claims} == {Verdict.UNMEASURED}
    worse = {cell.key: figures(hours=20.0 if cell.policy == "afs_l" else 10.0) for cell in cells_of((0,), claims)}
    found = {claim.text: claim.measure(Runs(grid=own, done=worse)) for claim in claims}
    for text in ("AFS-L is best of those that know lengths", "AFS-L is better than SRTF-E and SRSF-E"):
        assert (found[text].text, found[text].verdict) == ("0.50 to 0.50", Verdict.FAILS)


def test_cells_have_names_of_their_own() -> None:
    own = AfsGrid()
    made = [make("afs_l", "2869ce", 0) for make in (own.cell, own.packed, own.costly)]
    assert len({cell.key for cell in made}) == 3
    assert dataclasses.replace(made[0], trace="elsewhere").key == made[0].key
    assert said(made[1], figures(hours=2.0)) == "afs_l on #9, seed 0, sizes packed: mean JCT 2.00 h, 3 restarts"


def test_a_cluster_or_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r'^clusters must be some of 0e4a51, .* but got "2869cf" \(--set clusters\)'):
        PAPER.claims(AfsGrid(clusters="b436b2, 2869cf"))
    with pytest.raises(InputError, match=r"^trace must be a file of Philly's trace with models, .*\(reproduce afs\)"):
        run_cell(AfsGrid(trace=str(tmp_path / "none.csv")).cell("srtf", "2869ce", 0))


def test_the_command_measures_a_claim(grid: AfsGrid, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = [part for name in ("clusters", "trace", "scaling") for part in ("--set", f"{name}={getattr(grid, name)}")]
    out = tmp_path / "out"
    command = ["reproduce", "afs", "--seeds", "0", "--only", "fig11", *given, "-j", "1", "--out", str(out)]
    assert run([*command, "--no-progress"]) == 0
    assert "AFS-L is better than SRTF-E and SRSF-E" in capsys.readouterr().out
    (row,) = json.loads((out / "claims.json").read_text())["claims"]
    assert (row["figure"], row["verdict"]) == ("Fig 11", Verdict.HOLDS.value)
