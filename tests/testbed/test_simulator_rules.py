"""A run in rounds of one length, by rules of which every number can be worked out by hand."""

import warnings

import numpy as np
from tests.testbed.simulator_lab import runs, watched

from eunomia.platform.profiles import Profile
from eunomia.units import Ints
from eunomia_testbed.simulator import SimulationOptions
from eunomia_testbed.simulator.gavel_rules import GavelRules
from eunomia_testbed.simulator.rules import Change, RoundJobs, Worked


class Minutes:
    """Rounds of 60 s; whoever did not run in the last one loses 10 s; a round lasts to its end."""

    def __init__(self) -> None:
        self.rounds: list[RoundJobs] = []

    def begin(self, jobs: int, seed: int) -> None:
        self.rounds = []

    def admitted(self, job: int, now: float) -> Change | None:
        return None

    def work(self, running: RoundJobs) -> Worked:
        self.rounds.append(running)
        lost = np.where(running.fresh & (running.number > 0), 10.0, 0.0)
        done = np.minimum(running.iterations_left, (60.0 - lost) / running.seconds_per_iteration)
        return Worked(iterations=done, seconds=lost + done * running.seconds_per_iteration)

    def round_ends(self, running: RoundJobs, worked: Worked) -> float:
        return running.began + 60.0

    def next_round(self, now: float, next_arrival: float) -> float:
        return float(np.ceil(next_arrival / 60.0) * 60.0)

    def changes(self, running: RoundJobs, worked: Worked, active: Ints) -> list[Change]:
        return []


ROUNDS_ONLY = {"rounds.on": [], "rounds.scope": "all"}


def test_rounds_equal_those_computed_by_hand() -> None:
    # a runs in the first round; b and c arrive in it and wait for the boundary. a runs on to 100, its GPU is idle to
    # 120. Then b loses 10 s and runs from 130 to 150; c comes on at 180 and runs to 180 + 10 + 30.
    rules = Minutes()
    run = watched(
        runs([(0.0, 1, 100.0), (5.0, 1, 20.0), (10.0, 1, 30.0)]),
        "1x1 V100",
        Profile.load("fifo", settings=ROUNDS_ONLY),
        SimulationOptions(rules=rules),
    )
    assert run.finish_seconds.tolist() == [100.0, 150.0, 220.0]
    assert run.end_seconds == 240.0
    assert run.round_count == 5
    assert [jobs.job.tolist() for jobs in rules.rounds] == [[0], [0], [1], [2]]
    assert run.wait_seconds.tolist() == [0.0, 115.0, 170.0]
    assert run.slot_seconds.tolist() == [120.0, 60.0, 60.0]


def test_a_change_of_batch_size_takes_effect_in_the_next_round() -> None:
    class Doubling(Minutes):
        def changes(self, running: RoundJobs, worked: Worked, active: Ints) -> list[Change]:
            if running.number != 0:
                return []
            return [Change(job=0, batch_size=64.0, iterations_left=20.0, seconds_per_iteration=1.5)]

    run = watched(
        runs([(0.0, 1, 100.0)]),
        "1x1 V100",
        Profile.load("fifo", settings=ROUNDS_ONLY),
        SimulationOptions(rules=Doubling()),
    )
    assert run.finish_seconds.tolist() == [90.0]


def test_an_arriving_job_waits_for_the_next_round_of_the_rules() -> None:
    run = watched(
        runs([(70.0, 1, 30.0)]),
        "1x1 V100",
        Profile.load("fifo", settings=ROUNDS_ONLY),
        SimulationOptions(rules=Minutes()),
    )
    assert run.start_seconds.tolist() == [120.0]
    assert run.finish_seconds.tolist() == [150.0]


def test_a_job_on_a_type_without_a_speed_makes_no_progress_and_delays_no_other() -> None:
    rules = GavelRules(runs([(0.0, 1, 50.0), (0.0, 1, 50.0)]))
    running = RoundJobs(
        number=0,
        began=0.0,
        job=np.array([0, 1]),
        gpus=np.array([1, 1]),
        gpu_type=np.array([0, 1]),
        iterations_left=np.array([50.0, 50.0]),
        seconds_per_iteration=np.array([1.0, np.inf]),
        fresh=np.array([True, True]),
        moved=np.array([False, False]),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        worked = rules.work(running)
    assert worked.iterations.tolist() == [50.0, 0.0]
    assert worked.seconds.tolist() == [50.0, 0.0]
    assert rules.round_ends(running, worked) == 50.0
