"""The plan of a replay: which jobs run for how long, what is cut by which rule, and what is refused before a run."""

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from replay_lab import JOBS, flags_of, measurements, write_trace

from eunomia.errors import InputError
from eunomia.platform.profiles import Profile
from eunomia_appmaster.app.app_file import AppFile
from eunomia_appmaster.node import local_machine
from eunomia_appmaster.node.local_machine import usable_cpus
from eunomia_testbed.performance.replay_profiles import Costs, Measurements, Profiles, ProgramRate
from eunomia_testbed.replay.app_files import app_file
from eunomia_testbed.replay.budget import BudgetForecast, check_budget, speed_for
from eunomia_testbed.replay.draft import Draft
from eunomia_testbed.replay.preparing import PreparedReplay, prepared
from eunomia_testbed.replay.scaling import Factors, scaled_profile, speed_of
from eunomia_testbed.replay.slots import slots_of
from eunomia_testbed.replay.twin import TwinFigures


def ready(folder: Path, jobs: tuple[str, ...] = JOBS, **more: object) -> PreparedReplay:
    write_trace(folder, jobs)
    return prepared(flags_of(folder, **more), lambda draft: measurements(*draft.slots.speeds))


def test_a_job_takes_the_traces_length_divided_by_the_speed(tmp_path: Path) -> None:
    plan = ready(tmp_path).plan
    apps = {app.name: app for app in plan.apps}
    # 600 s at 100x are 6 s at 10 iterations/s, and at 16/s on the gang of two (1,000 s: 10 s)
    assert apps["job0"].iterations == 60
    assert apps["job2"].iterations == 160
    assert apps["job3"].arrives_at_seconds == pytest.approx(6.0)
    assert [app.user for app in plan.apps[:3]] == ["u0", "u1", "u0"]
    assert plan.workload.jobs.iterations.tolist() == [app.iterations for app in plan.apps]


def test_a_model_has_its_program_and_the_batch_size_is_kept(tmp_path: Path) -> None:
    app = ready(tmp_path).plan.apps[0]
    assert app.program == "mlp"
    assert app.batch_size == 64
    assert app.why_stand_in
    text = app_file(app, tmp_path).text
    assert "--batch-size=64" in text
    assert "max_iterations = 60" in text
    assert 'user = "u0"' in text


def test_stand_ins_are_refused_where_they_are_forbidden(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="stand-ins are forbidden, but got A3C"):
        ready(tmp_path, no_stand_ins=True)


def test_a_wide_job_is_cut_and_listed_with_its_rule(tmp_path: Path) -> None:
    jobs = (*JOBS, "wide,u0,2000,8,600,1.0,A3C,64", "tiny,u0,2100,1,20,1.0,A3C,64")
    made = ready(tmp_path, jobs)
    assert len(made.plan.apps) == len(JOBS)
    cut = {each.value.rpartition("job ")[2]: each.rule for each in made.plan.workload.dropped}
    assert cut["wide/0"].startswith("a job's gang must fit the slots")
    assert cut["tiny/0"].startswith("a job must have at least 5 iterations")


def test_gangs_are_divided_by_their_factor(tmp_path: Path) -> None:
    jobs = tuple(row.replace(",1,", ",8,", 1).replace(",2,", ",16,", 1) for row in JOBS)
    made = ready(tmp_path, jobs, gangs=8)
    assert sorted({app.most for app in made.plan.apps}) == [1, 2]
    assert "gangs 1:8" in made.plan.factors.words()


def test_a_workload_that_fits_at_no_scale_is_refused_with_a_factor_that_would_do(tmp_path: Path) -> None:
    jobs = tuple(row.replace(",1,", ",8,", 1).replace(",2,", ",16,", 1) for row in JOBS)
    with pytest.raises(
        InputError, match="must fit the slots at some scale, but got gangs of at least 8 for 4 slots; --gangs 2"
    ):
        ready(tmp_path, jobs)
    with pytest.raises(InputError, match="none of 10 jobs does; the first: a job must have at least 5 iterations"):
        ready(tmp_path, speed="1000000x")


