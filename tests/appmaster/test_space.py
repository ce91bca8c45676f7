import math

from hypothesis import given
from hypothesis import strategies as st

from eunomia_appmaster.app.space import (
    Categorical,
    Float,
    Int,
    Space,
    arguments,
    grid_point,
    grid_size,
    random_point,
    trial_seed,
)

SPACE: Space = {
    "lr": Float(low=1e-4, high=0.5, log=True),
    "width": Int(low=16, high=256, step=16),
    "drop": Float(low=0.1, high=0.5, step=0.1),
    "depth": Int(low=1, high=64, log=True),
    "nesterov": Categorical(choices=(True, False)),
}


@given(st.integers(0, 2**63 - 1), st.integers(1, 10_000))
def test_sampled_parameters_lie_in_their_space(seed: int, trial: int) -> None:
    point = random_point(SPACE, seed, trial)
    assert 1e-4 <= float(point["lr"]) <= 0.5
    assert int(point["width"]) in range(16, 257, 16)
    assert point["drop"] in (0.1, 0.2, 0.3, 0.4, 0.5)
    assert 1 <= int(point["depth"]) <= 64
    assert point["nesterov"] in (True, False)
    assert 0 <= trial_seed(seed, trial) < 2**31


def test_the_samples_of_a_parameter_do_not_depend_on_the_other_parameters() -> None:
    alone = {"width": SPACE["width"]}
    for trial in range(1, 20):
        assert random_point(alone, 7, trial)["width"] == random_point(SPACE, 7, trial)["width"]
    assert len({str(random_point(SPACE, 7, trial)) for trial in range(1, 50)}) == 49


def test_samples_on_a_log_scale_cover_all_orders_of_magnitude() -> None:
    drawn = [math.log10(float(random_point({"lr": SPACE["lr"]}, 3, trial)["lr"])) for trial in range(1, 400)]
    below = sum(exponent < -2 for exponent in drawn) / len(drawn)
    assert 0.45 < below < 0.65  # log10 runs from -4 to -0.3: 54 % lie below -2


def test_a_grid_varies_its_last_parameter_fastest() -> None:
    space: Space = {"a": Categorical(choices=("x", "y")), "b": Float(low=0.0, high=0.3, step=0.1)}
    assert grid_size(space) == 8
    assert [grid_point(space, trial) for trial in (1, 2, 4, 5, 8)] == [
        {"a": "x", "b": 0.0},
        {"a": "x", "b": 0.1},
        {"a": "x", "b": 0.3},
        {"a": "y", "b": 0.0},
        {"a": "y", "b": 0.3},
    ]


def test_a_point_of_a_huge_grid_is_computed_directly() -> None:
    space: Space = {"a": Int(low=0, high=2**53), "b": Float(low=0.0, high=1.0, step=1e-12), "c": Int(low=3, high=3)}
    assert grid_size(space) == (2**53 + 1) * (10**12 + 1)
    assert grid_point(space, 10**12 + 2) == {"a": 1, "b": 0.0, "c": 3}


def test_each_parameter_becomes_one_argument() -> None:
    words = arguments({"lr": 0.1 + 0.2, "n": 3, "name": "two words", "fast": True})
    assert words == ["--lr=0.30000000000000004", "--n=3", "--name=two words", "--fast=true"]
