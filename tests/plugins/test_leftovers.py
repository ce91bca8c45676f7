import numpy as np
import pytest

from eunomia import Allocation, Claims, Grants, InputErrors, PluginError, Profile, Seconds, TimeShares, Unit
from eunomia.contract.menus import Menus
from eunomia.testing.builders import World
from eunomia.testing.inputs import MenuPoint, menus_of
from eunomia_plugins.refine.leftovers import Leftovers

FAST = {1: 1.0, 2: 1.9, 3: 2.7, 4: 3.4}
SLOW = {1: 10.0, 2: 12.0, 3: 13.0, 4: 13.5}


def menus_with(world: World, curves: dict[str, dict[int, float]]) -> Menus:
    return menus_of(world, {job: [MenuPoint(*point) for point in mine.items()] for job, mine in curves.items()})


def given_out(world: World, granted: dict[str, int], curves: dict[str, dict[int, float]]) -> dict[str, int]:
    rows = np.array([world.row(name) for name in granted], np.int32)
    gpus = np.array(list(granted.values()), np.int64)
    order = np.flatnonzero(gpus > 0).astype(np.int32)
    allocation = Allocation(claims=Claims(unit=Unit.JOB, rows=rows), amount=Grants(gpus=gpus), order=order)
    answer = Leftovers().eunomia_refine(world.snapshot(), menus_with(world, curves), world.offer(), allocation)
    assert isinstance(answer.amount, Grants)
    return dict(zip(granted, answer.amount.gpus.tolist(), strict=True))


def town(cluster: str = "2x4 V100") -> World:
    return World(cluster).job("a/1", gpus=(1, 4)).job("b/1", gpus=(1, 4)).job("c/1", gpus=(1, 4))


def test_leftover_gpus_go_to_the_greatest_relative_gain() -> None:
    curves = {"a/1": FAST, "b/1": SLOW, "c/1": SLOW}
    # b gains 2 iterations a second and a only 0.9, but a fifth of its speed against nine tenths.
    assert given_out(town("1x4 V100"), {"a/1": 1, "b/1": 1, "c/1": 0}, curves) == {"a/1": 3, "b/1": 1, "c/1": 0}


def test_waiting_jobs_get_no_leftovers_and_all_gpus_that_help_are_used() -> None:
    curves = {"a/1": FAST, "b/1": {1: 1.0, 2: 1.0, 3: 0.9}, "c/1": SLOW}
    assert given_out(town(), {"a/1": 1, "b/1": 1, "c/1": 0}, curves) == {"a/1": 4, "b/1": 1, "c/1": 0}


def test_an_increase_that_does_not_fit_is_skipped_and_a_plateau_does_not_stop_growth() -> None:
    curves = {"a/1": {1: 1.0, 4: 4.0}, "b/1": {1: 1.0, 2: 1.0, 3: 1.5}, "c/1": {}}
    assert given_out(town("1x4 V100"), {"a/1": 1, "b/1": 1, "c/1": 0}, curves) == {"a/1": 1, "b/1": 3, "c/1": 0}


def test_leftovers_are_divided_separately_by_gpu_type() -> None:
    world = (
        World("1x2 P100, 1x4 V100").job("a/1", gpus=(1, 4), gpu_type="P100").job("b/1", gpus=(1, 4), gpu_type="V100")
    )
    assert given_out(world, {"a/1": 1, "b/1": 1}, {"a/1": FAST, "b/1": SLOW}) == {"a/1": 2, "b/1": 4}


def test_shares_are_a_fault_and_menus_with_one_size_per_job_are_refused() -> None:
    world = town()
    claims = Claims(unit=Unit.JOB, rows=np.zeros(1, np.int32))
    shares = TimeShares(share=np.ones((1, 1)), since=Seconds(0.0))
    allocation = Allocation(claims=claims, amount=shares, order=np.zeros(1, np.int32))
    with pytest.raises(PluginError, match="leftovers must get whole GPUs, but got TimeShares"):
        Leftovers().eunomia_refine(world.snapshot(), menus_with(world, {"a/1": FAST}), world.offer(), allocation)
    with pytest.raises(InputErrors, match='refiner "leftovers" needs rates at many sizes, but elasticity "fixed"'):
        Profile.load("srtf", settings={"stages.refiners": ["leftovers"]})