def test_a_budget_that_is_too_small_is_refused_with_what_would_do(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"fit the budget of 10s, but got \d+\.?\d*s under default; --budget (\d+)s or --speed"
    ):
        ready(tmp_path, budget="10s", anyway=True)
    made = ready(tmp_path, budget="40s", anyway=True)
    assert made.forecast.longest.makespan_seconds < 40.0


def test_without_a_speed_the_budget_is_filled(tmp_path: Path) -> None:
    made = ready(tmp_path, speed=None, budget="2m")
    assert 0.5 * 120 < made.forecast.longest.makespan_seconds <= 120.0


def test_costs_over_a_quarter_are_refused_with_what_would_do(tmp_path: Path) -> None:
    dear = measurements("cpu", costs=Costs(start_seconds=5.0))
    write_trace(tmp_path)
    (tmp_path / "profiles.toml").write_text(dear.to_toml())
    with pytest.raises(InputError, match="at most 25% of the slot time") as refused:
        prepared(flags_of(tmp_path), lambda _: dear)
    speed = str(refused.value).rpartition("--speed ")[2].partition("x")[0]
    made = prepared(flags_of(tmp_path, speed=f"{speed}x", budget="1h"), lambda _: dear)
    assert made.forecast.dearest.cost_share <= 0.26
    assert prepared(flags_of(tmp_path, anyway=True), lambda _: dear).forecast.dearest.cost_share > 0.25


def test_times_of_a_policy_are_scaled_and_bounds_on_processes_are_not() -> None:
    scaled = scaled_profile(Profile.load("themis"), Factors(time=100.0))
    assert scaled.profile.rounds.lease == 6.0
    assert scaled.profile.rounds.bid_deadline == 2.0
    assert scaled.profile.rounds.suspend_grace == 30.0
    assert scaled.changes == ("rounds.lease 10m -> 6s",)
    afs = scaled_profile(Profile.load("afs_p"), Factors(time=100.0)).profile
    assert 'unit = "72000ms"' in afs.resolved() or 'unit = "1m12s"' in afs.resolved()
    tiresias = scaled_profile(Profile.load("tiresias"), Factors(time=100.0)).profile
    assert "queues = [36.0]" in tiresias.resolved()


@pytest.mark.parametrize("text", ["200", "x", "0.5x", "-3x", "nanx", "fast"])
def test_a_speed_is_a_number_and_an_x(text: str) -> None:
    with pytest.raises(InputError, match="speed must be a number of at least 1 and an x"):
        speed_of(text)


def test_paced_slots_named_cpu_have_a_type_that_says_their_pace() -> None:
    slots = slots_of("2x cpu:0.2")
    assert slots.speeds == {"cpu-0.2": 0.2}
    assert slots.cluster.gpu_types == ("cpu-0.2",)
    assert slots_of("2x cpu:0.2", paced=False).speeds == {"cpu": 0.0}
    mixed = slots_of("1x fast:0.2, 1x slow:0.1")
    assert mixed.cluster.gpus == 2
    assert mixed.speeds == {"fast": 0.2, "slow": 0.1}


def test_a_run_on_some_of_the_gpus_has_those_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    found = tuple(local_machine.FoundGpu(gpu_type="A100", uuid=f"GPU-{name}", island=0) for name in "abcd")
    monkeypatch.setattr(local_machine, "find_gpus", lambda: found)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,2,3")
    slots = slots_of("gpu:0, gpu:2")
    assert [slot.uuid for slot in slots.machine.slots] == ["GPU-b", "GPU-d"]
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "1,2,3"
    slots.choose(os.environ)
    assert [slot.uuid for slot in local_machine.detect().slots] == ["GPU-b", "GPU-d"]


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (f"9x cpu:{0.3 + usable_cpus() / 9:.2f}", "the speeds of all slots together must be at most"),
        ("gpu:97", "slots must exist on this machine"),
        ("4 cpu", "slots must look like"),
        ("2x fast:0.1, 2x slow", "slots of several types must each have a pace"),
        ("0x cpu", "slots must be from 1"),
    ],
)
def test_slots_that_there_are_not_are_refused(text: str, rule: str) -> None:
    with pytest.raises(InputError, match=rule) as refused:
        slots_of(text)
    assert refused.value.place == "--slots"


