"""What happens in one instant: nothing is said of a job or an app that ends in it, whatever else happens then."""

import dataclasses
from collections.abc import Mapping

import numpy as np
import pytest
from simulator_lab import runs, several, watched

from eunomia import Profile
from eunomia.contract.events import (
    Adapted,
    AppCancelled,
    AppFinished,
    Event,
    ForecastReported,
    JobFailed,
    JobFinished,
    JobPaused,
    JobReported,
    JobResumed,
)
from eunomia.model.cluster import Cluster
from eunomia.model.forecasts import Forecast
from eunomia.units import AppId, JobId, Seconds
from eunomia_testbed.simulator import Costs, Delays, Failures, Reports, SimulationOptions, assemble
from eunomia_testbed.simulator.late_events import without_late_events
from eunomia_testbed.workload import Regime, SimulatedSearch, Workload

OPTIONS: Mapping[str, Mapping[str, object]] = {"hyperband": {"min_iterations": 4}, "asha": {"asynchronous": True}}
POLICIES = ("fifo", "las", "tiresias", "themis", "max_min", "slaq")


NOTHING = Forecast(phases=(), total_gpu_seconds=0.0, most=1)


def app_of(job: JobId) -> AppId:
    return AppId(job.split("/")[0])


def reported(job: str) -> JobReported:
    return JobReported(job=JobId(job), iterations_done=1.0, rate=1.0, at=Seconds(0.0))


@pytest.mark.parametrize("policy", POLICIES)
def test_jobs_of_an_app_that_end_together_leave_no_later_forecast(policy: str) -> None:
    profile = Profile.load(policy, settings={"rounds.bid_deadline": "none"} if policy == "themis" else {})
    run = watched(several([(0.0, [(1, 1, 100.0), (1, 1, 100.0)]), (3.0, [(1, 2, 97.0)] * 3)]), "1x8 V100", profile)
    assert run.faults == ()
    assert list(run.state) == ["finished"] * 5


@pytest.mark.parametrize("know", ["measured", "oracle"])
def test_a_job_that_ends_before_its_first_report_is_not_reported(know: str) -> None:
    options = SimulationOptions(reports=Reports(know=know, error=0.1))  # type: ignore[arg-type]
    assert watched(runs([(0.0, 1, 100.0)]), "1x1 V100", "fifo", options).faults == ()


def test_a_regime_that_begins_where_the_job_ends_is_not_reported() -> None:
    def regime(iterations: float, batch: float) -> Regime:
        return Regime(iterations=iterations, batch_size=batch, seconds_per_iteration=1.0)

    regimes = {0: (regime(100.0, 32.0), regime(1e-12, 64.0))}
    work = dataclasses.replace(runs([(1e6, 1, 100.0)]), regimes=regimes)
    run = watched(work, "1x1 V100", "fifo")
    assert run.faults == () and list(run.state) == ["finished"]


def test_an_answer_is_not_sent_after_the_end_of_its_app() -> None:
    work = several([(0.0, [(1, 2, 50.0)] * 2), (49.5, [(1, 1, 10.0)] * 2)])
    run = watched(work, "1x4 V100", "themis", SimulationOptions(agents=True, answer_seconds=1.0))
    assert run.faults == ()


def searching(trials: int, tuner: str) -> Workload:
    """Searches whose trials are all as fast, so that many points are seen in one instant."""
    count = 2 * trials
    base = several([(0.0, [(1, 2, 1.0)] * trials)] * 2)
    jobs = dataclasses.replace(base.jobs, iterations=np.full(count, 64.0))
    curves = tuple((0.1 * trial, 1.0, 0.5) for trial in range(trials))
    options = OPTIONS.get(tuner, {})
    tuner = "successive_halving" if tuner == "asha" else tuner
    searches = {row: SimulatedSearch(tuner=tuner, options=options, curves=curves, every=4) for row in range(2)}
    return dataclasses.replace(base, jobs=jobs, searches=searches)


