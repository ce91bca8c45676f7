"""Tiresias in full: queues, promotion of starved jobs, the memo; tests without a memo are in test_orders."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eunomia import Scores, Stage, Valuations
from eunomia.testing.builders import World
from eunomia_plugins.elasticity.fixed import Fixed
from eunomia_plugins.orders.las import Las, LasOptions
from eunomia_plugins.orders.promotions import Promotions

QUEUES = (100.0, 1000.0)


def value(world: World, *, now: float, **options: object) -> Valuations:
    plugin = Las(LasOptions.model_validate({"queues": QUEUES, "promote": True, "promote_knob": 2.0, **options}))
    snapshot = world.snapshot(now=now)
    return plugin.eunomia_valuation(snapshot, Fixed().eunomia_elasticity(snapshot), world.offer(now))


def queues(world: World, answer: Valuations) -> dict[str, float]:
    ids = world.snapshot().jobs.id
    scores = answer.form(Scores).score[:, 0].tolist()
    return {str(ids[row]): score for row, score in zip(answer.claims.rows, scores, strict=True)}


def ran(world: World, name: str, *, seconds: float, until: float) -> World:
    ledger = world._job_ledger.live
    ledger.attained[world.row(name)], ledger.last_ran[world.row(name)] = seconds, until
    return world


def starving() -> World:
    """A job that ran 50 s on 4 GPUs until 60: with the knob at 2 it starves from 160 on."""
    return ran(
        World("1x4 V100").job("a/1", gpus=4, received=200.0).job("b/1", received=10.0), "a/1", seconds=50, until=60
    )


def test_a_job_that_waited_for_the_limit_returns_to_the_first_queue() -> None:
    world = starving()
    before = value(world, now=159.0)
    assert queues(world, before) == {"a/1": 1.0, "b/1": 0.0}
    assert before.wake_at == 160.0
    assert before.memo is not None
    assert before.memo.jobs == {}  # type: ignore[attr-defined]
    after = value(world, now=160.0)
    assert queues(world, after) == {"a/1": 0.0, "b/1": 0.0}
    assert after.memo.jobs == {"a/1": (200.0, 50.0, 160.0)}  # type: ignore[union-attr]


def test_after_a_promotion_service_counts_from_zero() -> None:
    world = starving().remembers("las", Stage.VALUATION, Promotions({"a/1": (200.0, 50.0, 160.0)}))
    ran(world, "a/1", seconds=75.0, until=480.0)
    world._job_ledger.live.received[world.row("a/1")] = 299.0
    assert queues(world, value(world, now=500.0))["a/1"] == 0.0
    world._job_ledger.live.received[world.row("a/1")] = 300.0
    assert queues(world, value(world, now=500.0))["a/1"] == 1.0


def test_a_promoted_job_that_still_waits_is_not_promoted_again_and_ended_jobs_are_dropped() -> None:
    memo = Promotions({"a/1": (200.0, 50.0, 160.0), "gone/1": (1.0, 1.0, 1.0)})
    answer = value(starving().remembers("las", Stage.VALUATION, memo), now=5000.0)
    assert answer.memo.jobs == {"a/1": (200.0, 50.0, 160.0)}  # type: ignore[union-attr]


def test_running_jobs_do_not_starve_and_without_the_option_no_job_is_promoted() -> None:
    world = starving().holds("a/1", 0, 1, 2, 3, ends_at=0.0)
    assert queues(world, value(world, now=900.0))["a/1"] == 1.0
    plain = value(starving(), now=900.0, promote=False)
    assert queues(starving(), plain)["a/1"] == 1.0
    assert plain.memo is None


def test_seconds_can_be_counted_instead_of_gpu_seconds() -> None:
    world = starving()
    assert queues(world, value(world, now=100.0, attained="seconds"))["a/1"] == 0.0
    assert queues(world, value(world, now=100.0, attained="seconds", queues=[50.0]))["a/1"] == 1.0


def test_the_field_holds_gives_the_time_until_a_started_job_changes_its_queue() -> None:
    world = World("1x4 V100").job("a/1", gpus=4, received=60.0).job("b/1", received=5000.0)
    holds = value(world, now=0.0, promote=False).holds
    assert holds is not None
    assert holds.tolist() == [10.0, float("inf")]


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=8),
        st.tuples(*[st.floats(0.0, 1e9, allow_nan=False)] * 3),
        max_size=6,
    )
)
def test_the_memo_is_decoded_as_it_was_encoded(jobs: dict[str, tuple[float, float, float]]) -> None:
    memo = Promotions(jobs)
    assert Promotions.from_bytes(memo.version, memo.to_bytes()) == memo


@given(st.floats(0.0, 2000.0), st.floats(0.0, 500.0), st.floats(1.0, 3000.0))
def test_the_wake_up_is_in_the_future_and_changes_the_order(received: float, seconds: float, now: float) -> None:
    world = ran(World().job("a/1", received=received), "a/1", seconds=seconds, until=0.5)
    answer = value(world, now=now)
    assert answer.wake_at > now
    if answer.wake_at < float("inf"):
        assert value(world, now=answer.wake_at + 1e-6).memo.jobs  # type: ignore[union-attr]


def test_the_preset_tiresias_has_the_stages_of_tiresias() -> None:
    from eunomia import Profile

    assert Profile.load("tiresias").plugins == {
        Stage.ELASTICITY: "fixed",
        Stage.VALUATION: "las",
        Stage.ALLOCATION: "ordered",
        Stage.PLACEMENT: "consolidated",
    }
    with pytest.raises(ValueError, match="greater than 0"):
        LasOptions(promote_knob=0.0)
