"""Exchanges after Synergy-Tune: jobs that start change places, and amounts are divided by rates."""

import itertools

import numpy as np
import pytest
from hypothesis import given as hypothesis_given
from hypothesis import settings
from hypothesis import strategies as st

from eunomia import Feature, Menus, Stage, curve_points
from eunomia.platform.profiles import Profile
from eunomia.testing.builders import World
from eunomia_plugins.synergy.exchanges import Exchangeable, Exchanges, Machines
from eunomia_plugins.synergy.points import Points
from eunomia_plugins.synergy.tune import SynergyTune, TuneOptions
from plugins.synergy.synergy_lab import SERVER, given, granted, tune
from strength import examples

LIGHT = Points(np.array([1.0]), np.array([1.0]), np.array([1.0]))
HEAVY = Points(np.array([3.0, 5.0]), np.array([1.0, 1.0]), np.array([1.0, 2.0]))
"""Twice as fast with 5 CPUs as with its share of 3."""


def job(points: Points, machine: int, *, gpus: int = 1, moves: bool = True, gpu_type: int = -1) -> Exchangeable:
    return Exchangeable(points, gpus, gpu_type, machine, moves)


def machines(*free: int, cpus: float = 6.0, types: tuple[int, ...] | None = None) -> Machines:
    count = len(free)
    amounts = np.tile([cpus, 100.0], (count, 1))
    return Machines(np.array(free, np.int64), amounts, np.array(types or (0,) * count, np.int64))


def places(exchanges: Exchanges, tries: int = 100) -> list[int]:
    exchanges.run(tries)
    return [each.machine for each in exchanges.jobs]


def test_two_heavy_jobs_on_one_machine_are_separated() -> None:
    jobs = [job(HEAVY, 0), job(HEAVY, 0), job(LIGHT, 1), job(LIGHT, 1)]
    exchanges = Exchanges(jobs, machines(0, 0))
    found = places(exchanges)
    assert found[0] != found[1]
    assert found[2] != found[3]
    assert {at: amounts[0] for machine in (0, 1) for at, amounts in exchanges.divided(machine)} == {
        0: 5.0,
        1: 5.0,
        2: 1.0,
        3: 1.0,
    }


def test_a_job_moves_only_to_free_gpus_of_its_type() -> None:
    jobs = [job(HEAVY, 0, gpu_type=0), job(HEAVY, 0, gpu_type=0)]
    assert sorted(places(Exchanges(jobs, machines(0, 1)))) == [0, 1]
    jobs = [job(HEAVY, 0, gpu_type=0), job(HEAVY, 0, gpu_type=0)]
    assert places(Exchanges(jobs, machines(0, 1, types=(0, 1)))) == [0, 0]


@pytest.mark.parametrize(("gpus", "moves", "tries"), [(2, True, 100), (1, False, 100), (1, True, 0)])
def test_jobs_of_other_sizes_and_running_jobs_are_not_exchanged(gpus: int, moves: bool, tries: int) -> None:
    jobs = [job(HEAVY, 0), job(HEAVY, 0), job(LIGHT, 1, gpus=gpus, moves=moves), job(LIGHT, 1, gpus=gpus, moves=moves)]
    assert places(Exchanges(jobs, machines(0, 0)), tries) == [0, 0, 1, 1]


def test_jobs_whose_points_do_not_fit_keep_their_amounts() -> None:
    assert Exchanges([job(HEAVY, 0)], machines(0, cpus=2.0)).divided(0) == []
    assert Exchanges([job(HEAVY, 0)], machines(0, cpus=0.0)).divided(0) == []
    assert Exchanges([], machines(0)).divided(0) == []


def _points(luck: np.random.Generator) -> Points:
    cpus = np.array([3.0, *(3.0 + np.sort(luck.uniform(0.5, 9.0, 2)))])
    return Points(cpus, np.full(3, 10.0), np.array([1.0, *(1.0 + np.sort(luck.uniform(0.05, 2.0, 2)))]))


def _orders() -> set[tuple[int, ...]]:
    """Places of six jobs on three machines of two GPUs; machines are equal, so the first job is on the first one."""
    return {order for order in itertools.permutations((0, 0, 1, 1, 2, 2)) if order[0] == 0}


def _sum(exchanges: Exchanges, count: int) -> float:
    total = 0.0
    for at, (cpus, _) in itertools.chain.from_iterable(exchanges.divided(machine) for machine in range(count)):
        points = exchanges.jobs[at].points
        total += float(points.value[np.isclose(points.cpus, cpus)].max())
    return total


