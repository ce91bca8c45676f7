"""The programmes against golden numbers, against their specification in cvxpy, and against brute force."""

import importlib
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from gavel_instances import fits, instance, instances
from hypothesis import given, settings
from hypothesis import strategies as st

from eunomia_plugins.gavel import reference
from eunomia_plugins.gavel.filling import fill_up, pooled_level
from eunomia_plugins.gavel.finish_time_fairness import own_part
from eunomia_plugins.gavel.gandiva_fair import parts
from eunomia_plugins.gavel.instance import Instance
from eunomia_plugins.gavel.matching import match
from eunomia_plugins.gavel.max_min_fairness import gains
from eunomia_plugins.gavel.programmes import classes_of, greatest_sum, highest_level, spread
from eunomia_plugins.gavel.rho import least_rho
from eunomia_plugins.gavel.trading import Price, trade
from strength import examples

FEW = settings(max_examples=examples(15))


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        # Gavel as OEF's equation (3) has it: rows of at most 1, one GPU of each type.
        ([[1.0, 2.0], [1.0, 3.0], [1.0, 4.0]], [[10 / 11, 1 / 11], [1 / 11, 5 / 11], [0.0, 5 / 11]]),
        ([[1.0, 2.5], [1.0, 3.0], [1.0, 4.0]], [[127 / 149, 22 / 149], None, None]),
    ],
)
def test_max_min_gives_the_highest_level_on_the_example_of_oef(
    rates: list[list[float]], expected: list[list[float] | None]
) -> None:
    made = instance(rates)
    for share in (highest_level(made, gains(made))[0], reference.highest_level(made, gains(made))[0]):
        for row, wanted in zip(share.tolist(), expected, strict=True):
            assert wanted is None or row == pytest.approx(wanted, abs=1e-5)


def test_max_min_gives_the_throughputs_computed_for_the_example_of_oef() -> None:
    made = instance([[1.0, 2.0], [1.0, 3.0], [1.0, 4.0]])
    share, level = highest_level(made, gains(made))
    assert (made.rate * share).sum(axis=1) == pytest.approx([12 / 11, 16 / 11, 20 / 11])
    assert level == pytest.approx(8 / 11)


@FEW
@given(instances())
def test_the_highest_level_equals_that_of_the_specification(made: Instance) -> None:
    gain = gains(made)
    share, level = highest_level(made, gain)
    specified, expected = reference.highest_level(made, gain)
    assert fits(made, share)
    assert fits(made, specified)
    assert level == pytest.approx(expected, rel=1e-5)
    assert (gain * share).sum(axis=1) == pytest.approx(level)


@FEW
@given(instances())
def test_spreading_leftover_capacity_gives_some_job_more_and_no_job_less(made: Instance) -> None:
    share, _ = highest_level(made, gains(made))
    wider = spread(made, share)
    assert fits(made, wider)
    assert (wider >= share - 1e-12).all()


def test_leftover_time_on_one_type_is_spread_equally_over_jobs() -> None:
    made = instance([[1.0]] * 3, gpus=[1, 2, 4], capacity=[10])
    share, level = highest_level(made, gains(made))
    assert level == pytest.approx(1.0)
    assert share[:, 0] == pytest.approx([1.0, 0.5, 0.25])
    # 7 of 10 GPUs are left, one for each asked for; those at all the time stop there.
    assert spread(made, share)[:, 0] == pytest.approx([1.0, 1.0, 1.0])
    made = instance([[1.0]] * 3, gpus=[1, 2, 4], capacity=[4])
    share, _ = highest_level(made, gains(made))
    assert spread(made, share)[:, 0] == pytest.approx([1.0, 0.5 + 1 / 7, 0.25 + 1 / 7])


@FEW
@given(instances())
def test_the_greatest_sum_equals_that_of_the_specification(made: Instance) -> None:
    share, total = greatest_sum(made, made.rate)
    _, expected = reference.greatest_sum(made, made.rate)
    assert fits(made, share)
    assert (made.rate * share).sum() == pytest.approx(total)
    assert total == pytest.approx(expected, rel=1e-5)


