"""The truth: how fast jobs are, what app masters say of it, and that no plugin sees it."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from tests.testbed.simulator_lab import AfterStep, runs, watched

from eunomia.errors import InputError, PluginError
from eunomia.model.cluster import Cluster
from eunomia.platform.profiles import Profile
from eunomia.platform.registry import Registry
from eunomia.round.show import show
from eunomia.units import Locality
from eunomia_testbed.performance import Setting
from eunomia_testbed.simulator import (
    Failures,
    Outage,
    Reports,
    SimulationOptions,
    SimulationState,
    assemble,
    simulate_one,
)
from eunomia_testbed.simulator.progress.truth import NO_TIME, UNKNOWN_SPEED
from eunomia_testbed.workload import Regime

TWO = Cluster.parse("2x2 V100")


class Halved:
    """A performance model: twice as slow over machines, thrice as slow on a K80, which runs no "big"."""

    models = ("net", "big")

    def rate(self, model: str, setting: Setting) -> float:
        if model == "big" and setting.gpu_type == "K80":
            return 0.0
        slow = 2.0 if setting.locality >= Locality.RACK else 1.0
        return setting.gpus / (slow * (3.0 if setting.gpu_type == "K80" else 1.0) * 4.0)


def test_a_gang_over_several_machines_is_slower() -> None:
    # a and b leave one GPU free on each machine: c runs over both, at half its speed.
    workload = runs([(0.0, 1, 9.0), (0.0, 1, 9.0), (1.0, 2, 10.0)], models=["net"] * 3)
    run = watched(workload, TWO, Profile.load("fifo", settings={"stages.placement": "spread"}), models=Halved())
    assert run.finish_seconds.tolist() == [9.0, 9.0, 21.0]
    assert run.ideal_seconds.tolist() == [9.0, 9.0, 10.0]


def test_the_performance_model_gives_speeds_that_the_workload_lacks() -> None:
    workload = runs([(0.0, 1, 10.0), (0.0, 1, 10.0)], models=["net", "big"], gpu_type=["K80", "V100"])
    untold = dataclasses.replace(
        workload, jobs=dataclasses.replace(workload.jobs, seconds_per_iteration=np.full(2, np.nan))
    )
    run = watched(untold, "1x1 K80, 1x1 V100", "fifo", models=Halved())
    assert run.finish_seconds.tolist() == run.ideal_seconds.tolist() == [120.0, 40.0]


def test_a_job_that_can_run_nowhere_on_the_cluster_is_rejected() -> None:
    workload = runs([(0.0, 1, 10.0), (0.0, 1, 10.0)], models=["net", "big"])
    run = watched(workload, "1x1 K80", "fifo", models=Halved())
    assert run.state.tolist() == ["finished", "rejected"]
    assert run.dropped[0].rule == UNKNOWN_SPEED


def test_a_job_placed_where_it_makes_no_progress_is_reported() -> None:
    """A policy that looks at no type puts it on the K80: nobody moves it, and the run says so."""
    workload = runs([(0.0, 1, 10.0)], models=["big"], reference_type="V100")
    run = watched(workload, "1x1 K80, 1x1 V100", "fifo", models=Halved())
    if run.leases.gpu.tolist() == [0]:
        assert run.state.tolist() == ["rejected"]
        assert run.dropped[0].rule == "fifo must put a job where it makes progress"
    else:
        assert run.state.tolist() == ["finished"]


def test_a_time_on_a_type_that_cannot_run_the_model_is_refused() -> None:
    """The speeds say that "big" cannot have run on the K80 of its times: nothing scales them to the V100."""
    workload = runs([(0.0, 1, 10.0)] * 2, models=["big", "net"], reference_type="k80")
    run = watched(workload, "1x1 K80, 1x1 V100", "fifo", models=Halved())
    assert run.state.tolist() == ["rejected", "finished"]
    assert run.dropped[0].rule == NO_TIME


def test_times_on_a_type_that_the_cluster_lacks_are_scaled() -> None:
    """10 s on a V100 are 30 s on a K80, which is all that the cluster has."""
    run = watched(runs([(0.0, 1, 10.0)], models=["net"], reference_type="V100"), "1x1 K80", "fifo", models=Halved())
    assert run.finish_seconds.tolist() == [30.0]


def test_the_type_of_a_time_is_never_inferred_from_the_cluster() -> None:
    timed = runs([(0.0, 1, 10.0)], models=["net"])
    with pytest.raises(InputError, match="must say on which GPU type they were measured"):
        watched(timed, "3x1 K80, 1x1 V100", "fifo", models=Halved())
    jobs = dataclasses.replace(timed.jobs, measured_on=["V100"])
    run = watched(dataclasses.replace(timed, jobs=jobs), "3x1 K80", "fifo", models=Halved())
    assert run.finish_seconds.tolist() == [30.0]


def test_a_model_without_given_speeds_is_refused_unless_speeds_are_assumed() -> None:
    other = runs([(0.0, 1, 10.0)], models=["other"])
    with pytest.raises(InputError, match=r'model must be one that is known: net, big, but got "other"'):
        watched(other, "1x1 K80", "fifo", models=Halved())
    for assumed, ends in ((None, 10.0), ("net", 30.0)):
        workload = dataclasses.replace(other, assumed_speeds={"other": assumed}, reference_type="V100")
        assert watched(workload, "1x1 K80", "fifo", models=Halved()).finish_seconds.tolist() == [ends]


class ByBatch(Halved):
    """A step takes as long as its batch is large."""

    def rate(self, model: str, setting: Setting) -> float:
        return super().rate(model, setting) / (setting.batch_size or 1.0)


def test_a_later_batch_size_does_not_reuse_the_time_of_the_first() -> None:
    """10 steps of 1 s at batch 32; at batch 64, for which the trace has no time, 10 steps take 2 s each."""
    regimes = {0: (_regime(10, 32, 1.0), _regime(10, 64, np.nan))}
    workload = runs([(0.0, 1, 20.0)], models=["net"], regimes=regimes, batch_size=np.array([32.0]))
    assert watched(workload, "1x1 V100", "fifo", models=ByBatch()).finish_seconds.tolist() == [30.0]
    with pytest.raises(InputError, match=r"must have a time at each .* but got none at batch size 64 \(tiny, job"):
        watched(workload, "1x1 V100", "fifo")


def test_regimes_change_the_speed_and_are_announced() -> None:
    # 10 iterations of 1 s, 10 of 0.5 s, 4 of 2 s; a is stopped for b from 12 to 15, in its second regime.
    regimes = {0: (_regime(10, 32, 1.0), _regime(10, 64, 0.5), _regime(4, 128, 2.0))}
    workload = runs([(0.0, 1, 24.0), (12.0, 1, 3.0)], regimes=regimes)
    seen: list[tuple[float, float]] = []

    def watch(sim: SimulationState, decision: object) -> None:
        jobs = sim.arbiter.state.jobs.live
        row = sim.arbiter.state.job_row(sim.rows.job_ids[0])
        if row >= 0 and (not seen or seen[-1][1] != jobs.batch_size[row]) and jobs.batch_size[row] > 0:
            seen.append((sim.now, float(jobs.batch_size[row])))

    engine = assemble(
        workload, Cluster.parse("1x1 V100"), Profile.load("srtf"), SimulationOptions(), observers=[AfterStep(watch)]
    )
    run = engine.run()
    assert run.finish_seconds.tolist() == [26.0, 15.0]
    assert seen == [(10.0, 64.0), (18.0, 128.0)]
    assert run.ideal_seconds[0] == 23.0


def _regime(iterations: float, batch: float, seconds: float) -> Regime:
    return Regime(iterations=iterations, batch_size=batch, seconds_per_iteration=seconds)


def test_a_false_report_changes_the_order_but_not_the_work() -> None:
    # c claims a tenth of its work and is served before b, and runs 20 s none the less.
    workload = runs([(0.0, 1, 5.0), (1.0, 1, 10.0), (2.0, 1, 20.0)])
    honest = watched(workload, "1x1 V100", "srtf")
    lying = watched(workload, "1x1 V100", "srtf", SimulationOptions(reports=Reports(lies={"c": 0.1})))
    assert honest.finish_seconds.tolist() == [5.0, 15.0, 35.0]
    assert lying.finish_seconds[2] < lying.finish_seconds[1]
    assert lying.run_seconds.tolist() == [5.0, 10.0, 20.0]


def test_errors_are_drawn_by_app_from_the_seed() -> None:
    workload = runs([(float(row), 1, 50.0 + row) for row in range(12)])
    told = [_told(workload, seed, 0.2) for seed in (1, 1, 2)]
    assert told[0] == told[1] != told[2]
    assert all(0.8 <= factor <= 1.2 for factor in told[0])
    assert len(set(told[0])) == 12


def _told(workload: object, seed: int, error: float) -> list[float]:
    engine = assemble(
        workload,
        TWO,
        Profile.load("fifo"),
        SimulationOptions(reports=Reports(error=error)),
        seed=seed,  # type: ignore[arg-type]
    )
    return [engine.sim.reporter.jobs.added(job).iterations / (50.0 + job) for job in range(12)]


@pytest.mark.parametrize("know", ["declared", "oracle", "measured"])
def test_reports_correct_the_iterations_that_the_arbiter_expects(know: str) -> None:
    workload = runs([(0.0, 1, 9.0), (0.0, 1, 9.0), (1.0, 2, 10.0)], models=["net"] * 3)
    beliefs = []

    def watch(sim: SimulationState, decision: object) -> None:
        row = sim.arbiter.state.job_row(sim.rows.job_ids[2])
        if sim.now == 9.0 and row >= 0:
            beliefs.append(float(show(sim.arbiter.state).iterations_left(np.array([row], dtype=np.int32))[0]))

    profile = Profile.load("fifo", settings={"stages.placement": "spread"})
    options = SimulationOptions(reports=Reports(know=know))  # type: ignore[arg-type]
    assemble(workload, TWO, profile, options, models=Halved(), observers=[AfterStep(watch)]).run()
    assert beliefs[-1] == (2.0 if know == "declared" else 6.0)  # in truth it is half as fast


def test_a_failure_loses_the_work_since_the_last_save() -> None:
    # m01 fails at 25 s: a, saved at 20, does 5 s again from 25 on, on m02.
    failures = Failures(outages=(Outage(time_seconds=25.0, machine="m01"),), checkpoint_every_seconds=10.0)
    run = watched(runs([(0.0, 1, 40.0)]), "2x1 V100", "fifo", SimulationOptions(failures=failures))
    assert run.finish_seconds.tolist() == [45.0]
    assert run.iterations_lost.tolist() == [5.0]
    assert run.restarts.tolist() == [1]
    assert run.leases.ended_by.tolist() == ["lost", "released"]


def test_a_job_waits_until_its_machine_returns() -> None:
    outages = (Outage(time_seconds=4.0, machine="m01"), Outage(time_seconds=10.0, machine="m01", up=True))
    run = watched(runs([(0.0, 1, 8.0)]), "1x1 V100", "fifo", SimulationOptions(failures=Failures(outages=outages)))
    assert run.finish_seconds.tolist() == [18.0]
    assert run.wait_seconds.tolist() == [6.0]


def test_an_outage_of_an_unknown_machine_is_refused() -> None:
    failures = Failures(outages=(Outage(time_seconds=4.0, machine="m9"),))
    with pytest.raises(InputError, match='an outage must name a machine of the cluster, but got "m9"'):
        watched(runs([(0.0, 1, 8.0)]), "1x1 V100", "fifo", SimulationOptions(failures=failures))


PLUGIN = """
from eunomia import Menus, Snapshot, hookimpl