@pytest.mark.parametrize("tuner", ["successive_halving", "asha", "median_stopping", "hyperband"])
@pytest.mark.parametrize("policy", ["las", "themis"])
def test_trials_judged_at_the_same_time_leave_no_late_reports(tuner: str, policy: str) -> None:
    options = SimulationOptions(
        costs=Costs(checkpoint=2.0),
        reports=Reports(know="measured"),
        failures=Failures(between_seconds=200.0, repair_seconds=20.0, checkpoint_every_seconds=16.0),
    )
    profile = Profile.load(policy, settings={"rounds.bid_deadline": "none"} if policy == "themis" else {})
    run = watched(searching(8, tuner), "2x4 V100", profile, options)
    assert run.faults == ()
    assert np.isfinite(run.app_finish_seconds).all()


def test_reports_on_other_jobs_stay_in_order() -> None:
    left: list[Event] = [reported("b/1"), ForecastReported(app=AppId("b"), forecast=NOTHING)]
    ends: list[Event] = [JobFinished(job=JobId("a/1")), AppFinished(app=AppId("a"))]
    late: list[Event] = [
        reported("a/1"),
        Adapted(job=JobId("a/1"), batch_size=2.0),
        JobPaused(job=JobId("a/1")),
        JobResumed(job=JobId("a/1")),
        ForecastReported(app=AppId("a"), forecast=NOTHING),
    ]
    assert without_late_events([*late, *left, *ends], app_of) == [*left, *ends]
    assert without_late_events([*late, *left], app_of) == [*late, *left]


def test_reports_on_jobs_of_a_cancelled_app_are_dropped() -> None:
    ends: Event = AppCancelled(app=AppId("a"))
    assert without_late_events([reported("a/1"), reported("b/1"), ends], app_of) == [reported("b/1"), ends]


def test_reports_on_a_job_that_is_tried_again_are_kept() -> None:
    again = JobFailed(job=JobId("a/1"), again_in=Seconds(3.0))
    for_good = dataclasses.replace(again, again_in=None)
    assert without_late_events([reported("a/1"), again], app_of) == [reported("a/1"), again]
    assert without_late_events([reported("a/1"), for_good], app_of) == [for_good]


@pytest.mark.parametrize(
    "apps",
    [
        [(0.0, [(1, 1, 1.0)]), (0.0, [(1, 2, 3.0), (1, 1, 1.0), (2, 3, 1.0)]), (0.0, [(1, 1, 1.0)])],
        [(0.0, [(1, 1, 1.0)]), (0.0, [(1, 1, 1.0)]), (1.0, [(1, 2, 2.0), (2, 2, 1.0), (2, 2, 1.0)])],
    ],
)
def test_no_app_bids_for_an_offer_that_closed_before_its_answer(
    apps: list[tuple[float, list[tuple[int, int, float]]]],
) -> None:
    policy = Profile.load("themis", settings={"rounds.lease": "30s"})
    options = SimulationOptions(agents=True, answer_seconds=5.0)
    run = assemble(several(apps), Cluster.parse("1x2 V100"), policy, options).run()
    assert not run.faults
    assert np.all(run.state == "finished")


def test_an_ended_app_returns_no_gpus_that_are_still_in_transit() -> None:
    apps = [
        (5.0, [(1, 4, 1.0), (2, 4, 28.0)]),
        (11.0, [(2, 2, 23.0)]),
        (23.0, [(1, 4, 45.0), (1, 3, 25.0), (1, 1, 25.0)]),
        (39.0, [(1, 1, 1.0), (1, 4, 50.0), (2, 2, 60.0)]),
        (46.0, [(2, 2, 25.0)]),
        (52.0, [(1, 3, 24.0), (2, 2, 28.0)]),
    ]
    costs = Costs(start=0.0, checkpoint=3.0, restore=11.0, release=3.0, checkpoint_every=7.0)
    options = SimulationOptions(costs=costs, delays=Delays(order=11.0), agents=False)
    policy = Profile.load("themis", settings={"rounds.lease": "30s"})
    run = assemble(several(apps), Cluster.parse("1x2 V100"), policy, options, seed=2).run()
    assert not run.faults
    assert np.all(run.state == "finished")