@FEW
@given(instances(), st.data())
def test_the_least_rho_equals_that_of_the_specification(made: Instance, data: st.DataObject) -> None:
    count = made.gpus.size
    left = np.array(data.draw(st.lists(st.sampled_from([1.0, 40.0, 1000.0]), min_size=count, max_size=count)))
    since = np.array(data.draw(st.lists(st.sampled_from([0.0, 5.0, 600.0]), min_size=count, max_size=count)))
    alone = left / own_part(made) + 0.3 * since
    share, rho = least_rho(made, left, alone, since)
    _, expected = reference.least_rho(made, left, alone, since)
    assert fits(made, share)
    assert rho == pytest.approx(expected, rel=1e-4)
    with np.errstate(divide="ignore"):
        reached = (since + left / (made.rate * share).sum(axis=1)) / alone
    assert reached.max() <= rho * (1.0 + 1e-6)


def test_equal_jobs_form_one_class() -> None:
    made = instance([[1.0, 2.0]] * 50 + [[2.0, 1.0]] * 30, capacity=[3, 4])
    classes = classes_of(made, gains(made))
    assert classes.jobs.tolist() == [50.0, 30.0] or classes.jobs.tolist() == [30.0, 50.0]


# --- water filling ------------------------------------------------------------------------------------------------


@FEW
@given(instances())
def test_no_job_can_gain_without_a_loss_of_a_job_with_at_most_as_much(made: Instance) -> None:
    gain = gains(made)
    share = fill_up(made, gain)
    assert fits(made, share)
    level = (gain * share).sum(axis=1)
    assert level.min() == pytest.approx(highest_level(made, gain)[1], rel=1e-3)
    for job in range(level.size):
        # With the jobs that have at most as much held at their levels, the job cannot have noticeably more.
        others = (level <= level[job] * (1 + 1e-4)) & (np.arange(level.size) != job)
        assert _most(made, gain, job, np.where(others, level, 0.0)) <= level[job] * (1 + 1e-3) + 1e-4


def _most(made: Instance, gain: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]", job: int, floor: object) -> float:
    cp: Any = importlib.import_module("cvxpy")
    share = cp.Variable(gain.shape, nonneg=True)
    level = cp.sum(cp.multiply(gain, share), axis=1)
    rules = [cp.sum(share, axis=1) <= 1, made.gpus @ share <= made.capacity, level >= np.asarray(floor) * (1 - 2e-6)]
    problem = cp.Problem(cp.Maximize(level[job]), rules)
    problem.solve(solver="HIGHS")
    return float(problem.value)


@given(st.lists(st.tuples(st.integers(1, 8), st.floats(0.1, 10.0)), min_size=1, max_size=8), st.integers(1, 40))
def test_jobs_on_one_type_of_gpu_are_raised_to_a_common_level(jobs: list[tuple[int, float]], total: int) -> None:
    gpus, gain = np.array([size for size, _ in jobs], float), np.array([worth for _, worth in jobs])
    part = pooled_level(gpus, gain, float(total))
    assert (part <= 1.0).all()
    assert float(gpus @ part) == pytest.approx(min(float(gpus.sum()), total))
    open_ = part < 1.0
    if open_.any():
        assert (part * gain)[open_] == pytest.approx((part * gain)[open_][0])
        assert (gain[~open_] <= (part * gain)[open_][0] * (1 + 1e-9)).all()


# --- Gandiva-fair -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "throughputs"),
    [
        (2.0, [4 / 45, 7 / 15, 4 / 9], [53 / 45, 7 / 5, 16 / 9]),
        (2.8, [28 / 261, 13 / 29, 4 / 9], [1.2146, 1.3448, 1.7778]),
    ],
)
def test_trades_give_the_throughputs_of_the_example_in_oef(
    first: float, second: list[float], throughputs: list[float]
) -> None:
    speed = np.array([[1.0, first], [1.0, 3.0], [1.0, 4.0]])
    gpus = trade(np.full((3, 2), 1 / 3), speed)
    assert gpus[:, 1] == pytest.approx(second)
    assert gpus.sum(axis=0) == pytest.approx([1.0, 1.0])
    true = np.array([[1.0, 2.0], [1.0, 3.0], [1.0, 4.0]])
    assert (true * gpus).sum(axis=1) == pytest.approx(throughputs, abs=5e-5)


