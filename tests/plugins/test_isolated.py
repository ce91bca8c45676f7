import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from eunomia import Allocation, Grants, Reason, Stage
from eunomia.testing.builders import World
from eunomia_plugins.allocations.isolated import Isolated, IsolatedOptions, Tenants
from eunomia_plugins.elasticity.range import Range, RangeOptions
from eunomia_plugins.orders.fifo import Fifo
from eunomia_plugins.placement.packed import Packed


def served(world: World, **options: object) -> tuple[dict[str, list[int]], dict[str, Reason], Allocation]:
    snapshot, offer = world.snapshot(now=100.0), world.offer(100.0)
    menus = Range(RangeOptions()).eunomia_elasticity(snapshot)
    plugin = Isolated(IsolatedOptions.model_validate(options))
    answer = plugin.eunomia_allocation(snapshot, menus, offer, Fifo().eunomia_valuation(snapshot, menus, offer))
    placement = Packed().eunomia_placement(snapshot, menus, offer, answer)
    names = [str(snapshot.jobs.id[row]) for row in answer.claims.rows]
    gpus = {names[claim]: placement.of(index).tolist() for index, claim in enumerate(placement.claim.tolist())}
    said = zip(answer.verdicts.rows.tolist(), answer.verdicts.reasons.tolist(), strict=True)
    return gpus, {str(snapshot.jobs.id[row]): Reason(reason) for row, reason in said}, answer


def world() -> World:
    made = World("2x4 V100").app("a", user="ana").app("b", user="bo", arrived=1.0)
    return made.job("a/1", gpus=(1, 8)).job("b/1", gpus=2, arrived=1.0)


def test_two_users_get_half_the_cluster_each_and_neither_borrows() -> None:
    gpus, said, _ = served(world().job("a/2", arrived=2.0))
    assert gpus == {"a/1": [0, 1, 2, 3], "b/1": [4, 5]}
    assert said == {"a/2": Reason.OUTRANKED}


def test_a_gang_larger_than_its_part_has_no_size_that_fits() -> None:
    assert served(world().job("b/2", gpus=5, arrived=2.0))[1] == {"b/2": Reason.NO_SIZE_FITS}


def test_parts_can_be_fixed_and_owners_keep_theirs() -> None:
    made = world()
    gpus, _, answer = served(made, parts=4)
    assert gpus == {"a/1": [0, 1], "b/1": [2, 3]}
    assert answer.memo == Tenants({"ana": 0, "bo": 1})
    made.remembers("isolated", Stage.ALLOCATION, Tenants({"bo": 3, "ana": 2, "gone": 0}))
    gpus, _, answer = served(made, parts=4)
    assert gpus == {"a/1": [4, 5], "b/1": [6, 7]}
    assert answer.memo == Tenants({"ana": 2, "bo": 3})


def test_additional_owners_share_the_part_with_the_fewest_owners() -> None:
    assert Tenants({"a": 1}).settled(["a", "b", "c", "d"], 2) == Tenants({"a": 1, "b": 0, "c": 0, "d": 1})
    assert Tenants({"a": 7}).settled(["a"], 2) == Tenants({"a": 0})


def test_apps_can_be_the_owners() -> None:
    made = World("1x4 V100").app("a").app("b", arrived=1.0).job("a/1", gpus=(1, 4)).job("b/1", gpus=(1, 4), arrived=1.0)
    assert served(made, among="apps")[0] == {"a/1": [0, 1], "b/1": [2, 3]}
    assert served(made)[0] == {"a/1": [0, 1, 2, 3]}


def test_a_job_that_runs_in_its_part_stays_there() -> None:
    made = world().holds("b/1", 6, 7, ends_at=50.0)
    assert served(made)[0]["b/1"] == [6, 7]


_JOBS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 3), st.integers(0, 3)), min_size=1, max_size=12)


@given(_JOBS, st.integers(0, 4), st.sets(st.integers(0, 11), max_size=5))
def test_no_part_grants_more_gpus_than_it_has_and_pins_add_up(
    jobs: list[tuple[str, int, int]], parts: int, taken: set[int]
) -> None:
    made = World("2x4 V100, 1x4 P100").app("x", user="x")
    for gpu in sorted(taken):
        made.job(f"x/{gpu}").holds(f"x/{gpu}", gpu)
    for number, (user, least, more) in enumerate(jobs):
        made.app(f"j{number:02d}", user=user).job(f"j{number:02d}/1", gpus=(least, least + more), arrived=float(number))
    gpus, _, answer = served(made, parts=parts)
    assert isinstance(answer.amount, Grants)
    assert isinstance(answer.memo, Tenants)
    used = [gpu for each in gpus.values() for gpu in each]
    assert len(used) == len(set(used))
    assert not taken & set(used)
    count = parts or len(answer.memo.part)
    for part in range(count):
        owners = {owner for owner, of in answer.memo.part.items() if of == part}
        mine = sum(
            int(size)
            for row, size in zip(answer.claims.rows, answer.amount.gpus, strict=True)
            if str(made.snapshot().users.id[made.snapshot().apps.user[made.snapshot().jobs.app[row]]]) in owners
        )
        start, end = part * 12 // count, (part + 1) * 12 // count
        assert mine <= end - start - len([gpu for gpu in taken if start <= gpu < end])
    if answer.amount.pins is not None:
        pinned = np.bincount(
            answer.amount.pins.claim, weights=answer.amount.pins.gpus, minlength=answer.amount.gpus.size
        )
        assert np.array_equal(pinned, answer.amount.gpus)


@given(st.dictionaries(st.text(min_size=1, max_size=6), st.integers(0, 9), max_size=5))
def test_the_memo_is_decoded_as_it_was_encoded(part: dict[str, int]) -> None:
    assert Tenants.from_bytes(1, Tenants(part).to_bytes()) == Tenants(part)
