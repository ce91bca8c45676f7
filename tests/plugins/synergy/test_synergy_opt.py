"""Synergy-Opt against the paper's programme, and its placement against a search of all whole placements."""

import dataclasses

import numpy as np
import pytest

from eunomia import Profile, Scope
from eunomia.model.cluster import Cluster
from eunomia.testing.builders import World
from eunomia.units import Reals
from eunomia_plugins.synergy.arrange import arranged
from eunomia_plugins.synergy.arranged import ArrangedOptions, SynergyArranged
from eunomia_plugins.synergy.matrices import Matrix
from eunomia_plugins.synergy.points import Points, instance_of, points_of
from eunomia_plugins.synergy.room import Counts
from eunomia_plugins.synergy.whole_jobs import solve
from plugins.synergy.stated_programme import Rates, stated
from plugins.synergy.synergy_lab import SERVER, given, granted
from strength import examples

CPUS = np.array([1.0, 2.0, 3.0, 6.0, 12.0])
MEMORY_GIB = np.array([10.0, 62.5, 250.0])
SHARE = (3.0, 62.5)
MOST = (24.0, 500.0)


def drawn_matrix(luck: np.random.Generator) -> Matrix:
    """Rates that fall in neither direction; many of them gain nothing by more of one or the other."""
    steps = luck.choice([0.0, 0.0, 0.3, 1.0], (CPUS.size, MEMORY_GIB.size)) * luck.uniform(0.1, 1.0)
    return Matrix(cpus=CPUS, memory_gib=MEMORY_GIB, rate=0.5 + steps.cumsum(axis=0).cumsum(axis=1))


def all_rates(matrix: Matrix) -> Rates:
    """The points of a matrix and its share, for the programme as the paper states it."""
    full = matrix.with_point(*SHARE)
    cpus, memory = np.meshgrid(full.cpus, full.memory_gib, indexing="ij")
    return Rates(cpus.ravel(), memory.ravel(), full.rate.ravel(), full.at(*SHARE))


@pytest.mark.parametrize("seed", range(examples(25)))
def test_the_sum_of_rates_is_within_its_certified_gap_of_the_exact_programme(seed: int) -> None:
    luck = np.random.default_rng(seed)
    kinds = [drawn_matrix(luck) for _ in range(int(luck.integers(1, 4)))]
    count = luck.integers(1, 5, len(kinds))
    jobs = int(count.sum())
    capacity = (SHARE[0] * jobs * luck.uniform(1.0, 1.4), SHARE[1] * jobs * luck.uniform(1.0, 1.4))
    found = solve(instance_of([points_of(kind, SHARE, MOST) for kind in kinds], count, capacity))
    assert found is not None
    best = stated(
        [all_rates(kind) for kind, many in zip(kinds, count.tolist(), strict=True) for _ in range(many)], capacity
    )
    assert found.value <= best * (1.0 + 1e-6)
    assert found.value >= best * (1.0 - found.gap) * (1.0 - 1e-6)
    assert found.bound >= best * (1.0 - 1e-6)


def test_jobs_get_the_points_with_the_greatest_sum_of_rates() -> None:
    """One job gains nothing by CPUs, the other doubles its rate with six: it gets what the first one leaves."""
    idle = Points(np.array([1.0, 3.0]), np.array([62.5, 62.5]), np.array([1.0, 1.0]))
    hungry = Points(np.array([3.0, 5.0, 6.0]), np.array([62.5, 62.5, 62.5]), np.array([1.0, 1.6, 2.0]))
    found = solve(instance_of([idle, hungry], np.array([1, 1]), (6.0, 125.0)))
    assert found is not None
    assert found.value == pytest.approx(2.6)
    assert found.jobs[1].tolist() == [0, 1, 0]
    assert found.gap == 0.0


