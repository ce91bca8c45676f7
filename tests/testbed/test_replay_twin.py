"""The simulation of a replay knows the plan, rates and costs, and nothing of the real run."""

import dataclasses
import inspect
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from replay_lab import JOBS, flags_of, measurements, write_trace

from eunomia_testbed.metrics.times_alone import judge_apps
from eunomia_testbed.performance.replay_profiles import Costs, Profiles
from eunomia_testbed.replay import twin
from eunomia_testbed.replay.causes import NO_DECISIONS, Cause, slot_time
from eunomia_testbed.replay.fidelity import MAKESPAN, mean_figures
from eunomia_testbed.replay.plan import ReplayPlan
from eunomia_testbed.replay.preparing import PreparedReplay, prepared
from eunomia_testbed.replay.resize_figures import resize_figures
from eunomia_testbed.results.run_data import RunData
from eunomia_testbed.run_log.log import AppLog, Arrivals, RunLog

ARRIVALS = Arrivals(**{field.name: None for field in dataclasses.fields(Arrivals)})


def made_ready(folder: Path, **more: object) -> PreparedReplay:
    write_trace(folder)
    return prepared(flags_of(folder, **more), lambda draft: measurements(*draft.slots.speeds))


def test_the_simulation_takes_plan_profiles_and_costs_alone() -> None:
    taken = inspect.signature(twin.simulate_plan, eval_str=True).parameters
    assert {name: each.annotation for name, each in taken.items()} == {
        "plan": ReplayPlan,
        "profiles": Profiles,
        "costs": Costs,
        "folder": Path,
    }


def test_the_simulation_imports_nothing_that_reads_a_real_run() -> None:
    script = "import sys, eunomia_testbed.replay.twin; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    readers = {"live_runs.record", "live_runs.tables", "live_runs.live_run", "replay.running", "replay.results"}
    assert not {f"eunomia_testbed.{name}" for name in readers} & set(found)
    assert "eunomia_appmaster.explaining.activity" not in found


def test_equal_plans_give_equal_tables(tmp_path: Path) -> None:
    ready = made_ready(tmp_path, policies=["default", "las"], repeats=2, anyway=True)
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        twin.simulate_plan(ready.plan, ready.measured.profiles, ready.costs, folder)
    names = sorted(path.name for path in folders[0].glob("*.parquet") if path.name != "timings.parquet")
    assert "apps.parquet" in names
    for name in names:
        assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes(), name


def test_a_job_takes_its_start_and_its_iterations_at_the_measured_rate(tmp_path: Path) -> None:
    ready = made_ready(tmp_path)
    twin.simulate_plan(ready.plan, ready.measured.profiles, ready.costs, tmp_path / "run")
    jobs = {row["job"]: row for row in RunData.load(tmp_path / "run").jobs.iter_rows(named=True)}
    first = jobs["job0"]
    assert first["iterations"] == 60
    assert first["jct_seconds"] == pytest.approx(0.5 + 60 / 10.0)
    assert all(row["state"] == "finished" for row in jobs.values())


PAID = Costs(start_seconds=0.5, save_seconds=0.25, restore_seconds=0.25, pause_seconds=0.125, join_seconds=1.0)


@pytest.mark.parametrize(("way", "stands"), [("live", 0.125), ("restart", 0.25 + 0.5 + 0.25)])
def test_a_job_that_grows_pays_for_its_way_of_changing(tmp_path: Path, way: str, stands: float) -> None:
    """Two jobs have two slots each of four; at the end of the short one, the long one gets all."""
    write_trace(tmp_path, ("long,u0,0,1,2000,1.0,A3C,64", "short,u1,0,1,200,1.0,A3C,64"))
    flags = flags_of(tmp_path, policies=["max_min"], elastic="1..4", resizes=way, anyway=True)
    ready = prepared(flags, lambda draft: measurements(*draft.slots.speeds))
    data = twin.simulate_plan(ready.plan, ready.measured.profiles, PAID, tmp_path / "run")
    time = slot_time(data, "max_min", 0)
    figures = resize_figures(data, "max_min", 0, NO_DECISIONS, time)
    assert (figures.jobs, figures.resizes) == (2, 1)
    assert figures.still_seconds == pytest.approx(stands)
    jobs = {row["job"]: row for row in data.jobs.iter_rows(named=True)}
    assert (jobs["long"]["resizes"], jobs["long"]["restarts"]) == (1, int(way == "restart"))
    # the two new slots wait for the newcomers as well, the others for the change alone
    waits = 1.0 if way == "live" else 0.0
    assert time.seconds(Cause.RESIZE) == pytest.approx(4 * stands + 2 * waits)
    rates = {slots: 10.0 * rate for slots, rate in ((2, 1.6), (4, 2.0))}
    grows = jobs["short"]["finish_seconds"] + waits
    left = jobs["long"]["iterations"] - rates[2] * (grows - 0.5)
    assert jobs["long"]["finish_seconds"] == pytest.approx(grows + stands + left / rates[4])
    assert twin.figures_of(data)[0].cost_slot_seconds == pytest.approx(4 * 0.5 + time.seconds(Cause.RESIZE))


