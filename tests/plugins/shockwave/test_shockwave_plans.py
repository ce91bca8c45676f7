"""The planner: against the integer programme, against brute force, and on instances worked by hand."""

import itertools
import operator

import numpy as np
import pytest
from shockwave_instances import ROUND, drawn

from eunomia.units import Bools, Ints
from eunomia_plugins.shockwave import programme
from eunomia_plugins.shockwave.counts import count_rounds
from eunomia_plugins.shockwave.hull import hull_slopes
from eunomia_plugins.shockwave.instance import Instance, logarithmic
from eunomia_plugins.shockwave.packing import fitting, pack, repair
from eunomia_plugins.shockwave.planner import plan_window, starts_of
from eunomia_plugins.shockwave.programme import solve_programme
from eunomia_solvers import Limits, solve_linear

EXACT = Limits(gap=1e-9)
SAMPLE, ALL = range(24), range(200)


def instance(
    *jobs: tuple[int, float, float], gpus: int = 2, rounds: int = 3, regularizer: float = 0.0, by_gpus: bool = False
) -> Instance:
    """Jobs by gang, rounds of work and weight; utility is the part of the work that is done."""
    work = np.array([job[1] for job in jobs])
    utility = np.minimum(np.arange(rounds + 1.0), work[:, None]) / work[:, None]
    return Instance(
        gpus=np.array([job[0] for job in jobs]),
        value=logarithmic(utility, np.array([job[2] for job in jobs]), (0.0, 1.0), 0.1),
        left=work * ROUND,
        total=work * ROUND,
        capacity=gpus,
        seconds=ROUND,
        regularizer=regularizer,
        by_gpus=by_gpus,
    )


def best_of_all(of: Instance) -> float:
    """The optimum by brute force over counts, for gangs of one GPU: any counts within capacity can be packed."""
    ways = itertools.product(range(of.rounds + 1), repeat=of.jobs)
    return max(of.objective(np.array(way)) for way in ways if sum(way) <= of.capacity * of.rounds)


def test_for_unit_gangs_the_objective_equals_that_of_brute_force() -> None:
    luck = np.random.default_rng(3)
    for _ in range(20):
        jobs = [(1, float(luck.integers(1, 6)), float(luck.uniform(0.1, 3.0))) for _ in range(4)]
        of = instance(*jobs, regularizer=float(luck.choice([0.0, 0.5])))
        found = plan_window(of, np.zeros(4, dtype=bool)).record
        optimum = best_of_all(of)
        assert found.objective * of.scale <= optimum + 1e-9
        assert found.bound * of.scale >= optimum - 1e-9
        assert found.objective * of.scale == pytest.approx(optimum, abs=1e-9 + found.gap * abs(optimum))


def test_equation_11_gives_the_value_computed_by_hand() -> None:
    # Two jobs of 2 and 4 rounds on 2 GPUs, T = 1: each has one round. log of half and of a quarter on the line from
    # (0, log 0.1) to (1, 0): half of log 0.1, three quarters of it. H = max((1 + 3) / 2, 3) rounds; Z0 = 6 rounds.
    of = instance((1, 2.0, 1.0), (1, 4.0, 2.0), rounds=1, regularizer=0.5)
    counts = np.array([1, 1])
    assert of.terms(counts) == pytest.approx((2 * ROUND, 3 * ROUND))
    welfare = (0.5 + 2.0 * 0.75) * np.log(0.1) / (2 * 2)
    assert of.objective(counts) / of.scale == pytest.approx(welfare - 0.5 * 3 / 6)


def test_an_option_sets_whether_the_mean_weighs_gangs_by_gpus() -> None:
    jobs = ((1, 3.0, 1.0), (2, 3.0, 1.0))
    assert instance(*jobs).terms(np.array([1, 1]))[0] == pytest.approx((2 + 2) * ROUND / 2)
    assert instance(*jobs, by_gpus=True).terms(np.array([1, 1]))[0] == pytest.approx((2 + 2 * 2) * ROUND / 2)


def test_with_a_large_regularizer_the_longest_job_gets_every_round() -> None:
    jobs = (*[(1, 1.0, 5.0)] * 6, (1, 9.0, 0.1))
    assert count_rounds(instance(*jobs, regularizer=0.0)).counts.tolist() == [1, 1, 1, 1, 1, 1, 0]
    counts = count_rounds(instance(*jobs, regularizer=1e3)).counts
    assert (counts[:6].sum(), counts[6]) == (3, 3)


@pytest.mark.parametrize("seed", SAMPLE)
def test_the_fast_path_is_within_its_gap_of_the_integer_programme(seed: int) -> None:
    check_against_programme(seed)


