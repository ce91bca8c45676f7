"""``reproduce afs``: a small trace through every policy, its claims with all their cells, and what is refused."""

import dataclasses
import json
from pathlib import Path

import pytest
from real_data import shared_data

from eunomia.cli import run
from eunomia.errors import InputError
from eunomia_testbed.generators.afs import MOST_GPUS
from eunomia_testbed.reproduce.afs.cells import POLICIES, AfsCell, AfsFigures, run_cell
from eunomia_testbed.reproduce.afs.paper import ORDER, PAPER, ROWS, AfsGrid, make_cell
from eunomia_testbed.reproduce.afs.two_jobs import two_jobs
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


def cell(grid: AfsGrid, policy: str, **more: object) -> AfsCell:
    return make_cell(grid, {"policy": policy, "cluster": "2869ce", **more}, 0)


@pytest.mark.parametrize("policy", list(POLICIES))
def test_every_policy_finishes_every_job(grid: AfsGrid, policy: str) -> None:
    figures = run_cell(cell(grid, policy))
    assert 0.0 < figures.mean_jct_seconds < figures.p99_jct_seconds <= figures.makespan_seconds
    assert len(figures.jct_by_length_seconds) == 4
    assert figures.efficiency > 0.0


def test_costs_make_jobs_longer_and_packing_changes_the_sizes(grid: AfsGrid) -> None:
    changes: tuple[dict[str, object], ...] = ({}, {"start_seconds": 30.0}, {"packing": True})
    plain, costly, packed = (run_cell(cell(grid, "afs_l", **more)) for more in changes)
    assert costly.mean_jct_seconds > plain.mean_jct_seconds
    assert packed.mean_jct_seconds != plain.mean_jct_seconds
    assert cell(grid, "srtf", packing=True) == cell(grid, "srtf")


@pytest.mark.parametrize(("policy", "hours"), [("srtf", 23.92), ("srsf", 24.04)])
def test_mean_completion_times_on_the_fourth_cluster_equal_recorded_ones(policy: str, hours: float) -> None:
    trace, curves = shared_data("philly/philly_full_reconstructed.csv.gz"), shared_data("afs/afs_scaling.csv")
    figures = run_cell(cell(AfsGrid(trace=str(trace), scaling=str(curves)), policy, cluster="e13805"))
    assert figures.mean_jct_seconds / 3600.0 == pytest.approx(hours, rel=0.01)


def figures(*, hours: float) -> AfsFigures:
    return AfsFigures(
        mean_jct_seconds=3600.0 * hours,
        p99_jct_seconds=7200.0 * hours,
        makespan_seconds=1e5,
        restarts=3,
        resizes=4,
        jct_by_length_seconds=(hours, 2 * hours, 3 * hours, 4 * hours),
        queue=hours,
        efficiency=1.0 / hours,
        blocking=hours,
    )


def test_every_claim_is_measured_once_its_cells_have_run() -> None:
    own = AfsGrid(clusters=",".join(ORDER), tiresias_clusters=",".join(ORDER))
    claims = PAPER.claims(own)
    hours = {"afs_l": 10.0, "afs_p": 12.0, "srtf": 27.0, "tiresias": 36.0}
    done = {cell.key: figures(hours=hours.get(cell.policy, 18.0)) for cell in cells_of((0,), claims)}
    runs = Runs(grid=own, done=done)
    found = {claim.text: claim.measure(runs) for claim in claims}
    missing = {row[2] for group in ROWS.file.missing for row in group.rows}
    assert {text for text, one in found.items() if one.text == "-"} == missing
    srtf = found["mean JCT over AFS-L's: SRTF"]
    assert (srtf.text, srtf.verdict) == ("2.70, 2.70", Verdict.HOLDS)
    assert "one input" in srtf.reason
    assert found["mean JCT of AFS-P over AFS-L's"].text.startswith("1.20")
    assert found["mean JCT of AFS-S over AFS-P's, mean of the clusters"].verdict is Verdict.FAILS
    short = found["#9: queue length and blocking index of SRTF and SRSF over Max-Min's"]
    assert short.text.startswith("1.00") and short.verdict is Verdict.HOLDS


def test_the_greatest_ratio_over_clusters_counts_only_if_the_claim_holds() -> None:
    own = AfsGrid()
    for hours, verdict in ((27.0, Verdict.HOLDS), (15.0, Verdict.HOLDS), (9.0, Verdict.FAILS)):
        claim = next(one for one in PAPER.claims(own) if one.text == "mean JCT over AFS-L's: SRTF")
        done = {cell.key: figures(hours=hours if cell.policy == "srtf" else 10.0) for cell in claim.cells(0)}
        found = claim.measure(Runs(grid=own, done=done))
        assert found.verdict is verdict
        assert "the greatest counts only where it holds" in found.reason
    up_to = next(one for one in PAPER.claims(own) if one.printed == "4.85")
    done = {cell.key: figures(hours=11.0 if cell.policy == "srtf_max" else 10.0) for cell in up_to.cells(0)}
    assert up_to.measure(Runs(grid=own, done=done)).verdict is Verdict.UNMEASURED


def test_claims_without_runs_are_not_measured_and_a_worse_policy_fails_its_claim() -> None:
    own = AfsGrid()
    claims = PAPER.claims(own)
    empty = Runs(grid=own, done=dict[str, AfsFigures]())
    found_by = {claim.measure(empty).verdict for claim in claims if claim.figure != "App. A"}
    assert found_by == {Verdict.UNMEASURED, Verdict.NOT_MEASURABLE}
    worse = {cell.key: figures(hours=20.0 if cell.policy == "afs_l" else 10.0) for cell in cells_of((0,), claims)}
    found = {claim.text: claim.measure(Runs(grid=own, done=worse)) for claim in claims}
    for text in (
        "AFS-L is best of those that know lengths: the others' mean JCT over its",
        "AFS-L is better than SRTF-E and SRSF-E: their mean JCT over its",
    ):
        assert found[text].text.startswith("0.50") and found[text].verdict is Verdict.FAILS


