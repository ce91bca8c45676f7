"""The policies of the family as plugins: when they solve, their memos, and the effects of their options."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from eunomia import Allocation, Grants, Reason, Stage, TimeShares
from eunomia.platform.registry import Registry
from eunomia.testing.builders import World
from eunomia_plugins.elasticity.fixed import Fixed
from eunomia_plugins.gavel.sharing import Shares

REGISTRY = Registry.find(installed=False)
SHARING = ("max_min_fairness", "finish_time_fairness", "max_sum_throughput", "min_total_duration", "gandiva_fair")


def asked(world: World, name: str, *, now: float = 0.0, **options: object) -> Allocation:
    plugin = REGISTRY.make(name, options, alias=name, place=".".join)
    snapshot = world.snapshot(now=now)
    answer: Allocation = plugin.eunomia_allocation(snapshot, Fixed().eunomia_elasticity(snapshot), world.offer(now))
    return answer


def shares(world: World, name: str, *, now: float = 0.0, **options: object) -> dict[str, list[float]]:
    answer = asked(world, name, now=now, **options)
    assert isinstance(answer.amount, TimeShares)
    names = [str(world.snapshot().jobs.id[row]) for row in answer.claims.rows]
    return dict(zip(names, answer.amount.share.tolist(), strict=True))


def two_types() -> World:
    """P100 comes before V100: a is twice as fast on V100, b as fast on both."""
    world = World("1x2 P100, 1x2 V100").job("a/1", iterations=100.0).job("b/1", iterations=100.0)
    for gpu_type, rate in (("P100", 1.0), ("V100", 2.0)):
        world.measures("a/1", 1, rate, gpu_type=gpu_type).measures("b/1", 1, 1.0, gpu_type=gpu_type)
    return world


RATES = np.array([(1.0, 2.0), (1.0, 3.0), (1.0, 1.0), (2.0, 1.0), (0.5, 2.0)])
SIZES = np.array([1, 2, 1, 2, 1])
LEFT = np.arange(1, 6) * 100.0
Table = npt.NDArray[np.float64]


def _rho(share: Table) -> float:
    part = 2.0 / (5 * SIZES)[:, None] * np.ones(2)
    alone = LEFT / (RATES * part).sum(axis=1)
    return -float(((50.0 + LEFT / (RATES * share).sum(axis=1)) / alone).max())


GOALS: dict[str, Callable[[Table], float]] = {
    "max_min_fairness": lambda share: float(((RATES * share).sum(axis=1) * SIZES / RATES.mean(axis=1)).min()),
    "min_total_duration": lambda share: float(((RATES * share).sum(axis=1) / LEFT).min()),
    "max_sum_throughput": lambda share: float((RATES * share).sum()),
    "finish_time_fairness": _rho,
}


@pytest.mark.parametrize("name", GOALS)
def test_the_specification_reaches_the_same_objective(name: str) -> None:
    world = World("1x2 P100, 1x2 V100")
    for number, (size, rates) in enumerate(zip(SIZES.tolist(), RATES.tolist(), strict=True)):
        job = f"j{number}/1"
        world.job(job, gpus=size, iterations=LEFT[number])
        for gpu_type, rate in zip(("P100", "V100"), rates, strict=True):
            world.measures(job, size, rate, gpu_type=gpu_type)
    fast, slow = (
        GOALS[name](np.array(list(shares(world, name, now=50.0, performance=True, solver=solver).values())))
        for solver in ("fast", "reference")
    )
    assert fast == pytest.approx(slow, rel=1e-4)


@pytest.mark.parametrize("name", ["max_min_fairness", "finish_time_fairness"])
@pytest.mark.parametrize("solver", ["fast", "reference"])
def test_capacity_beyond_the_level_is_used_whatever_the_solver_is(name: str, solver: str) -> None:
    world = World("1x3 V100")
    for job, gang in (("a/1", 1), ("b/1", 2)):
        world.job(job, gpus=gang, iterations=100.0, seconds_per_iteration=1.0).measures(job, gang, 1.0)
    given = {beyond: shares(world, name, now=50.0, solver=solver, beyond=beyond) for beyond in ("spread", "nothing")}
    used = {beyond: sum(share[0] for share in found.values()) for beyond, found in given.items()}
    assert used["spread"] > used["nothing"] + 0.1


def test_without_the_option_performance_jobs_have_equal_shares_of_each_type() -> None:
    found = shares(two_types(), "max_min_fairness")
    assert found == {"a/1": [0.5, 0.5], "b/1": [0.5, 0.5]}


def test_with_the_option_performance_a_job_gets_the_type_that_speeds_it_up_most() -> None:
    world = two_types().job("c/1").job("d/1")
    for gpu_type in ("P100", "V100"):
        world.measures("c/1", 1, 1.0, gpu_type=gpu_type)
        world.measures("d/1", 1, 2.0 if gpu_type == "V100" else 1.0, gpu_type=gpu_type)
    found = shares(world, "max_min_fairness", performance=True)
    assert found["a/1"][1] > 0.7
    assert found["d/1"][1] > 0.7
    assert found["b/1"][0] > 0.7


def test_a_job_gets_no_share_of_a_type_on_which_it_does_not_run() -> None:
    world = World("1x1 P100, 1x1 V100").job("a/1").measures("a/1", 1, 2.0, gpu_type="V100")
    world.measures("a/1", 1, 0.0, gpu_type="P100").job("b/1").measures("b/1", 1, 1.0, gpu_type="V100")
    for name in SHARING:
        assert shares(world, name, performance=True)["a/1"][0] == 0.0


def test_a_job_of_weight_two_gets_twice_the_share() -> None:
    world = World("1x1 V100").app("a", weight=2.0).job("a/1").job("b/1")
    assert shares(world, "max_min_fairness") == {"a/1": [pytest.approx(2 / 3)], "b/1": [pytest.approx(1 / 3)]}
    assert shares(world, "max_min_fairness", weighted=False) == {"a/1": [0.5], "b/1": [0.5]}
    assert shares(world, "gandiva_fair", among="apps")["a/1"] == [pytest.approx(2 / 3)]


def test_tickets_by_size_give_equal_time_instead_of_equal_gpus() -> None:
    world = World("1x4 V100").job("a/1", gpus=4).job("b/1", gpus=1).job("c/1", gpus=3)
    assert shares(world, "gandiva_fair", tickets="size")["a/1"] == [pytest.approx(0.5)]
    equal = shares(world, "gandiva_fair", tickets="equal")
    assert equal["b/1"] == [pytest.approx(1.0)]
    assert equal["a/1"] == [pytest.approx(1.5 / 4)]


def test_users_have_equal_shares_however_many_jobs_they_have() -> None:
    world = World("1x4 V100").app("a", user="ana").app("b", user="ben")
    world.job("a/1", gpus=2).job("a/2", gpus=2).job("a/3", gpus=2).job("b/1", gpus=2).job("b/2", gpus=2)
    found = shares(world, "gandiva_fair")
    assert [found[f"a/{number}"][0] for number in (1, 2, 3)] == [pytest.approx(1 / 3)] * 3
    assert [found[f"b/{number}"][0] for number in (1, 2)] == [pytest.approx(1 / 2)] * 2


def test_an_option_sets_the_price_of_a_fast_gpu_with_one_buyer() -> None:
    # Each has half of each type: a buys fast GPUs from b, at 1.5 slow ones, or at 1, as b gains nothing from them.
    world = World("1x2 P100, 1x2 V100").app("a", user="ana").job("a/1", gpus=2).app("b", user="ben").job("b/1", gpus=2)
    for gpu_type, rate in (("P100", 1.0), ("V100", 2.0)):
        world.measures("a/1", 2, rate, gpu_type=gpu_type).measures("b/1", 2, 1.0, gpu_type=gpu_type)
    assert shares(world, "gandiva_fair")["a/1"][1] == pytest.approx((1 + 2 / 3) / 2, abs=0.02)
    assert shares(world, "gandiva_fair", price="second")["a/1"][1] == pytest.approx(1.0, abs=0.02)


def test_the_policy_min_total_duration_divides_time_by_work() -> None:
    world = World("1x1 V100").job("a/1", iterations=300.0, seconds_per_iteration=1.0)
    world.job("b/1", iterations=100.0, seconds_per_iteration=1.0)
    assert shares(world, "min_total_duration") == {"a/1": [pytest.approx(0.75)], "b/1": [pytest.approx(0.25)]}


def test_maximal_throughput_starves_slow_jobs_unless_throughputs_are_normalized() -> None:
    world = World("1x1 V100").job("a/1", seconds_per_iteration=1.0).job("b/1", seconds_per_iteration=0.1)
    assert shares(world, "max_sum_throughput") == {"a/1": [0.0], "b/1": [1.0]}
    assert sum(row[0] for row in shares(world, "max_sum_throughput", relative=True).values()) == pytest.approx(1.0)


def test_a_job_that_received_less_than_its_share_gets_more() -> None:
    world = World("1x1 V100").job("a/1", iterations=100.0, seconds_per_iteration=1.0)
    world.job("b/1", iterations=100.0, seconds_per_iteration=1.0, arrived=90.0)
    found = shares(world, "finish_time_fairness", now=100.0)
    assert found["a/1"][0] > 0.6
    assert found["a/1"][0] + found["b/1"][0] == pytest.approx(1.0)


def test_past_work_of_a_job_counts_at_the_speed_of_its_share_at_that_time() -> None:
    world = World("1x1 V100").job("a/1", iterations=100.0, seconds_per_iteration=1.0)
    memo = asked(world, "finish_time_fairness").memo
    assert isinstance(memo, Shares)
    assert memo.notes == {"a/1": (0.0, 100.0, 1.0)}
    world.job("b/1", iterations=100.0, seconds_per_iteration=1.0, arrived=40.0)
    world._jobs.live.done[world.row("a/1")] = 40.0
    world.remembers("finish_time_fairness", Stage.ALLOCATION, memo)
    later = asked(world, "finish_time_fairness", now=40.0).memo
    assert isinstance(later, Shares)
    assert later.notes["a/1"] == (40.0, 60.0, 0.5)


# --- when a solution is found --------------------------------------------------------------------------------------


def test_a_solution_is_kept_while_no_job_arrives_or_leaves() -> None:
    world = World("1x1 V100").job("a/1")
    first = asked(world, "max_min_fairness", now=5.0)
    assert isinstance(first.memo, Shares)
    world.remembers("max_min_fairness", Stage.ALLOCATION, first.memo)
    again = asked(world, "max_min_fairness", now=500.0)
    assert again.memo is None
    assert isinstance(again.amount, TimeShares)
    assert again.amount.since == 5.0


@pytest.mark.parametrize(("now", "solved"), [(104.0, False), (105.0, True)])
def test_a_new_job_waits_until_the_solution_is_old_enough(now: float, solved: bool) -> None:
    world = World("1x2 V100").job("a/1")
    first = asked(world, "max_min_fairness", now=5.0).memo
    assert first is not None
    world.remembers("max_min_fairness", Stage.ALLOCATION, first).job("b/1")
    answer = asked(world, "max_min_fairness", now=now, least_between="100s")
    assert (answer.memo is not None) is solved
    assert answer.verdicts.rows.tolist() == ([] if solved else [world.row("b/1")])
    assert answer.verdicts.reasons.tolist() == ([] if solved else [Reason.AWAITING_ROUND])


def test_a_solution_of_time_0_or_with_only_ended_jobs_is_replaced_at_once() -> None:
    world = World("1x2 V100").job("a/1")
    start = asked(world, "max_min_fairness", now=0.0).memo
    assert start is not None
    world.remembers("max_min_fairness", Stage.ALLOCATION, start).job("b/1")
    assert asked(world, "max_min_fairness", now=1.0, least_between="100s").memo is not None
    gone = Shares(at=5.0, capacity=(2,), jobs=("x/1",), share={"x/1": (1.0,)}, notes={})
    world.remembers("max_min_fairness", Stage.ALLOCATION, gone)
    assert asked(world, "max_min_fairness", now=6.0, least_between="100s").memo is not None


def test_a_changed_capacity_causes_a_new_solution() -> None:
    world = World("2x1 V100").job("a/1")
    first = asked(world, "max_min_fairness", now=5.0).memo
    assert first is not None
    world.remembers("max_min_fairness", Stage.ALLOCATION, first).down(1)
    assert asked(world, "max_min_fairness", now=6.0, least_between="100s").memo is not None


def test_the_memo_is_decoded_as_it_was_encoded() -> None:
    memo = Shares(at=0.1, capacity=(2, 3), jobs=("a/1",), share={"a/1": (0.1, 0.2)}, notes={"a/1": (1.0, 2.0, 3.0)})
    assert Shares.from_bytes(memo.version, memo.to_bytes()) == memo


# --- AlloX --------------------------------------------------------------------------------------------------------


def served(world: World, **options: object) -> dict[str, tuple[int, int]]:
    answer = asked(world, "allox", now=0.0, **options)
    assert isinstance(answer.amount, Grants)
    kinds = answer.amount.gpu_type
    rows = answer.claims.rows
    return {
        str(world.snapshot().jobs.id[rows[claim]]): (
            int(answer.amount.gpus[claim]),
            -1 if kinds is None else int(kinds[claim]),
        )
        for claim in answer.order.tolist()
    }


def test_with_one_type_gangs_are_served_by_least_remaining_gpu_time() -> None:
    world = World("1x4 V100").job("long/1", iterations=90.0, seconds_per_iteration=1.0)
    world.job("wide/1", gpus=4, iterations=40.0, seconds_per_iteration=4.0)
    world.job("short/1", iterations=10.0, seconds_per_iteration=1.0)
    assert list(served(world)) == ["short/1", "long/1", "wide/1"]


def test_a_type_is_matched_to_the_job_that_gains_most_from_it() -> None:
    world = World("1x1 P100, 1x1 V100").job("a/1", iterations=100.0).job("b/1", iterations=100.0)
    for name, fast in (("a/1", 1.1), ("b/1", 4.0)):
        world.measures(name, 1, 1.0, gpu_type="P100").measures(name, 1, fast, gpu_type="V100")
    assert served(world) == {"a/1": (1, 0), "b/1": (1, 1)}
    assert served(world, solver="reference") == served(world)


def test_allox_does_not_move_running_jobs() -> None:
    world = World("1x2 V100").job("a/1").holds("a/1", 0, ends_at=0.0).job("b/1", iterations=5.0)
    assert list(served(world)) == ["b/1"]


def test_only_the_first_jobs_in_the_window_are_matched() -> None:
    world = World("1x1 V100")
    for number, work in enumerate((50.0, 40.0, 1.0)):
        world.job(f"j{number}/1", iterations=work, seconds_per_iteration=1.0, arrived=float(number))
    assert list(served(world, window=2)) == ["j1/1", "j0/1", "j2/1"]