def test_elastic_jobs_keep_their_range(tmp_path: Path) -> None:
    made = ready(
        tmp_path, tuple(row.replace(",2,", ",1,", 1) for row in JOBS), policies=["afs_p"], elastic="1..4", anyway=True
    )
    assert {(app.least, app.most) for app in made.plan.apps} == {(1, 4)}
    assert "slots = { min = 1, max = 4 }" in app_file(made.plan.apps[0], tmp_path).text


ELASTIC = tuple(row.replace(",2,", ",1,", 1) for row in JOBS)
"""The same jobs, each on one slot: ``--elastic`` gives all of them sizes."""


@pytest.mark.parametrize("way", ["restart", "live"])
def test_jobs_of_several_sizes_change_live_where_it_is_asked_for(tmp_path: Path, way: str) -> None:
    made = ready(tmp_path, ELASTIC, policies=["afs_p"], elastic="1..4", anyway=True, resizes=way)
    text = app_file(made.plan.apps[0], tmp_path).text
    assert ('elastic = "live"' in text, made.plan.live) == (way == "live", way == "live")
    assert 'kind = "mlp-b64"' in text
    assert AppFile.parse(text, folder=tmp_path, place="job0").job.elastic == way
    assert any("is not in the profiles" in note for note in made.notes) == (way == "live")
    settings = [(each.program, each.slots) for each in made.draft.needed_changes()]
    assert settings == ([("mlp", 4)] if way == "live" else [])


def test_live_changes_of_gangs_of_one_size_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"must have several sizes .--elastic 1..4 gives them."):
        ready(tmp_path, resizes="live")


def test_the_way_of_resizes_is_kept_for_a_replay_that_goes_on(tmp_path: Path) -> None:
    flags = flags_of(tmp_path, resizes="live")
    assert flags_of(tmp_path).again(flags.kept()).resizes == "live"
    older = {name: item for name, item in flags.kept().items() if name != "resizes"}
    assert flags.again(older).resizes == "restart"


def test_names_of_apps_differ_and_are_valid(tmp_path: Path) -> None:
    jobs = tuple(f"{name},{row.partition(',')[2]}" for row, name in zip(JOBS, ("a b", "a-b"), strict=False))
    assert [app.name for app in ready(tmp_path, jobs).plan.apps] == ["a-b", "a-b-x"]


def test_profiles_of_slots_that_lacked_their_pace_are_noted(tmp_path: Path) -> None:
    write_trace(tmp_path)
    notes = []
    for pace in (0.6, 0.97):
        measured = dataclasses.replace(measurements("cpu"), pace=pace)
        notes.append(" ".join(prepared(flags_of(tmp_path, profiles=None), lambda _, found=measured: found).notes))
    assert "had 60.0% of their pace" in notes[0]
    assert "of their pace" not in notes[1]


def test_profiles_of_another_machine_are_refused_unless_given_anyway(tmp_path: Path) -> None:
    write_trace(tmp_path)
    path = tmp_path / "profiles.toml"
    path.write_text(dataclasses.replace(measurements("cpu"), machine="64 cores of another").to_toml())
    with pytest.raises(InputError, match='machine "64 cores of another", here "'):
        prepared(flags_of(tmp_path), lambda _: measurements("cpu"))
    assert prepared(flags_of(tmp_path, anyway=True), lambda _: measurements("cpu")).plan.apps


