"""``reproduce synergy``: the authors' static trace where it is, Tables 2 and 3, and that claims can be measured."""

import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from real_data import shared_data

from eunomia.arbiter import Arbiter
from eunomia.cli import run
from eunomia.contract.decisions import Decision, TransitionKind
from eunomia.contract.events import Event
from eunomia.errors import InputError
from eunomia.round.invariants import check_state
from eunomia.units import Seconds
from eunomia_testbed.reproduce.paper import Runs, cells_of
from eunomia_testbed.reproduce.recipes import run_profile
from eunomia_testbed.reproduce.synergy.cells import (
    SCHEMES,
    SynergyCell,
    SynergyFigures,
    make_cluster,
    make_workload,
    recipe_of,
    run_cell,
)
from eunomia_testbed.reproduce.synergy.jobs import STATIC, drawn, read_profiles
from eunomia_testbed.reproduce.synergy.measuring import needed_cpus
from eunomia_testbed.reproduce.synergy.paper import PAPER, ROWS, SynergyGrid, make_cell
from eunomia_testbed.reproduce.synergy.tables import DEMANDS, PLAIN, placed
from eunomia_testbed.reproduce.verdicts import Verdict


def grid() -> SynergyGrid:
    return SynergyGrid(data=str(shared_data(f"synergy/{STATIC}").parent))


def cell_of(own: SynergyGrid, name: str, seed: int, **more: object) -> SynergyCell:
    """A cell of Tune with the fields that the rows name so."""
    fields = {**ROWS.file.cells[name], "scheme": "tune", **more}
    known = {key: getattr(own, item[1:]) if str(item).startswith("@") else item for key, item in fields.items()}
    return make_cell(own, known, seed)


def static(scheme: str, order: str) -> SynergyCell:
    return cell_of(grid(), "static", 0, scheme=scheme, order=order)


@pytest.mark.parametrize(("scheme", "hours"), [("proportional", 15.25), ("greedy", 12.33), ("tune", 11.0)])
def test_the_makespan_of_the_static_trace_equals_that_of_the_simulator_of_the_authors(
    scheme: str, hours: float
) -> None:
    assert run_cell(static(scheme, "fifo")).makespan_hours == pytest.approx(hours, rel=0.03)