@hypothesis_given(st.integers(0, 10_000))
@settings(max_examples=examples(25), deadline=None)
def test_random_exchanges_respect_machine_capacities_and_are_near_the_best_places(seed: int) -> None:
    luck = np.random.default_rng(seed)
    kinds = [_points(luck) for _ in range(6)]
    has = machines(0, 0, 0, cpus=9.0)

    def at(order: tuple[int, ...]) -> Exchanges:
        return Exchanges([job(points, place) for points, place in zip(kinds, order, strict=True)], has)

    before = _sum(at((0, 0, 1, 1, 2, 2)), 3)
    exchanges = at((0, 0, 1, 1, 2, 2))
    found = places(exchanges)
    assert sorted(found) == [0, 0, 1, 1, 2, 2]
    for machine in range(3):
        assert sum(amounts[0] for _, amounts in exchanges.divided(machine)) <= 9.0 + 1e-6
    best = max(_sum(at(order), 3) for order in _orders())
    after = _sum(exchanges, 3)
    assert after <= best + 1e-6
    assert after >= before - 1e-6
    assert after >= 0.75 * best


# --- the placement ---------------------------------------------------------------------------------------------------

RATES = {"heavy": (1.0, 1.0, 1.5, 2.0), "light": (1.0, 1.0, 1.0, 1.0)}
"""Rates with 2, 3, 4 and 5 CPUs a GPU."""
CPUS = (2.0, 3.0, 4.0, 5.0)


def menus(world: World, kinds: dict[str, str]) -> Menus:
    curve = np.full(world.snapshot().jobs.most.size, -1, np.int32)
    rows = []
    for turn, (name, kind) in enumerate(kinds.items()):
        curve[world.row(name)] = turn
        rows += [(turn, 1, cpus, 50.0, rate) for cpus, rate in zip(CPUS, RATES[kind], strict=True)]
    owner, gpus, cpus, memory, rate = np.array(rows).T
    points = curve_points(owner.astype(np.int32), gpus.astype(np.int64), rate=rate, amounts=(cpus, memory))
    return Menus(curve=curve, points=points)


KINDS = {"a/1": "heavy", "b/1": "heavy", "c/1": "light", "d/1": "light"}
DEMANDS = {"heavy": (5.0, 50.0), "light": (2.0, 50.0)}


def started() -> World:
    """Two machines of 2 GPUs with 6 CPUs, and four jobs that start."""
    world = World("2x2 V100 6cpu 125GiB")
    for name in KINDS:
        world.job(name, gpus=1)
    return world


def test_exchanges_raise_the_sum_of_rates_of_a_placement_within_the_ranges() -> None:
    world = started()
    allocation = granted(world, [(name, 1, *DEMANDS[kind]) for name, kind in KINDS.items()])
    sums = []
    for exchanges in (0, 100):
        answer = tune(world, allocation, menus=menus(world, KINDS), exchanges=exchanges)
        found = given(world, allocation, answer)
        sums.append(sum(float(np.interp(found[name][1], CPUS, RATES[kind])) for name, kind in KINDS.items()))
        for name, kind in KINDS.items():
            assert min(3.0, DEMANDS[kind][0]) - 1e-9 <= found[name][1] <= DEMANDS[kind][0] + 1e-9
    assert sums[1] >= sums[0]
    assert sums[1] == pytest.approx(5.0)  # each heavy job has 4 CPUs beside a light one with 2


def test_running_jobs_stay_and_are_retuned() -> None:
    world = started()
    world.holds("a/1", 0, cpus=3.0, memory_gib=50.0, ranges=(3.0, 5.0, 50.0, 50.0))
    world.holds("c/1", 1, cpus=2.0, memory_gib=50.0, ranges=(2.0, 2.0, 50.0, 50.0))
    allocation = granted(world, [("b/1", 1, *DEMANDS["heavy"]), ("d/1", 1, *DEMANDS["light"])])
    answer = tune(world, allocation, menus=menus(world, KINDS), exchanges=100)
    found = given(world, allocation, answer)
    assert {name: gpus for name, (gpus, _, _) in found.items()}.keys() == {"b/1", "d/1"}
    assert answer.retunes is not None
    assert answer.retunes.jobs.tolist() == [world.row("a/1")]
    assert answer.retunes.cpus.tolist() == [pytest.approx(4.0)]


def test_exchanges_need_points_by_cpus() -> None:
    plain, own = (SynergyTune(TuneOptions(exchanges=count)).contracts[Stage.PLACEMENT].needs for count in (0, 9))
    assert own - plain == {Feature.CPU_POINTS}
    assert Profile.load("synergy", settings={"plugins.synergy_tune.exchanges": 100}).name
    assert SERVER
