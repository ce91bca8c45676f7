"""Two jobs on one GPU: each is as fast as measured pairs say, for as long as the other is there. Times by hand."""

import dataclasses
import heapq
import math
from collections.abc import Mapping

import numpy as np
import pytest
from real_data import shared_data
from simulator_lab import runs

from eunomia.errors import EunomiaError
from eunomia.model.cluster import Cluster
from eunomia.units import Seconds
from eunomia_testbed.performance import AnalyticModel, GavelThroughputs, PerformanceModel
from eunomia_testbed.simulator.agenda import Agenda
from eunomia_testbed.simulator.executing.saves import PeriodicSaves
from eunomia_testbed.simulator.progress.sharing import SharedWork
from eunomia_testbed.simulator.progress.truth import UNKNOWN_MODEL, Speeds
from eunomia_testbed.workload import Regime, Workload

CLUSTER = Cluster.parse("1x4 V100")
A, B, B2 = "('A', 1)", "('B (batch size 8)', 1)", "('B (batch size 16)', 1)"
# Alone all make a step a second; A beside B a half, B beside A four fifths; B of the larger batch does not run with A.
PAIRS = GavelThroughputs.from_mapping(
    {
        "V100": {
            A: {"null": 1.0, A: [0.6, 0.6], B: [0.5, 0.8], B2: [0.25, 0.0]},
            B: {"null": 1.0, A: [0.8, 0.5]},
            B2: {"null": 1.0, A: [0.0, 0.25]},
        }
    },
    place="pairs",
)


class World:
    """Jobs put on GPUs by hand, and what becomes of them."""

    def __init__(self, work: Workload, models: PerformanceModel | None = PAIRS, **more: object) -> None:
        self.agenda = Agenda()
        self.work = SharedWork(work, Speeds(work, CLUSTER, models), self.agenda, **more)  # type: ignore[arg-type]
        self.ended: dict[int, float] = {}

    def put(self, job: int, *gpus: int, at: float) -> None:
        self.agenda.call(at, lambda now: self.work.go(job, now, gpus))

    def at(self, time: float, act: object) -> None:
        self.agenda.call(time, act)  # type: ignore[arg-type]

    def run(self) -> Mapping[int, float]:
        work = self.work
        while self.agenda.heap:
            now, _, happens, job, turn = heapq.heappop(self.agenda.heap)
            if happens is not None:
                happens(Seconds(now))
            elif work.turn[job] == turn:
                gpus = work.on[job]
                work.stop(job, now, at_border=True)
                if work.is_whole(job):
                    self.ended[job] = now
                else:
                    work.next_regime(job)
                    work.go_on(job, now, gpus)
        return self.ended


def jobs(*models: str, seconds: float = 100.0) -> Workload:
    return runs([(0.0, 1, seconds)] * len(models), models=list(models))


def test_a_pair_runs_at_its_measured_speeds_until_one_ends() -> None:
    world = World(jobs("A", "B (batch size 8)"))
    world.put(0, 0, at=0.0)
    world.put(1, 0, at=20.0)
    # A: 20 steps alone; then B takes 125 s for its 100 steps, in which A makes 62.5; its last 17.5 alone again.
    assert world.run() == pytest.approx({1: 145.0, 0: 162.5})
    assert world.work.done == [100.0, 100.0]
    assert world.work.run_seconds == pytest.approx([162.5, 125.0])


def test_jobs_on_other_gpus_are_not_slowed_down() -> None:
    world = World(jobs("A", "B (batch size 8)"))
    world.put(0, 0, at=0.0)
    world.put(1, 1, at=0.0)
    assert world.run() == {0: 100.0, 1: 100.0}


def test_a_job_that_cannot_run_in_a_pair_waits_until_the_other_ends() -> None:
    world = World(jobs("A", "B (batch size 16)"))
    world.put(0, 0, at=0.0)
    world.put(1, 0, at=0.0)
    assert world.run() == pytest.approx({0: 400.0, 1: 500.0})


def test_a_new_batch_size_of_a_neighbour_changes_the_speed() -> None:
    def regime(batch: float) -> Regime:
        return Regime(iterations=50.0, batch_size=batch, seconds_per_iteration=1.0)

    work = dataclasses.replace(jobs("A", "B (batch size 8)"), regimes={1: (regime(8.0), regime(16.0))})
    world = World(work)
    world.put(0, 0, at=0.0)
    world.put(1, 0, at=0.0)
    # B's first regime takes 62.5 s, in which A makes 31.25; then B stands still, and A makes 68.75 at a quarter.
    assert world.run() == pytest.approx({0: 62.5 + 68.75 * 4, 1: 62.5 + 68.75 * 4 + 50.0})


