"""Causes of a run that replace what was measured before, one after the other, in the simulation of a replay."""

import dataclasses
from pathlib import Path

import pytest
from test_replay_twin import made_ready

from eunomia_testbed.performance.replay_profiles import Profiles
from eunomia_testbed.replay import twin
from eunomia_testbed.replay.fidelity import MAKESPAN, MEAN_JCT, UNEXPLAINED, UNFAIR, figures_in, split
from eunomia_testbed.replay.preparing import PreparedReplay
from eunomia_testbed.replay.replacing import ARRIVALS, COSTS, JOBS, RATES, RunTimes, stages_of


def _times(ready: PreparedReplay) -> RunTimes:
    """The times of a run in which all was as measured before."""
    apps = ready.plan.workload.apps
    at = dict(zip(apps.id, apps.arrival_seconds.tolist(), strict=True))
    arrive = ready.costs.arrive_seconds
    return RunTimes(
        profiles=ready.measured.profiles,
        costs=ready.costs,
        arrivals={name: (first, first + arrive) for name, first in at.items()},
        slowness=dict.fromkeys(at, 1.0),
    )


def _slower(profiles: Profiles, factor: float) -> Profiles:
    rates = [
        dataclasses.replace(rate, iterations_per_second=rate.iterations_per_second / factor) for rate in profiles.rates
    ]
    return dataclasses.replace(profiles, rates=tuple(rates))


@pytest.mark.parametrize("cause", ["", RATES, COSTS, ARRIVALS, JOBS])
def test_only_the_cause_that_differs_explains_a_difference(tmp_path: Path, cause: str) -> None:
    ready = made_ready(tmp_path, policies=["las"])
    times = _times(ready)
    arrivals = {name: (at, added + 4.0) for name, (at, added) in times.arrivals.items()}
    changed = {
        RATES: dataclasses.replace(times, profiles=_slower(times.profiles, 1.5)),
        COSTS: dataclasses.replace(times, costs=dataclasses.replace(times.costs, start_seconds=3.0)),
        ARRIVALS: dataclasses.replace(times, arrivals=arrivals),
        JOBS: dataclasses.replace(times, slowness=dict.fromkeys(times.slowness, 1.5)),
    }.get(cause, times)
    stages = stages_of(
        ready.plan, ready.measured.profiles, ready.costs, changed, policy="las", seed=0, folder=tmp_path / "stages"
    )
    assert [stage.cause for stage in stages] == ["", RATES, COSTS, ARRIVALS, JOBS]
    parts = {each.figure: each.parts for each in split(stages[-1].figures, stages)}
    assert set(parts) == {MAKESPAN, MEAN_JCT, UNFAIR}
    moved = {name for name, amount in parts[MEAN_JCT].items() if abs(amount) > 1e-6}
    assert moved == ({cause} if cause else set())
    assert parts[MEAN_JCT][UNEXPLAINED] == 0.0


def test_a_simulation_that_stands_for_a_real_run_is_explained_whole(tmp_path: Path) -> None:
    """The real run is simulated with other rates and costs; what the stages get of it leaves nothing unexplained."""
    ready = made_ready(tmp_path, policies=["las"])
    costs = dataclasses.replace(ready.costs, start_seconds=2.0)
    profiles = _slower(ready.measured.profiles, 1.3)
    real = figures_in(twin.simulate_plan(ready.plan, profiles, costs, tmp_path / "real"), "las", 0)
    times = dataclasses.replace(_times(ready), profiles=profiles, costs=costs)
    stages = stages_of(
        ready.plan, ready.measured.profiles, ready.costs, times, policy="las", seed=0, folder=tmp_path / "stages"
    )
    for each in split(real, stages):
        assert each.parts[UNEXPLAINED] == pytest.approx(0.0, abs=1e-6)
        assert each.whole == pytest.approx(each.parts[RATES] + each.parts[COSTS])
