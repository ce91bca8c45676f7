"""Checkpoints that running jobs take by themselves: what they cost, and what is lost without them. Times by hand."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulator_lab import runs, several, watched

from eunomia.errors import InputError
from eunomia_testbed.simulator import Costs, Failures, Keep, Outage, SimulatedRun, SimulationOptions
from eunomia_testbed.simulator.executing.saves import PeriodicSaves
from eunomia_testbed.workload import Regime, SimulatedSearch

EVERY_3 = SimulationOptions(costs=Costs(checkpoint=1.0, checkpoint_every=3.0))


def failing(down: float, up: float, *, every: float = 5.0, takes: float = 1.0) -> SimulatedRun:
    """20 s of work on a machine that is down for a while."""
    outages = (Outage(time_seconds=down, machine="m01"), Outage(time_seconds=up, machine="m01", up=True))
    options = SimulationOptions(
        costs=Costs(checkpoint=takes, checkpoint_every=every), failures=Failures(outages=outages)
    )
    return watched(runs([(0.0, 1, 20.0)]), "1x1 V100", "fifo", options)


def test_a_job_makes_no_progress_during_a_save_and_does_not_save_at_its_end() -> None:
    run = watched(runs([(0.0, 1, 10.0), (0.0, 1, 9.0), (0.0, 1, 3.0)]), "1x3 V100", "fifo", EVERY_3)
    assert run.finish_seconds.tolist() == [13.0, 11.0, 3.0]
    assert run.run_seconds.tolist() == [10.0, 9.0, 3.0]
    assert run.slot_seconds.tolist() == [13.0, 11.0, 3.0]


def test_checkpoints_without_a_cost_change_no_finish_time() -> None:
    work = runs([(0.0, 1, 10.0), (2.0, 2, 5.0), (3.0, 1, 1.0)])
    free = SimulationOptions(costs=Costs(checkpoint_every=0.7))
    one, other = (watched(work, "1x2 V100", "srtf", options) for options in (free, None))
    np.testing.assert_allclose(one.finish_seconds, other.finish_seconds)


def test_work_since_the_last_checkpoint_is_lost_with_the_machine() -> None:
    # Steps 0 to 5 and 6 to 11; at 13.5 a second and a half of the third stretch are lost. 10 s are left from 20 on.
    run = failing(13.5, 20.0)
    assert run.iterations_lost.tolist() == [1.5]
    assert run.finish_seconds.tolist() == [31.0]
    # At 11.5 the second checkpoint is not complete: all since the first is lost.
    run = failing(11.5, 20.0)
    assert run.iterations_lost.tolist() == [5.0]
    assert run.finish_seconds.tolist() == [20.0 + 15.0 + 2.0]


def test_a_preempted_job_saves_and_begins_a_new_save_interval() -> None:
    # a: steps to 3, saves to 4, steps to 5, where b comes: saves to 6. b runs 6 to 8. a then has 6 s left: 3, 1, 3.
    run = watched(runs([(0.0, 1, 10.0), (5.0, 1, 2.0)]), "1x1 V100", "srtf", EVERY_3)
    assert run.finish_seconds.tolist() == [8.0 + 7.0, 8.0]
    assert run.iterations_lost.tolist() == [0.0, 0.0]


def test_an_evaluation_does_not_reset_the_save_interval_of_a_trial() -> None:
    base = several([(0.0, [(1, 1, 20.0)] * 2)])
    search = SimulatedSearch(tuner="median_stopping", options={}, curves=((0.1, 1.0, 0.5),) * 2, every=2)
    work = dataclasses.replace(base, searches={0: search})
    options = SimulationOptions(costs=Costs(checkpoint=1.0, checkpoint_every=5.0))
    run = watched(work, "1x2 V100", "fifo", options)
    assert run.finish_seconds.tolist() == [23.0, 23.0]


def test_a_new_regime_begins_a_new_save_interval() -> None:
    def regime(iterations: float) -> Regime:
        return Regime(iterations=iterations, batch_size=8.0, seconds_per_iteration=1.0)

    work = dataclasses.replace(runs([(0.0, 1, 7.0)]), regimes={0: (regime(5.0), regime(2.0))})
    # One checkpoint, 3 s into the first regime; the second regime is too short for one. Without regimes: at 3 and 6 s.
    assert watched(work, "1x1 V100", "fifo", EVERY_3).finish_seconds.tolist() == [8.0]
    assert watched(runs([(0.0, 1, 7.0)]), "1x1 V100", "fifo", EVERY_3).finish_seconds.tolist() == [9.0]


def test_a_segment_is_logged_with_its_mean_seconds_per_iteration() -> None:
    options = dataclasses.replace(EVERY_3, keep=Keep(segments=True))
    run = watched(runs([(0.0, 1, 10.0)]), "1x1 V100", "fifo", options)
    assert (run.segments.start_seconds.tolist(), run.segments.end_seconds.tolist()) == ([0.0], [13.0])
    assert run.segments.seconds_per_iteration.tolist() == [1.3]


def test_two_intervals_that_differ_are_refused() -> None:
    costs = Costs(checkpoint=1.0, checkpoint_every=60.0)
    rule = "checkpoint_every must be the same among costs and failures, or stand among one of them"
    with pytest.raises(InputError, match=f"{rule}, but got 60 s and 30 s"):
        SimulationOptions(costs=costs, failures=Failures(checkpoint_every_seconds=30.0)).check()
    SimulationOptions(costs=costs, failures=Failures(checkpoint_every_seconds=60.0)).check()
    SimulationOptions(costs=costs, failures=Failures()).check()


@pytest.mark.parametrize("every", [0.0, -1.0, math.nan])
def test_an_invalid_interval_is_refused(every: float) -> None:
    with pytest.raises(InputError, match="checkpoint_every must be positive, but got"):
        SimulationOptions(costs=Costs(checkpoint_every=every)).check()


def naive(every: int, takes: int, until: int) -> list[tuple[int, int]]:
    """Seconds of steps, and those in the last checkpoint, at the end of each second; one after the other."""
    steps = saved = saving = 0
    told = []
    for _ in range(until):
        if saving:
            saving -= 1
            saved = saved if saving else steps
        else:
            steps += 1
            if (steps - saved) == every:
                saving, saved = takes, saved if takes else steps
        told.append((steps, saved))
    return told


@given(every=st.integers(1, 6), takes=st.integers(0, 4), stops=st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_computed_saves_equal_those_counted_second_by_second(every: int, takes: int, stops: list[int]) -> None:
    told = naive(every, takes, sum(stops))
    saves, now, done = PeriodicSaves(1, float(every), float(takes)), 0, 0.0
    for ran in stops:
        saves.go(0, float(now), (0,), done)
        before, done_before = now, done
        now += ran
        steps, saved = told[now - 1]
        assert done_before + saves.steps(0, float(ran)) == steps
        lasts = saves.lasts(0, steps - done_before)
        assert lasts <= ran and told[before + int(lasts) - 1][0] == steps if lasts else steps == done_before
        done += saves.stop(0, float(now), (0,), ran=float(ran), pace=1.0, done=done)
        assert (done, saves.saved(0)) == (steps, saved)
