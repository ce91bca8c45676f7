"""CPUs and memory beside GPUs: a job takes the time that measured profiles say for what it has of them."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest
from real_data import shared_data
from simulator_lab import runs, several, watched

from eunomia.model.cluster import Cluster
from eunomia.units import Locality
from eunomia_testbed.performance import Setting, SynergyProfiles
from eunomia_testbed.performance.synergy import Demand, Grid
from eunomia_testbed.simulator import Costs, SimulatedRun, SimulationOptions
from eunomia_testbed.simulator.progress.truth import Speeds
from eunomia_testbed.workload import Regime, SimulatedSearch, Workload

# As fast at 3 CPUs and 62.5 GB as the trace tells; a third of that at 1 CPU, twice with 6, a tenth with little memory.
GRID = Grid(
    cpus=np.array([1.0, 3.0, 6.0]),
    memory_gb=np.array([20.0, 62.5]),
    relative=np.array([[0.1, 1.0 / 3.0], [0.1, 1.0], [0.1, 2.0]]),
)
NET = SynergyProfiles(
    {"net": GRID}, {"net": Demand(cpus=6.0, memory_gib=58.2, batch_size=32.0, seconds_per_iteration=0.5)}, place="here"
)


def asking(cpus: Sequence[float], *, memory_gib: float = np.nan) -> Workload:
    """Jobs of a GPU and 90 s, each with so many CPUs a GPU; NaN: it does not say."""
    rows = [(0.0, 1, 90.0)] * len(cpus)
    asked = {"cpus_per_gpu": np.array(cpus), "memory_gib_per_gpu": np.full(len(cpus), memory_gib)}
    return runs(rows, models=["net"] * len(cpus), **asked)


def simulated(work: Workload, cluster: str, policy: str = "fifo", **more: object) -> SimulatedRun:
    return watched(work, cluster, policy, models=NET, **more)


def test_a_job_with_too_few_cpus_takes_as_long_as_its_profile_says() -> None:
    run = simulated(asking([1.0, 3.0, 6.0]), "1x4 V100 12cpu 250GB")
    assert run.finish_seconds.tolist() == pytest.approx([270.0, 90.0, 45.0])
    assert run.ideal_seconds.tolist() == pytest.approx([270.0, 90.0, 45.0])


def test_a_job_without_requested_cpus_gets_its_share_of_the_machine() -> None:
    for cluster, seconds in (("1x4 V100 4cpu 250GB", 270.0), ("1x4 V100 24cpu 250GB", 45.0), ("1x4 V100", 90.0)):
        run = simulated(asking([np.nan]), cluster)
        assert run.finish_seconds.tolist() == run.ideal_seconds.tolist() == pytest.approx([seconds])


def test_requesting_the_share_equals_requesting_nothing() -> None:
    assert simulated(asking([1.0]), "1x4 V100 4cpu 250GB").finish_seconds.tolist() == pytest.approx([270.0])


def test_too_little_memory_slows_a_job_down() -> None:
    run = simulated(asking([3.0], memory_gib=16.0), "1x4 V100 12cpu 250GB")
    assert run.finish_seconds.tolist() == pytest.approx([900.0])


def test_a_gang_over_two_machines_has_the_smaller_of_their_shares() -> None:
    speeds = Speeds(runs([(0.0, 2, 90.0)], models=["net"]), Cluster.parse("1x1 V100 6cpu, 1x1 V100 1cpu"), NET)
    assert speeds.seconds_per_iteration(0, (0, 1)) == pytest.approx(3.0)
    assert speeds.seconds_per_iteration(0, (0,)) == pytest.approx(0.5)


def test_the_cpus_and_memory_of_a_job_stay_the_same_across_regimes() -> None:
    regime = Regime(iterations=45.0, batch_size=32.0, seconds_per_iteration=1.0)
    work = dataclasses.replace(asking([1.0]), regimes={0: (regime, regime)})
    assert simulated(work, "1x4 V100 12cpu 250GB").finish_seconds.tolist() == pytest.approx([270.0])


def test_the_cpus_and_memory_of_a_trial_stay_the_same_between_evaluations() -> None:
    base = several([(0.0, [(1, 1, 90.0)] * 2)])
    columns = {"model": np.zeros(2, np.int64), "cpus_per_gpu": np.array([1.0, 1.0])}
    search = SimulatedSearch(tuner="median_stopping", options={}, curves=((0.1, 1.0, 0.5),) * 2, every=10)
    jobs = dataclasses.replace(base.jobs, **columns)
    work = dataclasses.replace(base, jobs=jobs, models=("net",), searches={0: search})
    assert simulated(work, "1x2 V100 6cpu 125GB").finish_seconds.tolist() == pytest.approx([270.0, 270.0])


def test_a_job_that_moves_runs_with_the_share_of_its_new_machine() -> None:
    """Preempted and started again it has the same CPUs, whatever changes cost."""
    work = runs([(0.0, 1, 90.0), (30.0, 1, 3.0)], models=["net"] * 2, cpus_per_gpu=np.array([1.0, 3.0]))
    run = simulated(work, "1x1 V100 3cpu 62.5GB", "srtf", options=SimulationOptions(costs=Costs(start=1.0)))
    assert run.finish_seconds.tolist() == pytest.approx([1.0 + 270.0 + 1.0 + 3.0 + 1.0, 34.0])


def test_jobs_on_one_cpu_take_as_long_as_in_the_profiles_of_synergy() -> None:
    """ResNet-18 on one CPU has 0.37 of its throughput at the share of 3 CPUs; GNMT all of it (OSDI'22, Figure 2)."""
    profiles = SynergyProfiles.read(shared_data("synergy"))
    slow = {}
    for model in profiles.models:
        work = runs([(0.0, 1, 100.0)], models=[model], cpus_per_gpu=np.array([1.0]))
        run = watched(work, "1x8 V100 24cpu 500GB", "fifo", models=profiles)
        setting = Setting(gpus=1, gpu_type="V100", locality=Locality.ISLAND, cpus_per_gpu=1.0)
        alone = Setting(gpus=1, gpu_type="V100", locality=Locality.ISLAND)
        slow[model] = float(run.finish_seconds[0]) / 100.0
        assert slow[model] == pytest.approx(profiles.rate(model, alone) / profiles.rate(model, setting))
    assert slow["res18"] == pytest.approx(1.0 / 0.37)
    assert slow["gnmt"] == pytest.approx(1.0)
