"""The refiner of Gavel's rounds: priorities, credit, deficits, and the order of GPU types."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eunomia import NEVER, Allocation, Claims, Grants, PluginError, Reason, Scope, Seconds, Stage, TimeShares, Unit
from eunomia.testing.builders import World
from eunomia_plugins.elasticity.fixed import Fixed
from eunomia_plugins.gavel.rounds import GavelRounds, GavelRoundsOptions
from eunomia_plugins.gavel.served import Served


def shares(world: World, wanted: dict[str, list[float]], since: float) -> Allocation:
    rows = np.array([world.row(name) for name in wanted], np.int32)
    return Allocation(
        claims=Claims(unit=Unit.JOB, rows=rows),
        amount=TimeShares(share=np.array(list(wanted.values()), float), since=Seconds(since)),
        order=np.arange(rows.size, dtype=np.int32),
    )


def refined(
    world: World, wanted: dict[str, list[float]], *, now: float, since: float = 0.0, **options: object
) -> tuple[dict[str, tuple[int, str]], Allocation]:
    snapshot = world.snapshot(now=now)
    plugin = GavelRounds(GavelRoundsOptions.model_validate({"round_length": "100s", **options}))
    menus = Fixed().eunomia_elasticity(snapshot)
    answer = plugin.eunomia_refine(snapshot, menus, world.offer(now, scope=Scope.ALL), shares(world, wanted, since))
    assert isinstance(answer.amount, Grants)
    kinds = answer.amount.gpu_type
    names = [str(snapshot.jobs.id[row]) for row in answer.claims.rows]
    types = world.cluster.gpu_types
    return {
        names[claim]: (int(answer.amount.gpus[claim]), "" if kinds is None else types[kinds[claim]])
        for claim in answer.order.tolist()
    }, answer


def serving(
    world: World,
    share: dict[str, list[float]],
    *,
    at: float = 0.0,
    received: dict[str, list[float]] | None = None,
    deficit: dict[str, list[float]] | None = None,
) -> World:
    tables = [{name: tuple(row) for name, row in (table or {}).items()} for table in (share, received, deficit)]
    memo = Served(at=at, share=tables[0], received=tables[1], deficit=tables[2])
    return world.remembers("gavel_rounds", Stage.REFINE, memo)


def test_the_priority_is_the_share_over_received_time_plus_half_a_round() -> None:
    # b has run one round of 100 s: 0.9 / 150 comes after 0.4 / 50. Without credit it would be the other way round.
    wanted = {"a/1": [0.4], "b/1": [0.9]}
    world = serving(World("1x1 V100").job("a/1").job("b/1", received=100.0), wanted)
    assert list(refined(world, wanted, now=100.0)[0]) == ["a/1"]
    world = serving(World("1x1 V100").job("a/1", received=50.0).job("b/1", received=100.0), wanted)
    assert list(refined(world, wanted, now=100.0)[0]) == ["b/1"]
    assert list(refined(world, {"a/1": [0.5], "b/1": [0.9]}, now=100.0, credit=1.0)[0]) == ["b/1"]


def test_received_time_is_counted_per_job_and_not_per_gpu() -> None:
    wanted = {"a/1": [0.4], "b/1": [0.5]}
    world = serving(World("1x4 V100").job("a/1", gpus=4, received=400.0).job("b/1", gpus=4, received=400.0), wanted)
    assert list(refined(world, wanted, now=100.0)[0]) == ["b/1"]


def test_ties_are_broken_by_deficit_then_share_then_arrival() -> None:
    wanted = {"a/1": [0.5], "b/1": [0.5], "c/1": [0.5]}
    world = World("1x1 V100").job("a/1").job("b/1").job("c/1")
    assert list(refined(world, wanted, now=0.0)[0]) == ["a/1"]
    serving(world, wanted, deficit={"b/1": [3.0], "c/1": [2.0]})
    assert list(refined(world, wanted, now=0.0)[0]) == ["b/1"]
    wanted = {"a/1": [0.5], "b/1": [1.0]}
    world = serving(World("1x1 V100").job("a/1", received=50.0).job("b/1", received=150.0), wanted)
    assert list(refined(world, wanted, now=200.0)[0]) == ["b/1"]


def test_rounding_errors_break_no_tie() -> None:
    wanted = {"a/1": [0.5], "b/1": [0.5]}
    world = World("1x1 V100").job("a/1", received=120.0 + 1e-9).job("b/1", received=120.0)
    assert list(refined(serving(world, wanted), wanted, now=0.0)[0]) == ["a/1"]


def test_a_new_solution_adds_the_unreceived_part_of_the_last_one_to_the_deficit() -> None:
    wanted = {"a/1": [0.5], "b/1": [0.5]}
    world = World("1x1 V100").job("a/1", received=130.0).job("b/1", received=20.0)
    serving(world, {"a/1": [0.8], "b/1": [0.2]}, at=100.0, received={"a/1": [30.0]}, deficit={"a/1": [1.0]})
    got, answer = refined(world, wanted, now=300.0, since=300.0)
    memo = answer.memo
    assert isinstance(memo, Served)
    assert memo.at == 300.0
    assert memo.deficit["a/1"][0] == pytest.approx(1.0 + 0.8 * 200.0 - 100.0)
    assert memo.deficit["b/1"][0] == pytest.approx(0.2 * 200.0 - 20.0)
    assert memo.received == {"a/1": (130.0,), "b/1": (20.0,)}
    assert list(got) == ["a/1"]


def test_an_unchanged_solution_leaves_the_memo_unchanged() -> None:
    wanted = {"a/1": [1.0]}
    world = serving(World("1x1 V100").job("a/1"), wanted, at=40.0)
    assert refined(world, wanted, now=60.0, since=40.0)[1].memo is None


def test_gpu_types_are_filled_one_after_another_and_a_job_runs_on_one() -> None:
    # GPU types are sorted: K80, P100, V100; they are walked V100, P100, K80.
    wanted = {"a/1": [0.0, 0.2, 0.1], "b/1": [0.9, 0.0, 0.3], "c/1": [0.1, 0.1, 0.0]}
    world = World("1x1 V100, 1x1 P100, 1x1 K80").job("a/1").job("b/1").job("c/1")
    assert refined(world, wanted, now=0.0)[0] == {"b/1": (1, "V100"), "a/1": (1, "P100"), "c/1": (1, "K80")}
    walked = refined(world, wanted, now=0.0, types=["K80"])[0]
    assert walked == {"b/1": (1, "K80"), "a/1": (1, "P100"), "c/1": (1, "V100")}


@pytest.mark.parametrize("fast", ["A100", "T4"])
def test_the_option_types_sets_the_order_of_types_and_the_default_is_fastest_first(fast: str) -> None:
    slow = "T4" if fast == "A100" else "A100"
    wanted = {"a/1": [0.5, 0.5], "b/1": [0.3, 0.3]}
    world = World("1x1 A100, 1x1 T4").job("a/1").job("b/1")
    for name in wanted:
        world = world.measures(name, 1, 3.0, gpu_type=fast).measures(name, 1, 1.0, gpu_type=slow)
    assert refined(world, wanted, now=0.0)[0] == {"a/1": (1, fast), "b/1": (1, slow)}
    assert refined(world, wanted, now=0.0, types=[slow])[0] == {"a/1": (1, slow), "b/1": (1, fast)}


def test_a_shuffled_type_order_is_fixed_within_a_round_and_differs_between_rounds() -> None:
    wanted = {"a/1": [0.3, 0.3, 0.3]}
    world = World("1x1 V100, 1x1 P100, 1x1 K80").job("a/1")
    plugin = GavelRounds(GavelRoundsOptions(walk="shuffled"))
    orders = [plugin._type_order(world.snapshot(round=number), np.ones(3)) for number in range(100)]
    assert orders == [plugin._type_order(world.snapshot(round=number), np.ones(3)) for number in range(100)]
    assert len({tuple(walk) for walk in orders}) == 6
    assert list(refined(world, wanted, now=0.0, walk="shuffled")[0]) == ["a/1"]


def test_a_job_without_a_share_of_a_type_is_ranked_last_on_that_type() -> None:
    wanted = {"a/1": [0.0, 1.0], "b/1": [0.0, 0.5]}
    world = World("1x1 V100, 1x1 P100").job("a/1", received=[0.0, 500.0]).job("b/1")
    for name, rate in (("a/1", 1.0), ("b/1", 0.0)):
        world.measures(name, 1, rate, gpu_type="P100").measures(name, 1, 1.0, gpu_type="V100")
    serving(world, wanted)
    assert refined(world, wanted, now=0.0)[0] == {"b/1": (1, "V100"), "a/1": (1, "P100")}
    serving(World("1x1 V100, 1x1 P100"), wanted)
    world = serving(
        World("1x1 V100, 1x1 P100").job("b/1").measures("b/1", 1, 0.0, gpu_type="V100"), {"b/1": [0.0, 1.0]}
    )
    world.measures("b/1", 1, 2.0, gpu_type="P100")
    assert refined(world, {"b/1": [0.0, 1.0]}, now=0.0)[0] == {"b/1": (1, "P100")}


def test_a_gang_that_does_not_fit_is_skipped_and_waits_for_its_share() -> None:
    wanted = {"a/1": [0.9], "b/1": [0.1]}
    world = World("1x4 V100").job("x/1").holds("x/1", 0, protected_until=NEVER).job("a/1", gpus=4).job("b/1", gpus=2)
    got, answer = refined(world, wanted, now=0.0)
    assert list(got) == ["b/1"]
    assert answer.verdicts.rows.tolist() == [world.row("a/1")]
    assert answer.verdicts.reasons.tolist() == [Reason.SHARE_USED_UP]


def test_rounds_end_by_the_clock_or_when_the_executor_reports_it() -> None:
    world = World().job("a/1")
    _, answer = refined(world, {"a/1": [1.0]}, now=230.0)
    assert (answer.lease, answer.protected, answer.wake_at) == (70.0, 70.0, 300.0)
    _, answer = refined(world, {"a/1": [1.0]}, now=230.0, ends="executor")
    assert (answer.lease, answer.protected, answer.wake_at) == (None, 0.0, NEVER)


def test_amounts_other_than_time_shares_of_jobs_are_refused() -> None:
    world = World().app("a").job("a/1")
    answer = shares(world, {"a/1": [1.0]}, 0.0)
    plugin = GavelRounds(GavelRoundsOptions())
    menus = Fixed().eunomia_elasticity(world.snapshot())
    for wrong in (
        dataclasses.replace(answer, claims=Claims(unit=Unit.APP, rows=answer.claims.rows)),
        dataclasses.replace(answer, amount=Grants(gpus=np.array([1]))),
    ):
        with pytest.raises(PluginError, match="gavel_rounds must get time shares of jobs"):
            plugin.eunomia_refine(world.snapshot(), menus, world.offer(), wrong)


_ROWS = st.dictionaries(st.text(min_size=1, max_size=6), st.tuples(st.floats(0, 1), st.floats(-1e9, 1e9)), max_size=5)


@given(st.floats(0.0, 1e9), _ROWS, _ROWS, _ROWS)
def test_the_memo_is_decoded_as_it_was_encoded(
    at: float,
    share: dict[str, tuple[float, ...]],
    received: dict[str, tuple[float, ...]],
    deficit: dict[str, tuple[float, ...]],
) -> None:
    memo = Served(at=at, share=share, received=received, deficit=deficit)
    assert Served.from_bytes(memo.version, memo.to_bytes()) == memo
