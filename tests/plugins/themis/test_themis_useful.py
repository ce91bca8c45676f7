"""An app bids for no more GPUs than the jobs of its present phase can use."""

import numpy as np
import pytest

from eunomia.model.forecasts import Forecast, JobForecast, Phase
from eunomia_plugins.themis.apps import useful


def forecast(*left_and_most: tuple[float, int]) -> Forecast:
    now = tuple(JobForecast(iterations_left=left, seconds_per_iteration=1.0, most=most) for left, most in left_and_most)
    later = Phase(jobs=(JobForecast(iterations_left=100.0, seconds_per_iteration=1.0, most=8),))
    return Forecast(phases=(Phase(jobs=now), later), total_gpu_seconds=1000.0, most=8)


@pytest.mark.parametrize(
    ("forecast", "expected"),
    [
        (forecast((5.0, 1), (0.0, 1), (0.0, 1)), [1]),  # the last one before the rung: others have arrived
        (forecast((5.0, 1), (7.0, 2)), [1, 2, 3]),
        (forecast((5.0, 8), (7.0, 8)), [1, 2, 3, 4]),
        (forecast((0.0, 1)), [1, 2, 3, 4]),  # between two phases
        (None, [1, 2, 3, 4]),
    ],
)
def test_an_app_bids_for_no_gpus_that_its_current_phase_cannot_use(
    forecast: Forecast | None, expected: list[int]
) -> None:
    assert useful(np.arange(1, 5), forecast).tolist() == expected


def test_the_minimum_size_of_an_app_is_always_kept_in_its_bid() -> None:
    assert useful(np.array([4, 8]), forecast((5.0, 1))).tolist() == [4]