def test_costs_are_those_of_the_plans_programs(tmp_path: Path) -> None:
    ready = made_ready(tmp_path)
    assert twin.costs_of_plan(ready.plan, ready.measured).start_seconds == pytest.approx(0.5)
    other = dataclasses.replace(ready.measured, program_costs={"mlp": Costs(start_seconds=2.0)})
    assert twin.costs_of_plan(ready.plan, other).start_seconds == pytest.approx(2.0)


@pytest.mark.parametrize("least_slots", [1, 2])
def test_real_apps_are_judged_by_the_definitions_and_the_times_of_the_simulation(
    tmp_path: Path, least_slots: int
) -> None:
    """Gangs of four with batch size 128 are measured from ``least_slots`` on."""
    wide = tuple(f"wide{number},u0,{150 + 300 * number},4,{500 + 50 * number},1.0,A3C,128" for number in range(3))
    write_trace(tmp_path, (*JOBS[:5], *wide))
    given = measurements("cpu", "cpu-0.2", "fast", "slow").profiles
    rates = tuple(rate for rate in given.rates if rate.batch_size == 64 or rate.slots >= 2 * least_slots - 1)
    profiles = dataclasses.replace(given, rates=rates)
    ready = prepared(flags_of(tmp_path), lambda _: measurements("cpu"))
    data = twin.simulate_plan(ready.plan, profiles, ready.costs, tmp_path / "run")
    alone = twin.times_alone(ready.plan, profiles, ready.costs)
    judged = judge_apps(log_of(data), alone, ready.plan.cluster.gpus)
    for field in dataclasses.fields(judged):
        mine, simulated = getattr(judged, field.name), data.apps[field.name].to_numpy()
        assert np.isfinite(mine).all()
        assert mine == pytest.approx(simulated, rel=1e-6), field.name


def log_of(data: RunData) -> RunLog:
    """Return the log of a run whose apps have one job each, from its tables."""
    apps, jobs = data.apps, data.jobs
    assert apps["app"].to_list() == jobs["job"].to_list()
    none = [None] * apps.height
    return RunLog(
        apps=apps["app"].to_list(),
        jobs=jobs["job"].to_list(),
        cluster=None,
        arrivals=dataclasses.replace(
            ARRIVALS,
            app=np.arange(jobs.height),
            state=jobs["state"].to_list(),
            arrival_seconds=jobs["arrival_seconds"].to_list(),
            finish_seconds=jobs["finish_seconds"].to_list(),
            iterations=jobs["iterations"].to_list(),
        ),
        app_log=AppLog(
            user=none,
            tuner=none,
            weight=none,
            state=apps["state"].to_list(),
            jobs=none,
            arrival_seconds=apps["arrival_seconds"].to_list(),
            finish_seconds=apps["finish_seconds"].to_list(),
            jct_seconds=apps["jct_seconds"].to_list(),
            slot_seconds=none,
        ),
        leases=None,  # type: ignore[arg-type]
        rounds=None,  # type: ignore[arg-type]
        waits=None,  # type: ignore[arg-type]
        activity=None,  # type: ignore[arg-type]
    )


def test_seeds_draw_how_fast_jobs_are_by_the_measured_spread(tmp_path: Path) -> None:
    ready = made_ready(tmp_path, policies=["las"])
    assert twin.with_draws(ready.plan, ready.measured.profiles) is ready.plan
    rates = tuple(dataclasses.replace(rate, samples=3, spread=0.1) for rate in ready.measured.profiles.rates)
    profiles = dataclasses.replace(ready.measured.profiles, rates=rates)
    assert profiles.spread == pytest.approx(0.1)
    assert profiles.without_spread().spread == 0.0
    plan = twin.with_draws(ready.plan, profiles)
    assert plan.seeds == tuple(range(twin.DRAWS))
    data = twin.simulate_plan(plan, profiles, ready.costs, tmp_path / "run")
    ran = data.jobs["run_seconds"].to_numpy().reshape(twin.DRAWS, -1)
    alone = twin.simulate_plan(ready.plan, profiles.without_spread(), ready.costs, tmp_path / "one")
    factors = np.log(ran / alone.jobs["run_seconds"].to_numpy())
    assert 0.08 < factors.std() < 0.12
    assert len(set(ran[:, 0])) == twin.DRAWS
    mean = mean_figures(data, "las")
    makespans = data.apps.group_by("seed").agg(pl.col("finish_seconds").max())["finish_seconds"].to_numpy()
    assert mean.figures[MAKESPAN] == pytest.approx(makespans.mean())
    assert mean.deviations[MAKESPAN] == pytest.approx(makespans.std(ddof=1))