@pytest.mark.parametrize("scheme", ["proportional", "tune"])
def test_no_machine_of_the_static_trace_is_overcommitted_and_tune_retunes(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, retuned = Arbiter.step, 0

    def watched(arbiter: Arbiter, now: Seconds, events: Iterable[Event] = ()) -> Decision:
        nonlocal retuned
        decision = step(arbiter, now, events)
        assert decision.faults == ()
        retuned += sum(order.kind is TransitionKind.RETUNE for order in decision.transitions)
        check_state(arbiter.state)
        cluster, held = arbiter.state.cluster, arbiter.state.holdings.live
        for amounts, whole in (
            (held.cpus, cluster.machine_cpus),
            (held.cpus_in_use, cluster.machine_cpus),
            (held.memory_gib, cluster.machine_memory_gib),
            (held.memory_gib_in_use, cluster.machine_memory_gib),
        ):
            of_machines = np.bincount(cluster.machine, weights=amounts[: cluster.gpus], minlength=whole.size)
            assert np.all(of_machines <= whole * (1.0 + 1e-9))
        return decision

    monkeypatch.setattr(Arbiter, "step", watched)
    run_cell(static(scheme, "fifo"))
    assert (retuned > 0) == (scheme == "tune")


@pytest.mark.parametrize(("scheme", "hours"), [("proportional", 4.41), ("tune", 4.11)])
def test_the_mean_completion_time_under_srtf_equals_that_of_the_simulator_of_the_authors(
    scheme: str, hours: float
) -> None:
    assert run_cell(static(scheme, "srtf")).hours == pytest.approx(hours, rel=0.05)


def test_greedy_gives_j1_its_demand_like_tune_while_proportional_gives_equal_amounts() -> None:
    order = tuple(DEMANDS)
    plain = placed(PLAIN, order)
    assert {row[1:] for row in plain.values()} == {(12.0, 250.0)}
    assert placed({}, order)["J1"][1:] == pytest.approx(DEMANDS["J1"])
    greedy = placed({"stages.placement": "synergy_greedy"}, ("J1", "J4", "J2", "J3"))
    assert greedy["J1"][1:] == pytest.approx(DEMANDS["J1"])


@pytest.mark.parametrize("scheme", list(SCHEMES))
def test_every_scheme_has_a_profile(scheme: str) -> None:
    cell = SynergyCell(scheme=scheme, seed=0, data="", order="ftf", gpus=32, cpus_per_gpu=4.0)
    cluster = make_cluster(cell)
    assert cluster.machine_cpus.tolist() == [32.0] * 4
    assert run_profile(recipe_of(cell)).stages(cluster) is not None


def figures(*, hours: float) -> SynergyFigures:
    return SynergyFigures(
        mean_jct_seconds=3600.0 * hours,
        p95_jct_seconds=5400.0 * hours,
        p99_jct_seconds=1e4,
        makespan_seconds=3600.0 * hours,
        rounds=9,
        short_jct_seconds=(1800.0 * hours, 1900.0 * hours),
        long_jct_seconds=(7200.0 * hours,),
        cpu_use=0.5,
        gpu_use=0.9,
    )


def test_every_claim_is_measured_once_its_cells_have_run() -> None:
    own = SynergyGrid()
    claims = PAPER.claims(own)
    by_scheme = {"proportional": 20.0, "greedy": 30.0, "drf": 72.0, "tetris": 12.0}
    cells = cells_of(own.seeds, claims)
    done = {cell.key: figures(hours=by_scheme.get(cell.scheme, 10.0)) for cell in cells}
    runs = Runs(grid=own, done=done)
    rows = [(claim, claim.measure(runs)) for claim in claims]
    missing = {row[2] for group in ROWS.file.missing for row in group.rows}
    assert {claim.text for claim, one in rows if one.text == "-"} == missing
    by_text = {(claim.figure, claim.text): found for claim, found in rows}
    ftf = next(found for (figure, text), found in by_text.items() if text.startswith("FTF, multi"))
    assert (ftf.text, ftf.verdict) == ("2.00", Verdict.HOLDS)
    assert "chosen among 3 by this very number, so chance favours it" in ftf.reason
    drf, tetris = (found for (figure, _), found in by_text.items() if figure == "Fig 13")
    assert (drf.text, drf.verdict, tetris.text, tetris.verdict) == ("7.20", Verdict.HOLDS, "1.20", Verdict.DIRECTION)


def test_claims_without_runs_are_not_measured_and_a_worse_tune_fails_its_claim() -> None:
    own = SynergyGrid(seeds=(0,))
    claims = PAPER.claims(own)
    empty: Runs[SynergyGrid, SynergyCell, SynergyFigures] = Runs(grid=own, done={})
    unmeasured = {claim.figure for claim in claims if claim.measure(empty).verdict is Verdict.UNMEASURED}
    assert unmeasured >= {"Table 5", "Fig 7", "Fig 9", "Fig 11", "Fig 12", "Fig 13"}
    five = SynergyGrid()
    done = {cell.key: figures(hours=11.0 if cell.scheme == "tune" else 10.0) for cell in cells_of(five.seeds, claims)}
    worse = Runs(grid=five, done=done)
    found = next(one.measure(worse) for one in PAPER.claims(five) if "as good as proportional" in one.text)
    assert (found.text, found.verdict) == ("0.91, 0.91, 0.91", Verdict.FAILS)


def test_cells_equal_those_of_the_paper() -> None:
    own = SynergyGrid()
    claim = next(one for one in PAPER.claims(own) if one.printed == "15.67 h")
    assert {cell.seed for cell in claim.cells(0)} == {0} and list(claim.cells(3)) == []
    assert cell_of(own, "multi", 1, split=[0.5, 0.0, 0.5]).split == (0.5, 0.0, 0.5)
    assert cell_of(own, "single", 0, order="las").key != cell_of(own, "single", 0, order="srtf").key
    assert [one["jobs_per_hour"] for one in own.highest_load] == [9.0]


def test_loads_near_capacity_are_fractions_of_the_gpu_capacity() -> None:
    own = SynergyGrid()
    found = {one["label"]: one["jobs_per_hour"] for one in own.near_capacity}
    assert found == {"load 0.8": 8.624, "load 0.9": 9.703, "load 1": 10.781, "load 1.1": 11.859}
    work = drawn(grid().data, 20_000, 10.781, (0.2, 0.7, 0.1), (1.0, 0.0, 0.0, 0.0, 0.0), 0.177, 99).jobs
    hours = float((work.iterations * work.seconds_per_iteration).sum()) / 3600.0
    assert hours / float(work.arrival_seconds[-1] / 3600.0) == pytest.approx(32.0, rel=0.02)
    with pytest.raises(InputError, match=r"^near_loads must be parts of the capacity above 0, .*got \"0.8,-1\""):
        _ = SynergyGrid(near_loads="0.8,-1").near_capacity


def test_cpu_use_of_a_job_follows_from_its_speed() -> None:
    profiles = read_profiles(grid().data)
    work = make_workload(cell_of(grid(), "dynamic", 0))
    jobs = np.arange(work.size)
    memory = [float(profiles.amounts(work.models[at])[1][-1]) for at in work.jobs.model]
    for cpus in (1.0, 3.0):
        speed = [
            profiles.demand(work.models[at]).seconds_per_iteration / profiles.relative(work.models[at], cpus, most)
            for at, most in zip(work.jobs.model, memory, strict=True)
        ]
        needed = needed_cpus(work, profiles, jobs, np.array(speed))
        assert np.all(needed <= cpus + 1e-9) and np.all(needed > 0.0)
        image = [work.models[at].startswith(("res", "alex", "shuffle", "mobile")) for at in work.jobs.model]
        assert needed[image].mean() > 2.0 * needed[~np.array(image)].mean() or cpus == 1.0
        again = [
            profiles.relative(work.models[at], each, most)
            for at, each, most in zip(work.jobs.model, needed.tolist(), memory, strict=True)
        ]
        base = [profiles.demand(work.models[at]).seconds_per_iteration for at in work.jobs.model]
        assert np.array(again) == pytest.approx(np.array(base) / np.array(speed))


def test_tune_uses_more_cpus_than_proportional_and_at_most_all() -> None:
    small = {"jobs": 30, "warmup_jobs": 30, "jobs_per_hour": 2.0, "gpus": 16, "scheme": "proportional"}
    cell = cell_of(grid(), "single", 1, **small)
    proportional, tune = (run_cell(dataclasses.replace(cell, scheme=name)) for name in ("proportional", "tune"))
    assert 0.0 < proportional.cpu_use < tune.cpu_use <= 1.0
    assert 0.5 < tune.gpu_use <= 1.0 + 1e-9
    assert len(tune.short_jct_seconds) + len(tune.long_jct_seconds) == 30
    assert max(tune.long_jct_seconds) >= tune.p99_jct_seconds >= tune.p95_jct_seconds > tune.mean_jct_seconds


def test_invalid_loads_are_refused() -> None:
    assert SynergyGrid(loads="9, 5").loads_of(multi=False) == (5.0, 9.0)
    for text in ("", "5,x", "0,5", "nan", "inf"):
        with pytest.raises(InputError, match=r"^multi_loads must be jobs an hour above 0, such as"):
            SynergyGrid(multi_loads=text).loads_of(multi=True)


def test_jobs_drawn_from_a_range_of_the_philly_trace_keep_their_durations() -> None:
    own = grid()
    trace = str(shared_data("philly/philly_full_reconstructed.csv.gz"))
    cell = cell_of(dataclasses.replace(own, trace=trace, philly_jobs=50), "philly", 3)
    work = make_workload(cell)
    assert work.size == 50
    assert work.jobs.arrival_seconds[0] == 0.0
    assert set(work.models) > {"gnmt", "res50"}
    assert work.jobs.id[0] == "ph092000/0"
    with pytest.raises(InputError, match=r"^the range must be within the 109532 jobs of the trace"):
        make_workload(dataclasses.replace(cell, first=109_500))
    with pytest.raises(InputError, match=r"^trace must be the file of Philly's trace, which Figure 6 needs"):
        make_workload(dataclasses.replace(cell, trace="there/is/none.csv"))


def test_durations_of_the_dynamic_trace_are_scaled() -> None:
    cell = cell_of(grid(), "dynamic", 0)
    short, whole = make_workload(cell), make_workload(dataclasses.replace(cell, times=1.0))
    assert short.jobs.iterations.sum() == pytest.approx(0.177 * whole.jobs.iterations.sum(), rel=1e-3)


def test_missing_profiles_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^data must be the folder with Synergy's profiles"):
        read_profiles(str(tmp_path))


def test_the_command_prints_the_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert run(["reproduce", "synergy", "--only", "Table 2", "--only", "Table 3", "--out", str(out)]) == 0
    assert "orders of arrival: 24" in capsys.readouterr().out
    rows = json.loads((out / "claims.json").read_text())
    assert "holds" in json.dumps(rows)
