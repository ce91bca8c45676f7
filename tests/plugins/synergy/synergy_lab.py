"""Rounds of Synergy's stages on machines and demands given by hand."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from eunomia import Allocation, Menus, Placement, curve_points
from eunomia.contract.allocations import AmountRange, Grants
from eunomia.testing.builders import World
from eunomia.testing.inputs import grants_to
from eunomia_plugins.synergy.greedy import GreedyOptions, SynergyGreedy
from eunomia_plugins.synergy.tune import SynergyTune, TuneOptions

SERVER = "V100 24cpu 500GiB"
"""A server of the paper's Tables 2 and 3 has 8 GPUs."""
NO_MENUS = Menus(curve=np.empty(0, np.int32), points=curve_points(np.empty(0, np.int32), np.empty(0, np.int64)))


def granted(world: World, jobs: Sequence[tuple[str, int, float, float]], *, standby: Sequence[str] = ()) -> Allocation:
    """Grants with ranges: by job its GPUs, and the CPUs and GiB that it demands; the share is 3 CPUs and 62.5 GiB."""
    allocation = grants_to(world, {name: gpus for name, gpus, _, _ in jobs}, standby=standby)
    sizes = np.array([gpus for _, gpus, _, _ in jobs], float)
    ranges = []
    for column, share in ((2, 3.0), (3, 62.5)):
        most = np.array([job[column] for job in jobs], float)
        ranges.append(AmountRange(least=np.minimum(most, share * sizes), most=most))
    assert isinstance(allocation.amount, Grants)
    amount = dataclasses.replace(allocation.amount, cpus=ranges[0], memory_gib=ranges[1])
    return dataclasses.replace(allocation, amount=amount)


def tune(
    world: World, allocation: Allocation, *, retune: bool = True, menus: Menus | None = None, **options: Any
) -> Placement:
    offer = dataclasses.replace(world.offer(), retune=retune)
    return SynergyTune(TuneOptions(**options)).eunomia_placement(world.snapshot(), menus or NO_MENUS, offer, allocation)


def greedy(world: World, allocation: Allocation) -> Placement:
    return SynergyGreedy(GreedyOptions()).eunomia_placement(world.snapshot(), world.offer(), allocation)


def given(world: World, allocation: Allocation, placement: Placement) -> dict[str, tuple[list[int], float, float]]:
    """By job that is placed: its GPUs, and the CPUs and GiB of all of them."""
    assert placement.cpus is not None
    assert placement.memory_gib is not None
    ids, found = world.snapshot().jobs.id, {}
    for turn, claim in enumerate(placement.claim.tolist()):
        part = slice(int(placement.start[turn]), int(placement.start[turn + 1]))
        name = str(ids[allocation.claims.rows[claim]])
        if placement.gpus[part].size:
            cpus, memory = float(placement.cpus[part].sum()), float(placement.memory_gib[part].sum())
            found[name] = (placement.of(turn).tolist(), cpus, memory)
    return found
