"""The ρ that a screen shows is what an app can expect at its end, not the priority by which an auction ranks it."""

import dataclasses

import pytest

from eunomia.model.forecasts import Forecast, JobForecast, Phase
from eunomia_appmaster.service.prediction import Share, expected_rho

GPUS = 8
WORK = 8000.0
"""GPU-seconds: 1000 s on all GPUs."""


def forecast(left: float = WORK, jobs: int = 8, most: int = 1) -> Forecast:
    one = JobForecast(iterations_left=left / jobs, seconds_per_iteration=1.0, most=most)
    return Forecast(phases=(Phase(jobs=(one,) * jobs),), total_gpu_seconds=WORK, most=jobs * most)


def share(**changes: float) -> Share:
    alone = Share(elapsed=0.0, contention=1.0, apps=1, gpus=GPUS, leased=0.0, wait=0.0)
    return dataclasses.replace(alone, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("apps", [1, 2, 4])
@pytest.mark.parametrize("done", [0.0, 0.25, 0.9])
def test_an_app_with_its_fair_share_is_expected_to_have_a_rho_of_1(apps: int, done: float) -> None:
    had = share(elapsed=done * 1000.0 * apps, contention=apps, apps=apps, leased=done * WORK)
    assert expected_rho(forecast((1.0 - done) * WORK), had) == pytest.approx(1.0)


def test_lost_time_and_waiting_time_raise_rho() -> None:
    assert expected_rho(forecast(), share(elapsed=500.0)) == pytest.approx(1.5)
    assert expected_rho(forecast(), share(wait=100.0)) == pytest.approx(1.1)


def test_leased_time_without_progress_slows_the_predicted_rest() -> None:
    """Half of the work took all the GPUs for 1000 s, not for 500 s: starts and restores cost as much as training."""
    had = share(elapsed=1000.0, leased=WORK)
    assert 1.8 < expected_rho(forecast(WORK / 2.0), had) <= 2.0


def test_a_phase_lasts_as_long_as_its_last_job() -> None:
    """One job on one GPU takes 8000 s whatever the cluster has; alone it would take as long."""
    assert expected_rho(forecast(jobs=1, most=1), share()) == pytest.approx(1.0)
    assert expected_rho(forecast(jobs=2, most=4), share(apps=2, contention=2.0)) == pytest.approx(1.0)


def test_an_app_expects_lower_contention_after_other_apps_have_left() -> None:
    """Four apps until now, one from now on: half the work took 2000 s, the rest takes 500 s on all GPUs."""
    had = share(elapsed=2000.0, contention=4.0, leased=WORK / 2.0)
    assert expected_rho(forecast(WORK / 2.0), had) == pytest.approx(2500.0 / (1000.0 * (4.0 * 2000.0 + 500.0) / 2500.0))


def test_an_app_without_work_left_is_expected_to_have_its_present_rho() -> None:
    over = Forecast(phases=(), total_gpu_seconds=WORK, most=8)
    assert expected_rho(over, share(elapsed=1200.0, leased=WORK, wait=60.0)) == pytest.approx(1.2)
