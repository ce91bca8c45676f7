import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eunomia import Grants, Reason
from eunomia.testing.builders import World
from eunomia_plugins.allocations.drf import Drf, DrfOptions
from eunomia_plugins.elasticity.range import Range, RangeOptions
from eunomia_plugins.orders.fifo import Fifo


def served(world: World, **options: object) -> tuple[list[str], dict[str, int], dict[str, Reason]]:
    snapshot, offer = world.snapshot(), world.offer()
    menus = Range(RangeOptions()).eunomia_elasticity(snapshot)
    plugin = Drf(DrfOptions.model_validate(options))
    answer = plugin.eunomia_allocation(snapshot, menus, offer, Fifo().eunomia_valuation(snapshot, menus, offer))
    assert isinstance(answer.amount, Grants)
    names = [str(snapshot.jobs.id[row]) for row in answer.claims.rows]
    order = [names[claim] for claim in answer.order.tolist()]
    said = zip(answer.verdicts.rows.tolist(), answer.verdicts.reasons.tolist(), strict=True)
    sizes = {name: int(answer.amount.gpus[names.index(name)]) for name in order}
    return order, sizes, {str(snapshot.jobs.id[row]): Reason(reason) for row, reason in said}


def test_drf_serves_the_tasks_of_the_example_in_the_paper() -> None:
    """DRF §4.1: 9 CPUs and 18 GB; three tasks of (1 CPU, 4 GB) and two of (3 CPUs, 1 GB) are served."""
    world = World("1x18 V100 9cpu 18GiB").app("a", user="ana").app("b", user="bo")
    for number in range(9):
        world.job(f"a/{number}", arrived=float(number), cpus=1.0, memory_gib=4.0)
        world.job(f"b/{number}", arrived=float(number) + 0.5, cpus=3.0, memory_gib=1.0)
    order, _, said = served(world)
    assert [name[0] for name in order].count("a") == 3
    assert [name[0] for name in order].count("b") == 2
    assert order == ["a/0", "b/0", "a/1", "b/1", "a/2"]
    assert said["b/2"] is Reason.CPUS_SHORT


def test_without_requested_cpus_drf_is_fair_in_gpus() -> None:
    world = World("1x8 V100").app("a", user="ana").app("b", user="bo")
    world.job("a/1", gpus=4).job("a/2", gpus=4, arrived=1).job("b/1", gpus=2, arrived=2).job("b/2", gpus=2, arrived=3)
    assert served(world)[0] == ["a/1", "b/1", "b/2"]


def test_gpus_that_owners_already_hold_count_towards_their_shares() -> None:
    world = World("1x4 V100").app("a", user="ana").app("b", user="bo")
    world.job("a/0", gpus=2).holds("a/0", 0, 1).job("a/1").job("b/1", arrived=1).job("b/2", arrived=2)
    assert served(world)[0] == ["b/1", "b/2"]


def test_among_apps_a_weight_of_two_gives_twice_the_gpus() -> None:
    world = World("1x6 V100").app("a", weight=2.0).app("b")
    for number in range(6):
        world.job(f"a/{number}", arrived=number).job(f"b/{number}", arrived=number)
    order, _, _ = served(world, among="apps")
    assert [name[0] for name in order].count("a") == 4
    assert len(served(world)[0]) == 6


def test_a_job_waits_if_memory_runs_out_before_gpus() -> None:
    world = World("1x4 V100 32cpu 10GiB").job("a/1", gpus=2, memory_gib=4.0).job("a/2", memory_gib=4.0, arrived=1.0)
    _, sizes, said = served(world)
    assert sizes == {"a/1": 2}
    assert said == {"a/2": Reason.MEMORY_SHORT}


def test_an_elastic_job_gets_the_gpus_that_its_cpus_allow() -> None:
    world = World("1x8 V100 8cpu 64GiB").job("a/1", gpus=(1, 8), cpus=2.0)
    assert served(world)[1] == {"a/1": 4}


_JOBS = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(1, 3), st.integers(0, 3), st.sampled_from([None, 1.0, 4.0])),
    min_size=1,
    max_size=14,
)


@given(_JOBS)
def test_nothing_is_overcommitted_and_every_job_that_fits_is_served(
    jobs: list[tuple[str, int, int, float | None]],
) -> None:
    world = World("1x8 V100 16cpu 64GiB")
    for number, (user, least, more, cpus) in enumerate(jobs):
        world.app(f"app{number:02d}", user=user)
        asked_for = float("nan") if cpus is None else cpus
        world.job(f"app{number:02d}/1", gpus=(least, least + more), arrived=float(number), cpus=asked_for)
    _, sizes, _ = served(world)
    gpus = 8 - sum(sizes.values())
    asked = [cpus or 0.0 for _, _, _, cpus in jobs]
    left = 16.0 - sum(size * asked[int(name[3:5])] for name, size in sizes.items())
    assert gpus >= 0
    assert left >= -1e-6
    for number, (_, least, _, cpus) in enumerate(jobs):
        if f"app{number:02d}/1" not in sizes:
            assert least > gpus or least * (cpus or 0.0) > left + 1e-6


@given(st.lists(st.integers(1, 3), min_size=2, max_size=4))
def test_dominant_shares_differ_by_no_more_than_a_job(sizes: list[int]) -> None:
    world = World("2x6 V100")
    for owner, size in enumerate(sizes):
        for number in range(12):
            world.app(f"u{owner}x{number}", user=f"u{owner}").job(
                f"u{owner}x{number}/1", gpus=size, arrived=float(number)
            )
    _, got, _ = served(world)
    held = np.array(
        [sum(size for name, size in got.items() if name.startswith(f"u{owner}x")) for owner in range(len(sizes))]
    )
    assert held.max() - held.min() <= 2 * max(sizes)
    assert held.sum() == pytest.approx(12, abs=max(sizes) - 1)
