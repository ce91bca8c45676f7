"""Values of AFS: which sizes of a curve have one, what they are, and which stages fit together."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eunomia import BySize, Menus, Profile, SizeUnit
from eunomia.errors import InputErrors
from eunomia.platform.registry import default_registry
from eunomia.testing.builders import World
from eunomia.testing.inputs import MenuPoint, menus_of
from eunomia.units import Scope
from eunomia_plugins.afs.curves import AfsCurves, AfsPeak, useful_sizes
from strength import examples

WORLD = World("1x4 V100").job("a/0", gpus=(1, 4), iterations=12.0)


def menus(*rates: float) -> Menus:
    """The menus of one job with these rates at sizes 1, 2, 3, ...; NaN: a size without a rate."""
    return menus_of(WORLD, {"a/0": [MenuPoint(gpus=at, rate=rate) for at, rate in enumerate(rates, start=1)]})


@pytest.mark.parametrize(
    ("rates", "sizes"),
    [
        ((1.0, 1.9, 2.7), [1, 2, 3]),
        ((1.0, 1.9, 1.5, 2.0), [1, 2, 4]),
        ((1.0, 1.0, 1.0), [1]),
        ((2.0, 1.0), [1]),
        ((1.0,), [1]),
        ((1.0, float("nan"), 2.0), [1, 2, 3]),
    ],
    ids=["rises", "falls and rises", "flat", "falls", "one point", "a hole"],
)
def test_a_size_is_useful_if_the_job_is_faster_than_at_every_smaller_one(
    rates: tuple[float, ...], sizes: list[int]
) -> None:
    found, speeds = useful_sizes(menus(*rates), 0)
    assert found.tolist() == sizes
    assert (np.diff(speeds) > 0.0).all()


def valued(plugin: AfsCurves | AfsPeak, *rates: float, iterations: float = 12.0) -> list[tuple[int, float]]:
    world = World("1x4 V100").job("a/0", gpus=(1, 4), iterations=iterations)
    form = plugin.eunomia_valuation(world.snapshot(), menus(*rates), world.offer(scope=Scope.ALL)).form(BySize)
    assert form.unit is SizeUnit.SECONDS_LEFT
    return list(zip(form.gpus.tolist(), form.value.tolist(), strict=True))


def test_the_value_of_a_size_is_the_time_left_at_that_size() -> None:
    assert valued(AfsCurves(), 1.0, 1.5, 2.0) == [(1, -12.0), (2, -8.0), (3, -6.0)]
    # Without known work the times are those of one iteration.
    assert valued(AfsCurves(), 1.0, 1.5, 2.0, iterations=float("nan"))[0] == (1, -1.0)


def test_the_option_peak_assumes_linear_speedup_up_to_the_fastest_size() -> None:
    assert valued(AfsPeak(), 1.0, 1.5, 1.2) == [(1, -12.0), (2, -6.0)]


@given(st.lists(st.floats(0.01, 10.0), min_size=1, max_size=3))
@settings(max_examples=examples(60), deadline=None)
def test_at_each_larger_useful_size_a_job_takes_less_time(rates: list[float]) -> None:
    values = [value for _, value in valued(AfsCurves(), *rates)]
    assert values == sorted(values)
    assert len(set(values)) == len(values)


def refusal(**stages: str) -> str:
    with pytest.raises(InputErrors) as caught:
        Profile.load(
            "afs", registry=default_registry(), settings={f"stages.{key}": each for key, each in stages.items()}
        )
    return str(caught.value.errors[0])


def test_values_in_another_unit_are_refused() -> None:
    said = refusal(valuation="slaq")
    assert said.startswith(
        'allocation "afs" reads seconds left by size, but valuation "slaq" gives reductions of loss by size; take "afs_'
    )


def test_menus_with_one_size_per_job_are_refused() -> None:
    assert refusal(elasticity="fixed").startswith(
        'allocation "afs" needs rates at many sizes, but elasticity "fixed" gives one size a job'
    )