def test_a_cluster_excluded_from_the_run_has_no_cells() -> None:
    claims = [claim for claim in PAPER.claims(AfsGrid(clusters="e13805")) if "on #9" in claim.text]
    assert len(claims) == 4 and [list(claim.cells(0)) for claim in claims] == [[]] * 4
    found = claims[0].measure(Runs(grid=AfsGrid(clusters="e13805"), done=dict[str, AfsFigures]()))
    assert "none of its settings is among those of the run" in found.reason


def test_a_claim_measured_with_one_seed_that_draws_models_is_undecided() -> None:
    own = AfsGrid(seeds=(1,))
    claim = next(one for one in PAPER.claims(own) if one.text == "mean JCT over AFS-L's: SRTF")
    done = {one.key: figures(hours=27.0 if one.policy == "srtf" else 10.0) for one in claim.cells(1)}
    assert {one.seed for one in claim.cells(1)} == {1}
    assert claim.measure(Runs(grid=own, done=done)).verdict is Verdict.UNDECIDED


def test_cells_have_different_names() -> None:
    own = AfsGrid()
    made = [cell(own, "afs_l", **more) for more in ({}, {"packing": True}, {"start_seconds": 30.0})]
    assert len({one.key for one in made}) == 3
    assert dataclasses.replace(made[0], trace="elsewhere").key == made[0].key
    said = PAPER.said(made[1], figures(hours=2.0))
    assert said == "afs_l, seed 0, cluster 2869ce, packing True: mean JCT 2 h, restarts 3"


def test_reconfigurations_are_restarts_plus_resizes(grid: AfsGrid) -> None:
    elastic, fixed = (run_cell(cell(grid, policy)) for policy in ("afs_p", "tiresias"))
    assert elastic.resizes > 0 and fixed.resizes == 0
    row = next(claim for claim in PAPER.claims(AfsGrid()) if claim.printed == "6.3")
    done = {
        one.key: dataclasses.replace(figures(hours=1.0), restarts=0, resizes=14 if one.policy == "afs_p" else 7)
        for one in row.cells(0)
    }
    assert row.measure(Runs(grid=AfsGrid(), done=done)).text == "2.00"


def test_the_two_jobs_of_appendix_a_run_in_turn_or_with_equal_shares() -> None:
    assert two_jobs("srtf_max") == pytest.approx((1.0, 2.5))
    assert two_jobs("max_min") == pytest.approx((2.0, 2.0))
    rows = [claim for claim in PAPER.claims(AfsGrid()) if claim.figure == "App. A"]
    found = [claim.measure(Runs(grid=AfsGrid(), done=dict[str, AfsFigures]())) for claim in rows]
    assert [(one.text, one.verdict) for one in found] == [("1.75 h", Verdict.FAILS), ("2 h", Verdict.HOLDS)]


def test_the_grid_can_set_other_clusters_for_cheap_policies_and_for_tiresias() -> None:
    own = AfsGrid(clusters="2869ce", order_clusters="0e4a51", tiresias_clusters="ed69ec")
    by_row = {claim.text: {one.cluster for one in claim.cells(0)} for claim in PAPER.claims(own)}
    assert by_row["mean JCT over AFS-P's: Tiresias-L"] == {"ed69ec"}
    assert by_row["AFS-P is best of those that do not: the others' mean JCT over its"] == {"ed69ec"}
    assert by_row["mean JCT over AFS-L's: SRTF"] == {"2869ce", "0e4a51"}
    assert by_row["traces 1, 2, 3, 5, 6, 8: mean JCT of SRTF over SRSF's"] == {"0e4a51"}
    assert by_row["AFS-L is better than SRTF-E and SRSF-E: their mean JCT over its"] == {"2869ce"}
    assert {claim.text for claim in PAPER.claims(AfsGrid(order_clusters=""))} == set(by_row)
    with pytest.raises(InputError, match=r'^order_clusters must be some of .* but got "#1" \(--set order_clusters'):
        PAPER.claims(AfsGrid(order_clusters="#1"))
    with pytest.raises(InputError, match=r'^tiresias_clusters must be some of .* but got "#9" \(--set tiresias_'):
        PAPER.claims(AfsGrid(tiresias_clusters="#9"))


def test_a_cluster_or_a_file_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r'^clusters must be some of 0e4a51, .* but got "2869cf" \(--set clusters\)'):
        PAPER.claims(AfsGrid(clusters="b436b2, 2869cf"))
    with pytest.raises(InputError, match=r"^trace must be the file of Philly's trace with models .*\(reproduce afs\)"):
        run_cell(cell(AfsGrid(trace=str(tmp_path / "none.csv")), "srtf"))


def test_the_command_measures_a_claim(grid: AfsGrid, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = [part for name in ("clusters", "trace", "scaling") for part in ("--set", f"{name}={getattr(grid, name)}")]
    out = tmp_path / "out"
    command = ["reproduce", "afs", "--seeds", "0", "--only", "fig11", *given, "-j", "1", "--out", str(out)]
    assert run([*command, "--no-progress"]) == 0
    assert "AFS-L is better than SRTF-E and SRSF-E" in capsys.readouterr().out
    (row,) = json.loads((out / "claims.json").read_text())["claims"]
    assert (row["figure"], row["verdict"]) == ("Fig 11", Verdict.HOLDS.value)