def measured_for(draft: Draft) -> Measurements:
    """Return rates in all settings that a draft needs, ten iterations a second in each."""
    rates = tuple(
        ProgramRate(
            program=each.program,
            batch_size=each.batch_size,
            slots=each.slots,
            slot_type=each.slot_type,
            iterations_per_second=10.0,
        )
        for each in draft.needed()
    )
    return dataclasses.replace(measurements("cpu"), profiles=Profiles(rates=rates, slot_speeds={"cpu": 0.0}))


def test_a_search_of_the_trace_stays_one_app_with_its_tuner(tmp_path: Path) -> None:
    settings = ["themis2.apps=3", "themis2.days=0.2", "themis2.most_gpus=2", "themis2.most_demand=8"]
    of_searches = {"workload": "themis2", "settings": settings, "speed": "600x", "budget": "2h", "anyway": True}
    flags = flags_of(tmp_path, trace=None, **of_searches).model_copy(update={"profiles": None})
    plan = prepared(flags, measured_for).plan
    searches = [app for app in plan.apps if app.trials > 1]
    assert searches
    for app in searches:
        parsed = AppFile.parse(app_file(app, tmp_path).text, folder=tmp_path, place=app.name)
        assert parsed.tuner.kind == "successive_halving"
        assert parsed.search.trials == app.trials
    assert set(plan.workload.searches) >= {number for number, app in enumerate(plan.apps) if app.trials > 1}


def test_a_job_that_adapts_keeps_its_mode_and_its_batch_sizes(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text(
        "job,arrival_seconds,most_gpus,iterations,model,batch_size,adaptation,regimes\n"
        'job0,0,1,1500,ResNet-18,32,accordion,"[[1000, 32, 1.0], [500, 128, 2.0]]"\n'
    )
    flags = flags_of(tmp_path, anyway=True).model_copy(update={"profiles": None})
    plan = prepared(flags, measured_for).plan
    app = plan.apps[0]
    # 1,000 s in each regime are 10 s at 100x, at ten iterations a second
    assert [(part.iterations, part.batch_size) for part in plan.workload.regimes[0]] == [(100, 32), (100, 128)]
    assert app.iterations == 200
    assert "--mode=accordion --largest-batch=128" in app.command
    assert AppFile.parse(app_file(app, tmp_path).text, folder=tmp_path, place="job0").job.adapts == "accordion"


def test_the_search_for_a_speed_ends_where_a_faster_run_takes_longer() -> None:
    tried = []

    def makespan(speed: float) -> float:
        tried.append(speed)
        return 12_000.0 / speed + 2.0 * speed  # at least 310 s, at 77x

    assert speed_for(240.0, 46.0, makespan) == min(tried, key=lambda speed: 12_000.0 / speed + 2.0 * speed)
    assert len(tried) < 5
    assert makespan(speed_for(400.0, 10.0, makespan)) <= 400.0
    assert 12_000.0 / speed_for(400.0, 200.0, lambda speed: 12_000.0 / speed) <= 400.0


@pytest.mark.parametrize(("costs", "advice"), [(0.1, r"--budget 6m or --speed 67x"), (0.5, r"--budget 6m would do")])
def test_a_run_that_is_too_long_is_refused_with_what_would_do(costs: float, advice: str) -> None:
    figures = TwinFigures(
        policy="las", makespan_seconds=300.0, useful_slot_seconds=1.0 - costs, cost_slot_seconds=costs
    )
    forecast = BudgetForecast(speed=40.0, budget_seconds=200.0, runs=1, figures=(figures,))
    with pytest.raises(InputError, match=advice):
        check_budget(forecast, anyway=True)


def test_an_existing_folder_is_refused_before_anything_is_measured(
    tmp_path: Path, run: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eunomia_testbed.replay.command._measured", lambda *_: pytest.fail("it was measured"))
    write_trace(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").touch()
    said = run("replay", "trace.csv", "--policy", "fifo", "--slots", "4x cpu", "--out", "out", check=2)
    assert "--out must name a new folder" in said
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["notes.txt"]