def most_gpus_placed_whole(need: Reals, room: Reals) -> float:
    """The most GPUs of jobs that fit undivided, by a search of all placements."""
    best = 0.0

    def search(turn: int, left: Reals, placed: float) -> None:
        nonlocal best
        if placed + need[turn:, 0].sum() <= best:
            return
        if turn == len(need):
            best = placed
            return
        for machine in range(len(left)):
            if (left[machine] >= need[turn] - 1e-9).all():
                after = left.copy()
                after[machine] -= need[turn]
                search(turn + 1, after, placed + need[turn, 0])
        search(turn + 1, left, placed)

    search(0, room.copy(), 0.0)
    return best


def drawn_round(luck: np.random.Generator) -> tuple[Reals, Reals]:
    """What each job needs of GPUs, CPUs and GiB, and the room of each machine; together no more than there is."""
    room = np.tile([4.0, 12.0, 64.0], (int(luck.integers(2, 4)), 1))
    left, need = room.sum(axis=0), list[tuple[float, float, float]]()
    while left[0] > 0 and len(need) < 8:
        gpus = min(float(luck.choice([1, 1, 1, 2, 4])), left[0])
        cpus = min(float(luck.integers(1, 7)) * gpus, left[1] - left[0] + gpus)
        need.append((gpus, cpus, min(float(luck.choice([2, 8, 16, 24])) * gpus, left[2] - 2.0 * (left[0] - gpus))))
        left = left - need[-1]
    return np.array(need), room


def used(need: Reals, room: Reals, found: list[Counts]) -> Reals:
    """[machine, 3] what jobs use."""
    total = np.zeros_like(room)
    for row, counts in zip(need, found, strict=True):
        for machine, count in counts:
            total[machine] += row * count / row[0]
    return total


def test_placed_jobs_fit_and_rarely_use_fewer_gpus_than_an_exhaustive_search() -> None:
    luck, short = np.random.default_rng(7), 0
    for _ in range(60):
        need, room = drawn_round(luck)
        found = arranged(need, room, room[0], [[] for _ in need])
        placed = [sum(count for _, count in counts) for counts in found]
        assert all(gpus in (0, int(row[0])) for gpus, row in zip(placed, need, strict=True))
        assert all(len(counts) <= row[0] for counts, row in zip(found, need, strict=True))
        assert (used(need, room, found) <= room + 1e-6).all()
        short += sum(placed) < most_gpus_placed_whole(need, room)
    assert short <= 3


def test_running_jobs_stay_on_their_machines_if_all_jobs_fit() -> None:
    luck = np.random.default_rng(8)
    for _ in range(40):
        need, room = drawn_round(luck)
        found = arranged(need, room, room[0], [[] for _ in need])
        here = [turn for turn, counts in enumerate(found) if counts]
        again = arranged(need[here], room, room[0], [found[turn] for turn in here])
        assert again == [found[turn] for turn in here]


def test_jobs_change_places_until_all_fit() -> None:
    """Two heavy jobs of one machine cannot both have 18 CPUs there; one of them changes places with a light one."""
    world = World(f"2x8 {SERVER}")
    jobs = [("a/1", 4, 18.0, 100.0), ("b/1", 4, 18.0, 100.0), ("c/1", 4, 6.0, 100.0), ("d/1", 4, 6.0, 100.0)]
    for turn, (name, gpus, _, _) in enumerate(jobs):
        world.job(name, gpus=gpus).holds(name, *range(4 * turn, 4 * turn + 4))
    allocation = granted(world, jobs)
    plugin = SynergyArranged(ArrangedOptions())
    offer = dataclasses.replace(world.offer(scope=Scope.ALL), retune=True)
    found = given(world, allocation, plugin.eunomia_placement(world.snapshot(), offer, allocation))
    assert {name: amounts[1] for name, amounts in found.items()} == {name: cpus for name, _, cpus, _ in jobs}
    assert sum(found[name][0] == list(range(4 * turn, 4 * turn + 4)) for turn, (name, *_) in enumerate(jobs)) == 2


def test_the_preset_loads_on_machines_with_cpus() -> None:
    stages = Profile.load("synergy_opt").stages(Cluster.parse(f"1x8 {SERVER}"))
    assert stages is not None
