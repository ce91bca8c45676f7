import pytest

from eunomia import Scores
from eunomia.model.forecasts import Forecast, JobForecast, Phase
from eunomia.testing.builders import World
from eunomia_plugins.elasticity.range import Range, RangeOptions
from eunomia_plugins.themis_baselines.app_order import AppOrder, AppOrderOptions


def scores(world: World, by: str) -> dict[str, float]:
    snapshot = world.snapshot()
    menus = Range(RangeOptions()).eunomia_elasticity(snapshot)
    plugin = AppOrder(AppOrderOptions.model_validate({"by": by}))
    answer = plugin.eunomia_valuation(snapshot, menus, world.offer())
    names = [str(snapshot.apps.id[row]) for row in answer.claims.rows]
    return dict(zip(names, answer.form(Scores).score[:, 0].tolist(), strict=True))


def world() -> World:
    """A search of three trials of 100 s on one GPU each, and a single run of 240 GPU-seconds on up to four."""
    made = World("1x4 V100")
    for number in range(3):
        made.job(f"search/{number}", iterations=100.0, seconds_per_iteration=1.0)
    return made.job("single/0", gpus=(1, 4), arrived=1.0, iterations=240.0, seconds_per_iteration=1.0)


def test_the_length_of_an_app_is_the_sum_of_its_jobs() -> None:
    assert scores(world(), "remaining_service") == pytest.approx({"search": 300.0, "single": 240.0})
    assert scores(world(), "remaining_time") == pytest.approx({"search": 100.0, "single": 60.0})


def test_the_length_of_an_app_includes_forecast_work() -> None:
    later = JobForecast(iterations_left=50.0, seconds_per_iteration=2.0, most=4)
    first = JobForecast(iterations_left=100.0, seconds_per_iteration=1.0, most=1)
    forecast = Forecast(phases=(Phase(jobs=(first,)), Phase(jobs=(later,))), total_gpu_seconds=500.0, most=8)
    made = World("1x4 V100").app("a", forecast=forecast).job("a/0", iterations=100.0, seconds_per_iteration=1.0)
    assert scores(made, "remaining_service") == {"a": 200.0}
    assert scores(made, "remaining_time") == {"a": 50.0}  # four GPUs are all there are


def test_apps_with_unknown_work_come_last() -> None:
    made = world().job("unknown/0", arrived=2.0)
    assert scores(made, "remaining_time")["unknown"] == float("inf")


def test_the_service_of_an_app_is_the_sum_over_its_jobs() -> None:
    assert set(scores(world(), "least_service").values()) == {0.0}
