"""The ρ with which an app ended is the same in the arbiter's record and in the report."""

from pathlib import Path

import pytest

from eunomia.arbiter import Arbiter
from eunomia.contract.codec import encode
from eunomia.contract.events import AppArrived, AppFinished, Event, ForecastReported, JobAdded, JobFinished
from eunomia.journal.journal import Journal
from eunomia.model.cluster import Cluster
from eunomia.model.forecasts import Forecast, JobForecast, Phase
from eunomia.platform.profiles import Profile
from eunomia.units import AppId, JobId, Seconds, UserId
from eunomia_appmaster.service.app_record import App
from eunomia_appmaster.service.standings import Standings
from eunomia_testbed.live_runs.fairness import final_rho
from eunomia_testbed.live_runs.record import LiveRecord

UNIX = 1_000.0


def work(app: str, seconds: float, left: float) -> ForecastReported:
    """A report of one job's work in seconds, of which some is left."""
    one = JobForecast(iterations_left=left, seconds_per_iteration=1.0, most=1)
    forecast = Forecast(phases=(Phase(jobs=(one,)),), total_gpu_seconds=seconds, most=1)
    return ForecastReported(app=AppId(app), forecast=forecast)


def arrived(app: str, seconds: float) -> tuple[Event, ...]:
    name = AppId(app)
    return (
        AppArrived(app=name, user=UserId("ana")),
        JobAdded(job=JobId(f"{app}/1"), app=name, iterations=seconds),
        work(app, seconds, seconds),
    )


@pytest.mark.parametrize("failed", [False, True])
def test_the_rho_of_an_ended_app_equals_that_of_the_report(tmp_path: Path, failed: bool) -> None:
    cluster = Cluster.parse("1x2 V100")
    profile = Profile.load("las")
    arbiter = Arbiter(cluster, profile.stages(cluster), Profile.fallback().stages(cluster), seed=1)
    standings = Standings(lambda: arbiter)
    app = App(
        name="a", user="ana", weight=1.0, tuner="none", trials=1, least=1, most=1, submitted_at=UNIX, arrived_at=0.0
    )
    steps: list[tuple[float, tuple[Event, ...]]] = [
        (0.0, arrived("a", 54.0)),  # a guess, before an iteration was measured
        (2.0, arrived("b", 20.0)),
        (5.0, (work("b", 20.0, 0.0), JobFinished(job=JobId("b/1")), AppFinished(app=AppId("b")))),
        # A trial that failed leaves work that is not done any more.
        (7.0, (work("a", 0.5, 0.2 if failed else 0.0), JobFinished(job=JobId("a/1")))),
        (8.0, (AppFinished(app=AppId("a"), failed=failed),)),
    ]
    with Journal.open(tmp_path / "journal.sqlite", durable=False) as journal:
        journal.set_meta(layout=encode((cluster.machines, (("box", 0), ("box", 1)))))
        for at, events in steps:
            if at == 8.0:
                arbiter.step(Seconds(at))  # the service ends an app at the time of its last step
                standings.settle(app)
            elif at < 5.0:
                expected = standings.rho(app)
                assert expected is None or expected > 0.0
            journal.append(Seconds(at), events, arbiter.step(Seconds(at), events), at=UNIX + at)
    record = LiveRecord(tmp_path)
    record.poll()
    record.close()
    reported = final_rho(record.apps["a"], record.apps, record.slots)
    assert reported == pytest.approx(8.0 / (0.5 * (1.0 + 3.0 / 8.0)))
    assert app.rho == pytest.approx(reported)