@pytest.mark.slow
def test_the_fast_path_is_within_its_gap_of_the_integer_programme_on_all_instances() -> None:
    equal, binding, lost, starts, fewest, exact_starts = 0, 0, 0, 0, 0.0, 0
    for seed in ALL:
        of, rounds, exact = check_against_programme(seed)
        counts, best, running = rounds.sum(axis=1), exact.sum(axis=1), before(of, seed)
        equal += of.objective(counts) >= of.objective(best) - 1e-9 * abs(of.objective(best))
        binding += of.regularizer > 0.0 and operator.lt(*of.terms(best))
        lost += used(of, counts) < used(of, best)
        starts += starts_of(rounds, running)
        fewest += solve_linear(programme._starts(of, counts, running), limits=EXACT).objective
        exact_starts += starts_of(exact, running)
    print(f"equal in {equal} of {len(ALL)}, the longest job sets H in {binding}; in {lost} a GPU-round is lost")
    print(f"starts {starts}, at least {fewest:g} with the same rounds by job; the programme's plan has {exact_starts}")
    assert equal >= 0.9 * len(ALL)
    assert lost == 0
    assert starts <= 1.2 * fewest


@pytest.mark.parametrize("seed", [134, 136, 174])
def test_gpu_rounds_left_idle_between_gangs_go_to_jobs_with_more_work(seed: int) -> None:
    of = drawn(seed)
    found = plan_window(of, before(of, seed)).rounds.sum(axis=1)
    assert used(of, found) == of.capacity * of.rounds


def check_against_programme(seed: int) -> tuple[Instance, Bools, Bools]:
    of = drawn(seed)
    running = before(of, seed)
    found = plan_window(of, running)
    exact = solve_programme(of, running, EXACT).rounds
    optimum, own = of.objective(exact.sum(axis=1)), of.objective(found.rounds.sum(axis=1))
    small = 1e-6 * max(1.0, abs(optimum))
    assert (of.gpus @ found.rounds).max(initial=0) <= of.capacity
    assert own <= optimum + small
    assert found.record.bound * of.scale >= optimum - small
    assert optimum - own <= found.record.gap * abs(own) + small
    return of, found.rounds, exact


def before(of: Instance, seed: int) -> Bools:
    found: Bools = np.random.default_rng(seed + 1000).random(of.jobs) < 0.4
    return found


def used(of: Instance, counts: Ints) -> int:
    """GPU-rounds in which jobs have work."""
    return int(of.gpus @ np.minimum(counts, of.useful))


def test_the_bound_is_tight_if_the_mean_sets_the_makespan_bound() -> None:
    luck = np.random.default_rng(5)
    jobs = [(int(luck.choice([1, 2, 4])), float(luck.uniform(1, 9)), float(luck.lognormal())) for _ in range(400)]
    of = instance(*jobs, gpus=32, rounds=20, regularizer=1.0)
    found = plan_window(of, np.zeros(of.jobs, dtype=bool))
    mean, longest = of.terms(found.rounds.sum(axis=1))
    assert mean > longest
    assert found.record.gap < 1e-4
    assert found.record.granted == 32 * 20


def test_concave_hulls_of_many_functions_equal_the_hull_of_each() -> None:
    luck = np.random.default_rng(1)
    value = np.sort(luck.uniform(0.0, 1.0, (50, 8)), axis=1)
    value[:10] = np.sqrt(np.arange(8.0))  # concave as they are
    for row, slopes in zip(value, hull_slopes(value), strict=True):
        hull = row[0] + np.concatenate([[0.0], np.cumsum(slopes)])
        chords = [
            max(
                row[low] + (row[high] - row[low]) * (at - low) / max(high - low, 1)
                for low in range(at + 1)
                for high in range(at, 8)
            )
            for at in range(8)
        ]
        assert hull == pytest.approx(chords)


def test_gangs_that_do_not_fit_are_skipped() -> None:
    assert fitting(np.array([2, 4, 1, 1, 1]), 4).tolist() == [0, 2, 3]
    assert fitting(np.array([], np.int64), 4).tolist() == []


def test_a_job_that_needs_every_round_gets_it_and_idle_gpus_are_used() -> None:
    # On two GPUs: the long job needs all three rounds; the short ones follow each other; the last has more work.
    plan = pack(
        np.array([3, 1, 1, 0]), np.array([3, 1, 1, 3]), np.ones(4, np.int64), np.array([3.0, 0.0, 1.0, 2.0]), 2, 3
    )
    assert plan.astype(int).tolist() == [[1, 1, 1], [1, 0, 0], [0, 1, 0], [0, 0, 1]]


def test_rounds_lost_between_gangs_are_recovered_by_moving_other_jobs() -> None:
    # Both single jobs stand in different rounds, so the pair has no room in either; one of them moves.
    plan = np.array([[1, 0], [0, 1], [0, 0]], dtype=bool)
    repaired = repair(plan, np.array([1, 1, 1]), np.array([1, 1, 2]), 2)
    assert repaired.sum(axis=1).tolist() == [1, 1, 1]
    assert (np.array([1, 1, 2]) @ repaired).tolist() == [2, 2]


def test_a_plan_without_jobs_is_empty() -> None:
    of = instance((1, 1.0, 1.0))
    nothing = Instance(
        gpus=of.gpus[:0],
        value=of.value[:0],
        left=of.left[:0],
        total=of.total[:0],
        capacity=2,
        seconds=ROUND,
        regularizer=1.0,
    )
    assert plan_window(nothing, np.zeros(0, dtype=bool)).rounds.shape == (0, 3)
    assert solve_programme(nothing, np.zeros(0, dtype=bool), EXACT).rounds.shape == (0, 3)
