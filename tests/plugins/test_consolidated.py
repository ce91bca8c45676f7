import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eunomia import Allocation, Claims, Grants, Locality, Profile, Reason, Unit
from eunomia.errors import InputErrors
from eunomia.testing.builders import World
from eunomia_plugins.elasticity.fixed import Fixed
from eunomia_plugins.placement.consolidated import Consolidated, ConsolidatedOptions


def placed(
    world: World, *names: str, now: float = 0.0, **options: object
) -> tuple[dict[str, list[int]], dict[str, Reason]]:
    snapshot = world.snapshot(now=now)
    rows = np.array([world.row(name) for name in names], np.int32)
    grants = Allocation(
        claims=Claims(unit=Unit.JOB, rows=rows),
        amount=Grants(gpus=snapshot.jobs.most[rows]),
        order=np.arange(rows.size, dtype=np.int32),
    )
    plugin = Consolidated(ConsolidatedOptions.model_validate(options))
    answer = plugin.eunomia_placement(snapshot, Fixed().eunomia_elasticity(snapshot), world.offer(now), grants)
    gpus = {names[claim]: answer.of(index).tolist() for index, claim in enumerate(answer.claim.tolist())}
    said = zip(answer.verdicts.rows.tolist(), answer.verdicts.reasons.tolist(), strict=True)
    return gpus, {str(snapshot.jobs.id[row]): Reason(reason) for row, reason in said}


def torn() -> World:
    """Two machines with two GPUs free on each."""
    world = World("2x4 V100").job("x/1", gpus=2).job("x/2", gpus=2)
    return world.holds("x/1", 0, 1).holds("x/2", 4, 5).job("a/1", gpus=4).job("b/1", gpus=2)


def test_a_gang_waits_for_one_machine_and_later_jobs_pass_it() -> None:
    gpus, said = placed(torn(), "a/1", "b/1")
    assert list(gpus) == ["b/1"]
    assert said == {"a/1": Reason.FRAGMENTED}


def test_a_gang_stops_waiting_after_the_patience_time() -> None:
    assert list(placed(torn(), "a/1", now=59.0, patience="1m")[0]) == []
    assert placed(torn(), "a/1", now=60.0, patience="1m")[0] == {"a/1": [2, 3, 6, 7]}


def test_small_gangs_need_not_wait() -> None:
    assert list(placed(torn(), "a/1", above=4)[0]) == ["a/1"]


@pytest.mark.parametrize(("far", "waits"), [(3.9, False), (3.6, False), (3.5, True)])
def test_only_gangs_with_measured_slowdown_wait(far: float, waits: bool) -> None:
    world = torn().measures("a/1", 4, 4.0).measures("a/1", 4, far, locality=Locality.RACK)
    assert (placed(world, "a/1", needs="slowed")[0] == {}) is waits
    assert list(placed(torn(), "a/1", needs="slowed")[0]) == ["a/1"]


def test_a_gang_larger_than_a_machine_uses_the_fewest_machines() -> None:
    world = World("3x4 V100").job("a/1", gpus=6).job("x/1", gpus=1)
    assert len(placed(world, "a/1")[0]["a/1"]) == 6
    world = World("3x4 V100").job("a/1", gpus=6)
    for number, gpu in enumerate((0, 4, 5, 8)):
        world.job(f"x/{number}").holds(f"x/{number}", gpu)
    assert np.unique(world.cluster.machine[placed(world, "a/1")[0]["a/1"]]).tolist() == [0, 2]
    world.job("x/9").holds("x/9", 1)
    assert placed(world, "a/1")[1] == {"a/1": Reason.FRAGMENTED}


def test_an_allocation_with_pins_refuses_the_placement_consolidated() -> None:
    with pytest.raises(InputErrors) as refused:
        Profile.load("isolated", settings={"stages.placement": "consolidated"})
    assert str(refused.value).startswith('placement "consolidated" must honour pins, but does not')
    assert 'take "packed"' in str(refused.value)


@given(st.lists(st.integers(1, 8), min_size=1, max_size=8), st.sets(st.integers(0, 11), max_size=6))
def test_every_placed_gang_is_on_the_fewest_machines(sizes: list[int], taken: set[int]) -> None:
    world = World("3x4 V100")
    for gpu in taken:
        world.job(f"x/{gpu}").holds(f"x/{gpu}", gpu)
    for number, size in enumerate(sizes):
        world.job(f"a/{number}", gpus=size)
    gpus, _ = placed(world, *(f"a/{number}" for number in range(len(sizes))))
    for number, size in enumerate(sizes):
        got = gpus.get(f"a/{number}", [])
        assert len(got) in (0, size)
        assert np.unique(world.cluster.machine[got]).size <= -(-size // 4)


def moved(*, stays: bool, taken: bool) -> list[int]:
    """GPUs of a job on K80s that is granted V100s, with and without a job ahead that takes its K80s."""
    world = World("2x4 K80, 1x4 V100").job("x/1", gpus=1).holds("x/1", 0, ends_at=0.0)
    world = world.job("b/1", gpus=4).holds("b/1", 4, 5, 6, 7, ends_at=0.0)
    world = world.job("a/1", gpus=4)
    snapshot = world.snapshot(now=0.0)
    rows = np.array([world.row("a/1"), world.row("b/1"), world.row("x/1")], np.int32)
    kinds = np.array([0 if taken else -1, 1, 0], np.int32)
    grants = Allocation(
        claims=Claims(unit=Unit.JOB, rows=rows),
        amount=Grants(gpus=np.array([4 if taken else 0, 4, 1]), gpu_type=kinds, stays=np.array([False, stays, True])),
        order=np.array([0, 1, 2] if taken else [1, 2], np.int32),
    )
    plugin = Consolidated(ConsolidatedOptions())
    answer = plugin.eunomia_placement(snapshot, Fixed().eunomia_elasticity(snapshot), world.offer(0.0), grants)
    return answer.of(answer.claim.tolist().index(1)).tolist()


def test_a_job_moves_to_another_type_only_if_another_job_takes_its_gpus() -> None:
    assert moved(stays=True, taken=False) == [4, 5, 6, 7]
    assert moved(stays=False, taken=False) == [8, 9, 10, 11]
    assert moved(stays=True, taken=True) == [8, 9, 10, 11]
