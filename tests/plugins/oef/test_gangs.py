"""A claim's GPUs among its jobs: longest waiting first, and on two types only where no division avoids it."""

from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from eunomia.testing.builders import World
from eunomia.units import Ints
from eunomia_plugins.elasticity.fixed import Fixed
from eunomia_plugins.refine.claimants import View
from eunomia_plugins.refine.gangs import among_jobs, divide

SIZES = st.lists(st.integers(1, 5), min_size=1, max_size=6)
ROOM = st.lists(st.integers(0, 6), min_size=2, max_size=3)


def fits(sizes: list[int], asked: list[int], room: list[int]) -> bool:
    """Whether gangs fit on types, each on one, by trying all ways."""
    for kinds in product(range(len(room)), repeat=len(sizes)):
        if any(want not in (-1, kind) for want, kind in zip(asked, kinds, strict=True)):
            continue
        used = [0] * len(room)
        for kind, size in zip(kinds, sizes, strict=True):
            used[kind] += size
        if all(u <= r for u, r in zip(used, room, strict=True)):
            return True
    return False


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(-1, 1)), min_size=1, max_size=6), ROOM)
def test_a_division_of_gpus_into_gangs_is_found_if_one_exists(gangs: list[tuple[int, int]], room: list[int]) -> None:
    sizes, asked = [size for size, _ in gangs], [want for _, want in gangs]
    found = divide(sizes, asked, room)
    assert (found is not None) == fits(sizes, asked, room)
    if found is not None:
        assert all(want in (-1, kind) for want, kind in zip(asked, found, strict=True))
        used = np.bincount(found, weights=sizes, minlength=len(room))
        assert (used <= room).all()


def granted(sizes: list[int], room: list[int], *, mixed: bool) -> Ints:
    """[job, type] GPUs of one claim's jobs; the first has waited for longest."""
    world = World("1x40 V100").app("a")
    for number, size in enumerate(sizes):
        world.job(f"a/{number}", gpus=size)
    menus = Fixed().eunomia_elasticity(world.snapshot())
    count = len(sizes)
    view = View(
        jobs=np.array([world.row(f"a/{number}") for number in range(count)], np.int32),
        owner=np.zeros(count, np.int64),
        kind=np.full(count, -1, np.int32),
        size=np.array(sizes, np.int64),
        turns=[list(range(count))],
        free=np.array(room, np.int64),
        demand=np.array([sum(sizes)]),
        offered_demand=np.array([sum(sizes)]),
        kept=np.zeros((1, len(room)), np.int64),
        gang=np.full((1, len(room)), min(sizes)),
        speed=np.ones((1, len(room))),
        held=np.full(count, -1, np.int32),
        held_by_claim=np.zeros((1, len(room)), np.int64),
    )
    return among_jobs(menus, view, np.array([room]), np.zeros((1, len(room))), leftovers=False, mixed=mixed)


@given(SIZES, ROOM)
def test_a_job_waits_only_if_no_division_serves_it_with_those_that_waited_longer(
    sizes: list[int], room: list[int]
) -> None:
    found = granted(sizes, room, mixed=False)
    assert (found.sum(axis=0) <= room).all()
    assert ((found > 0).sum(axis=1) <= 1).all()
    gpus = found.sum(axis=1).tolist()
    earlier: list[int] = []
    for size, got in zip(sizes, gpus, strict=True):
        assert got in (0, size)
        assert (got == size) == fits([*earlier, size], [-1] * (len(earlier) + 1), room)
        earlier += [size] if got else []


@given(SIZES, ROOM)
def test_a_gang_is_mixed_only_if_no_division_avoids_it(sizes: list[int], room: list[int]) -> None:
    found = granted(sizes, room, mixed=True)
    assert (found.sum(axis=0) <= room).all()
    types = (found > 0).sum(axis=1)
    served = [size for size, kinds in zip(sizes, types, strict=True) if kinds]
    assert [int(row.sum()) for row in found if row.any()] == served
    if (types > 1).any():
        assert not fits(served, [-1] * len(served), room)
    left = sum(room) - sum(served)
    assert all(size > left for size, kinds in zip(sizes, types, strict=True) if not kinds)
