"""Menus with several points a size: CPUs, memory and localities."""

import numpy as np
import pytest

from eunomia import Locality, Menus, curve_points

NAN = float("nan")


def menus() -> Menus:
    """Job 0: one GPU with 1, 4 or any CPUs, two GPUs with 8 CPUs and 64 GiB, four GPUs with any; job 1: no menu."""
    points = curve_points(
        curve=np.zeros(5, np.int32),
        gpus=np.array([1, 1, 1, 2, 4]),
        amounts=(np.array([1.0, 4.0, NAN, 8.0, NAN]), np.array([NAN, NAN, NAN, 64.0, NAN])),
        rate=np.array([1.0, 2.5, 3.0, 4.0, 9.0]),
    )
    return Menus(curve=np.array([0, -1], np.int32), points=points)


def test_sizes_of_a_menu_need_a_point_within_the_given_cpus_and_memory() -> None:
    made = menus()
    assert made.sizes(0).tolist() == [1, 2, 4]
    assert made.sizes(0, cpus=4.0).tolist() == [1, 4]
    assert made.sizes(0, cpus=8.0, memory_gib=32.0).tolist() == [1, 4]
    assert made.sizes(0, cpus=8.0, memory_gib=64.0).tolist() == [1, 2, 4]
    assert made.sizes(1, cpus=8.0).size == 0


def test_the_largest_size_fits_within_the_given_cpus_and_memory() -> None:
    made = menus()
    assert made.largest_at_most(0, 3) == 2
    assert made.largest_at_most(0, 3, cpus=7.5) == 1
    assert made.largest_at_most(0, 9, cpus=0.5) == 4  # a point that holds for any
    assert made.largest_at_most(1, 9, cpus=0.5) == 0


@pytest.mark.parametrize(("cpus", "rate"), [(None, 2.5), (4.0, 2.5), (3.9, 1.0), (1.0, 1.0), (0.5, 3.0)])
def test_a_rate_comes_from_the_largest_measured_point_within_the_given_cpus(cpus: float | None, rate: float) -> None:
    assert menus().rate(0, 1, cpus=cpus) == rate


def test_a_size_that_needs_more_cpus_or_memory_than_given_has_no_rate() -> None:
    assert menus().rate(0, 2, cpus=8.0, memory_gib=64.0) == 4.0
    assert np.isnan(menus().rate(0, 2, cpus=8.0, memory_gib=63.0))
    assert np.isnan(menus().rate(1, 2, cpus=8.0))


def test_the_nearest_locality_takes_precedence_over_the_most_cpus() -> None:
    near, far = int(Locality.ISLAND), int(Locality.RACK)
    points = curve_points(
        curve=np.zeros(3, np.int32),
        gpus=np.array([2, 2, 2]),
        locality=np.array([far, near, near], np.int32),
        amounts=(np.array([8.0, 2.0, 4.0]), np.full(3, NAN)),
        rate=np.array([1.0, 2.0, 3.0]),
    )
    made = Menus(curve=np.zeros(1, np.int32), points=points)
    assert made.rate(0, 2) == 3.0
    assert made.rate(0, 2, cpus=2.0) == 2.0
    assert made.rate(0, 2, Locality.CLUSTER) == 1.0
    assert made.full_rate(np.zeros(1, np.int32)).tolist() == [3.0]


def test_the_full_rate_comes_from_the_point_with_the_most_cpus() -> None:
    points = curve_points(
        curve=np.zeros(2, np.int32),
        gpus=np.array([2, 2]),
        amounts=(np.array([2.0, 4.0]), np.full(2, NAN)),
        rate=np.array([2.0, 3.0]),
    )
    assert Menus(curve=np.zeros(1, np.int32), points=points).full_rate(np.zeros(1, np.int32)).tolist() == [3.0]
