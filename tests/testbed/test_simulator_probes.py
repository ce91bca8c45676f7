"""Measurements in the simulator: what a probe costs, that its steps count, and that the rates are the true ones."""

import numpy as np
import pytest
from simulator_lab import AfterStep, runs
from test_simulator_shares import NET

from eunomia.contract.decisions import Decision
from eunomia.model.cluster import Cluster
from eunomia.platform.profiles import Profile
from eunomia.round.invariants import check_state
from eunomia_testbed.simulator import Costs, Engine, SimulationOptions, SimulationState, assemble
from eunomia_testbed.simulator.options import Delays
from eunomia_testbed.workload import Workload

COSTS = Costs(start=10.0, restore=20.0, checkpoint=5.0, release=3.0, join=4.0, pause=2.0)
PROBING = Profile.load("fifo", settings={"stages.elasticity": "throughput", "plugins.throughput.probe": True})


Seen = dict[str, dict[int, float]]
"""By job: its measured rates by number of GPUs."""


def engine(
    work: Workload, options: SimulationOptions, cluster: str = "1x4 V100", **more: object
) -> tuple[Engine, Seen]:
    def check(sim: SimulationState, _: Decision) -> None:
        check_state(sim.arbiter.state)
        for row, rates in sim.arbiter.state.reports.measured.items():
            measured[sim.arbiter.state.job_id(row)] = {seen.gpus: seen.rate for seen in rates}

    measured: Seen = {}
    made = assemble(work, Cluster.parse(cluster), PROBING, options, observers=[AfterStep(check)], **more)  # type: ignore[arg-type]
    return made, measured


def elastic(seconds: float = 1000.0, jobs: int = 1, **more: object) -> Workload:
    """Jobs of 1 to 4 GPUs, one iteration a second on four."""
    return runs([(0.0, 4, seconds)] * jobs, least=np.ones(jobs, np.int64), **more)


def test_steps_of_a_probe_count_and_a_probe_on_own_gpus_costs_two_resizes() -> None:
    (free, _), (costly, _) = (engine(elastic(), SimulationOptions(costs=costs)) for costs in (Costs(), COSTS))
    run = free.run()
    # 20 iterations on one GPU take 80 s in place of 20, on two 40 s; they are part of the work.
    assert run.finish_seconds.tolist() == [1000.0 + 60.0 + 20.0]
    assert (run.restarts.tolist(), run.resizes.tolist()) == ([0], [4])
    paid = costly.run()
    # While the other GPUs join, the job still runs on one or two of its four: 4 s bring one or two iterations.
    each = COSTS.checkpoint + 2 * COSTS.pause
    joining = (4.0 - 1.0) + (4.0 - 2.0)
    assert paid.finish_seconds.tolist() == [COSTS.start + 1000.0 + 60.0 + 20.0 + 2 * each + joining]


def test_a_probe_on_other_gpus_costs_two_restarts() -> None:
    types = Profile.load("fifo", settings={"stages.elasticity": "profiled_types"})
    work, cluster = runs([(0.0, 2, 1000.0)]), Cluster.parse("1x2 K80, 1x2 V100")
    run = assemble(work, cluster, types, SimulationOptions(costs=COSTS)).run()
    assert (run.restarts.tolist(), run.resizes.tolist()) == ([2], [0])
    assert run.finish_seconds.tolist() == [1000.0 + COSTS.start + 2 * (COSTS.checkpoint + COSTS.start + COSTS.restore)]


def test_measured_rates_equal_the_true_ones() -> None:
    made, measured = engine(elastic(), SimulationOptions(costs=COSTS))
    made.run()
    assert measured == {"a/0": {1: 0.25, 2: 0.5}}


def test_rates_of_a_kind_spare_the_next_job_its_probes() -> None:
    work = runs([(0.0, 4, 500.0), (600.0, 4, 500.0)], least=np.ones(2, np.int64), models=["net", "net"])
    made, measured = engine(work, SimulationOptions(), "1x4 V100 12cpu 250GB", models=NET)
    run = made.run()
    assert run.resizes.tolist() == [4, 0]
    assert list(measured) == ["a/0"]


@pytest.mark.parametrize("seed", range(4))
def test_probes_of_several_jobs_survive_delays_and_lost_answers(seed: int) -> None:
    delays = Delays(order=4.0, lost=0.3, again=5.0, jitter=0.5)
    work = elastic(600.0, jobs=4)
    made, _ = engine(work, SimulationOptions(costs=COSTS, delays=delays), "1x8 V100 24cpu 48GB", seed=seed)
    run = made.run()
    assert np.isfinite(run.finish_seconds).all()
    assert not run.faults