def test_a_gang_runs_at_the_speed_of_its_shared_gpu() -> None:
    work = runs([(0.0, 2, 100.0), (0.0, 1, 10.0), (0.0, 1, 30.0)])
    world = World(work, None)
    world.put(0, 0, 1, at=0.0)
    world.put(1, 0, at=0.0)
    world.put(2, 1, at=0.0)
    # Without measured pairs they run in turns: 20 s and 60 s; the gang makes 30 steps in that time, and 70 alone.
    assert world.run() == {1: 20.0, 2: 60.0, 0: 130.0}


@pytest.mark.parametrize("models", [None, AnalyticModel()])
def test_pairs_without_measured_speeds_run_in_turns(models: PerformanceModel | None) -> None:
    world = World(jobs("ResNet-50", "VGG16"), models)
    world.put(0, 0, at=0.0)
    world.put(1, 0, at=0.0)
    assert world.run() == pytest.approx({0: 200.0, 1: 200.0})


def test_a_model_missing_from_the_speed_file_runs_in_turns() -> None:
    workload = dataclasses.replace(jobs("A", "other"), assumed_speeds={"other": None})
    speeds = Speeds(workload, CLUSTER, PAIRS)
    assert speeds.called(1) == UNKNOWN_MODEL
    assert speeds.seconds_per_iteration(0, (0,), beside=(UNKNOWN_MODEL,)) == 2.0
    assert speeds.seconds_per_iteration(1, (0,), beside=("A",)) == 2.0
    assert speeds.seconds_per_iteration(0, (0,), beside=("A",)) == pytest.approx(1.0 / 0.6)
    assert speeds.seconds_per_iteration(0, (0,), beside=("A", "B (batch size 8)")) == 2.0


def test_a_third_job_on_a_gpu_is_refused() -> None:
    world = World(jobs("A", "A", "A"))
    for job in range(3):
        world.put(job, 0, at=0.0)
    with pytest.raises(EunomiaError, match=r"a GPU must have at most 2 jobs, but got 3 \(GPU 0\)"):
        world.run()


def test_a_failure_of_the_machine_stops_both_jobs() -> None:
    world = World(jobs("A", "A"), checkpoint_every=math.inf)
    lost = world.work.lost
    world.put(0, 0, at=0.0)
    world.put(1, 0, at=0.0)
    world.at(10.0, lambda now: [world.work.crash(job, now) for job in (0, 1)])
    world.run()
    assert (world.work.done, lost) == ([0.0, 0.0], [6.0, 6.0])
    assert not world.ended


def test_a_job_whose_neighbour_crashed_continues_alone() -> None:
    work = runs([(0.0, 2, 100.0), (0.0, 1, 100.0)])
    world = World(work, None)
    world.put(0, 0, 1, at=0.0)
    world.put(1, 0, at=0.0)
    world.at(10.0, lambda now: world.work.crash(0, now))
    assert world.run() == {1: 105.0}


def test_neighbours_do_not_change_the_checkpoint_interval() -> None:
    world = World(jobs("A", "A", seconds=12.0), saves=PeriodicSaves(2, 10.0, 1.0))
    world.put(0, 0, at=0.0)
    world.put(1, 0, at=5.0)
    # The first: 5 steps alone, 3 in the next 5 s, a checkpoint at 10, the last 4 in 4 / 0.6 s more.
    ended = world.run()
    assert ended[0] == pytest.approx(11.0 + 4.0 / 0.6)


def test_work_is_conserved_whichever_jobs_come_and_go() -> None:
    rng = np.random.default_rng(7)
    models = rng.choice(["A", "B (batch size 8)"], size=12).tolist()
    world = World(runs([(0.0, 1, float(seconds)) for seconds in rng.integers(1, 90, 12)], models=models))
    for job in range(12):
        world.put(job, job // 3, at=60.0 * (job % 3) + float(rng.integers(0, 9)))

    def leave(job: int, now: float) -> None:
        if world.work.on[job]:
            world.work.stop(job, now)
            world.put(job, job // 3, at=now + 200.0)

    for job in range(0, 12, 3):
        world.at(70.0, lambda now, job=job: leave(job, now))
    ended = world.run()
    assert sorted(ended) == list(range(12))
    assert world.work.done == world.work.total
    assert all(ran >= whole for ran, whole in zip(world.work.run_seconds, world.work.total, strict=True))


def test_a_pair_runs_at_the_speeds_that_gavel_measured() -> None:
    """The file's A3C makes 7.18 steps a second alone on a V100, 5.76 beside ResNet-18 at 32, which loses nothing."""
    measured = GavelThroughputs.read(shared_data("gavel/simulation_throughputs.json.gz"))
    world = World(jobs("A3C", "ResNet-18 (batch size 32)"), measured)
    world.put(0, 0, at=0.0)
    world.put(1, 0, at=0.0)
    ended = world.run()
    assert ended[1] == pytest.approx(100.0)
    part = 5.757973890436785 / 7.175767179667988
    assert ended[0] == pytest.approx(100.0 + (100.0 - 100.0 * part))