class Spy:
    name = "spy"
    api = 1

    @hookimpl
    def eunomia_elasticity(self, snapshot: Snapshot) -> Menus:
        {line}
        raise RuntimeError
"""


@pytest.mark.parametrize(
    "line",
    [
        "from eunomia_testbed.simulator.progress.truth import Speeds",
        "from eunomia_testbed.simulator.progress import truth",
        "import eunomia_testbed.performance.speeds",
        '__import__("eunomia_testbed.simulator.progress.truth")',
    ],
)
def test_a_plugin_that_imports_the_truth_is_refused_by_name(tmp_path: Path, line: str) -> None:
    path = tmp_path / "spying.py"
    path.write_text(PLUGIN.format(line=line), encoding="utf-8")
    registry = Registry.find(paths=[path], installed=False)
    profile = Profile.load("default", settings={"stages.elasticity": "spy"}, registry=registry)
    with pytest.raises(PluginError, match=r"must not import the simulator's truth.*spying.py.*plugin \"spy\""):
        simulate_one(runs([(0.0, 1, 1.0)]), TWO, profile)


def test_no_snapshot_refers_to_the_true_speeds() -> None:
    """Nothing that hangs on a snapshot belongs to the testbed, however deep one digs."""
    engine = assemble(runs([(0.0, 1, 5.0)]), TWO, Profile.load("fifo"), SimulationOptions())
    found: list[object] = [show(engine.sim.arbiter.state)]
    seen: set[int] = set()
    while found:
        item = found.pop()
        if id(item) in seen or isinstance(item, str | int | float | np.ndarray | type):
            continue
        seen.add(id(item))
        assert not type(item).__module__.startswith("eunomia_testbed"), item
        slots = [name for kind in type(item).__mro__ for name in getattr(kind, "__slots__", ())]
        found += [getattr(item, name) for name in slots if hasattr(item, name)]
        found += list(vars(item).values()) if hasattr(item, "__dict__") and not callable(item) else []
        found += [cell.cell_contents for cell in getattr(item, "__closure__", None) or ()]
        found += list(item.values()) if isinstance(item, dict) else []
        found += list(item) if isinstance(item, tuple | list) else []
    assert len(seen) > 20