def test_at_second_prices_a_single_buyer_pays_what_the_seller_would_lose() -> None:
    # The first owner sells at 3 to the third, whose slow GPUs then run out, and at its own speedup of 2 to the second.
    gpus = trade(np.full((3, 2), 1 / 3), np.array([[1.0, 2.0], [1.0, 3.0], [1.0, 4.0]]), "second")
    assert gpus[:, 1] == pytest.approx([1 / 18, 1 / 2, 4 / 9])
    assert gpus[0] @ [1.0, 2.0] == pytest.approx(1 + 1 / 9)


_SPEEDS = st.lists(st.lists(st.floats(0.5, 8.0), min_size=3, max_size=3), min_size=1, max_size=5)


@given(_SPEEDS, st.sampled_from(["paper", "second"]))
def test_a_trade_moves_gpus_and_makes_no_owner_worse_off(rows: list[list[float]], price: Price) -> None:
    speed = np.array(rows)
    before = np.full(speed.shape, 1.0 / speed.shape[0])
    after = trade(before, speed, price)
    assert (after >= 0.0).all()
    assert after.sum(axis=0) == pytest.approx(before.sum(axis=0))
    assert ((speed * after).sum(axis=1) >= (speed * before).sum(axis=1) - 1e-9).all()


def test_an_owner_gets_at_most_what_it_can_use_and_others_the_rest() -> None:
    ones = np.ones(3)
    assert parts(np.array([1.0, 10.0, 10.0]), ones, 9.0) == pytest.approx([1 / 9, 4 / 9, 4 / 9])
    assert parts(np.array([10.0, 10.0, 10.0]), np.array([2.0, 1.0, 1.0]), 8.0) == pytest.approx([0.5, 0.25, 0.25])
    assert parts(np.array([1.0, 2.0, 3.0]), ones, 12.0) == pytest.approx([1 / 12, 2 / 12, 3 / 12])


# --- AlloX --------------------------------------------------------------------------------------------------------


def _sum_of_completions(work: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]", lines: list[int]) -> float:
    """The least sum over all assignments of jobs to lines, by exhaustive search."""
    kinds = [kind for kind, count in enumerate(lines) for _ in range(count)]
    best = np.inf
    for order in permutations(range(work.shape[0])):
        for cut in range(len(kinds) ** work.shape[0]):
            at = [cut // len(kinds) ** job % len(kinds) for job in range(work.shape[0])]
            ends = [0.0] * len(kinds)
            total = 0.0
            for job in order:
                ends[at[job]] += work[job, kinds[at[job]]]
                total += ends[at[job]]
            best = min(best, total)
    return best


@settings(max_examples=examples(15))
@given(
    st.lists(st.lists(st.sampled_from([1.0, 2.0, 5.0, 9.0, np.inf]), min_size=2, max_size=2), min_size=1, max_size=4)
)
def test_the_matching_gives_the_least_sum_of_completion_times(rows: list[list[float]]) -> None:
    work = np.array([row if np.isfinite(row).any() else [3.0, 3.0] for row in rows])
    lines = np.array([1, 2])
    expected = _sum_of_completions(work, lines.tolist())
    for specified in (False, True):
        found = match(work, lines, reference=specified)
        cost = (work[np.arange(work.shape[0]), found.gpu_type] * found.place).sum()
        assert cost == pytest.approx(expected)


def test_on_one_type_the_longest_jobs_are_last() -> None:
    found = match(np.array([[5.0], [1.0], [3.0], [9.0], [7.0]]), np.array([2]))
    assert found.place.tolist() == [2, 3, 2, 1, 1]
