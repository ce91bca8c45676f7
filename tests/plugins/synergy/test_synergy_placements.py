"""Where Tune and Greedy put jobs, and the CPUs and memory that they get."""

import itertools

import numpy as np
import pytest
from hypothesis import given as over
from hypothesis import settings
from hypothesis import strategies as st
from synergy_lab import SERVER, given, granted, greedy, tune

from eunomia import Allocation, Placement, Reason
from eunomia.testing.builders import World
from strength import examples

TABLE_3 = {"j/1": (4, 23.0, 400.0), "j/2": (4, 12.0, 450.0), "j/3": (4, 1.0, 100.0), "j/4": (4, 12.0, 50.0)}
"""Synergy's Tables 2 and 3: GPUs, CPUs and memory that each job demands, on two servers."""


@pytest.mark.parametrize("order", list(itertools.permutations(TABLE_3)), ids="".join)
def test_table_3_is_reproduced_in_every_order_of_arrival(order: tuple[str, ...]) -> None:
    town = World(f"2x8 {SERVER}")
    for arrived, name in enumerate(order):
        town.job(name, gpus=4, arrived=float(arrived))
    allocation = granted(town, [(name, *TABLE_3[name]) for name in order])
    found = given(town, allocation, tune(town, allocation))
    on = {name: {gpu // 8 for gpu in gpus} for name, (gpus, _, _) in found.items()}
    assert on["j/1"] == on["j/3"] != on["j/2"] == on["j/4"]
    assert {name: (cpus, memory) for name, (_, cpus, memory) in found.items()} == {
        name: pytest.approx((cpus, memory)) for name, (_, cpus, memory) in TABLE_3.items()
    }


def test_a_job_whose_demand_does_not_fit_gets_its_share() -> None:
    town = World(f"1x8 {SERVER}").job("a/1", gpus=4).job("b/1", gpus=4)
    allocation = granted(town, [("a/1", 4, 12.0, 250.0), ("b/1", 4, 20.0, 250.0)])
    found = given(town, allocation, tune(town, allocation))
    assert found["b/1"][1:] == pytest.approx((20.0 - 8.0, 250.0))
    assert found["a/1"][1:] == pytest.approx((12.0, 250.0))


def test_a_job_with_more_than_its_share_is_reduced_for_an_arriving_job() -> None:
    town = World(f"1x8 {SERVER}").job("a/1", gpus=4).job("b/1", gpus=4)
    town.holds("a/1", 0, 1, 2, 3, cpus=5.75, memory_gib=62.5, ranges=(3.0, 5.75, 62.5, 62.5))
    allocation = granted(town, [("b/1", 4, 12.0, 250.0)])
    placed = tune(town, allocation)
    assert given(town, allocation, placed)["b/1"] == ([4, 5, 6, 7], pytest.approx(12.0), pytest.approx(250.0))
    assert placed.retunes is not None
    assert placed.retunes.jobs.tolist() == [town.row("a/1")]
    assert placed.retunes.cpus is not None
    assert placed.retunes.cpus.tolist() == pytest.approx([12.0])


def test_a_running_job_below_its_demand_is_raised_if_cpus_are_left() -> None:
    town = World(f"1x8 {SERVER}").job("a/1", gpus=4)
    town.holds("a/1", 0, 1, 2, 3, cpus=3.0, memory_gib=62.5, ranges=(3.0, 6.0, 62.5, 62.5))
    placed = tune(town, granted(town, []))
    assert placed.retunes is not None
    assert placed.retunes.cpus is not None
    assert placed.retunes.cpus.tolist() == pytest.approx([24.0])


def test_without_the_option_retune_running_jobs_keep_their_cpus_and_memory() -> None:
    town = World(f"1x8 {SERVER}").job("a/1", gpus=4).job("b/1", gpus=4)
    town.holds("a/1", 0, 1, 2, 3, cpus=5.75, memory_gib=62.5, ranges=(3.0, 5.75, 62.5, 62.5))
    placed = tune(town, granted(town, [("b/1", 4, 12.0, 250.0)]), retune=False)
    assert placed.retunes is None
    assert placed.claim.size == 0
    assert placed.verdicts.reasons.tolist() == [int(Reason.CPUS_SHORT)]


def test_a_job_on_two_machines_has_the_same_cpus_and_memory_for_each_gpu() -> None:
    town = World(f"2x8 {SERVER}").job("a/1", gpus=12)
    placed = tune(town, granted(town, [("a/1", 12, 48.0, 600.0)]))
    assert placed.cpus is not None
    assert np.ptp(placed.cpus) == 0.0
    assert placed.gpus.size == 12
    assert placed.cpus[0] == pytest.approx(4.0)
    assert sorted(gpu // 8 for gpu in placed.gpus.tolist()) == [0] * 6 + [1] * 6


def test_greedy_skips_a_job_whose_demand_fits_nowhere() -> None:
    town = World(f"1x8 {SERVER}").job("a/1", gpus=4).job("b/1", gpus=2).job("c/1", gpus=2)
    jobs = [("a/1", 4, 20.0, 250.0), ("b/1", 2, 12.0, 50.0), ("c/1", 2, 2.0, 50.0)]
    allocation = granted(town, jobs, standby=["c/1"])
    placed = greedy(town, allocation)
    assert sorted(given(town, allocation, placed)) == ["a/1", "c/1"]
    assert placed.verdicts.rows.tolist() == [town.row("b/1")]


_DEMANDS = st.tuples(
    st.sampled_from([1, 1, 1, 2, 4, 8, 12]), st.sampled_from([1, 3, 4, 9, 12]), st.sampled_from([20, 62, 150])
)


@settings(max_examples=examples(60), deadline=None)
@over(st.lists(_DEMANDS, min_size=1, max_size=16))
def test_tune_serves_every_job_for_which_gpus_are_left_with_at_least_its_minimum(
    drawn: list[tuple[int, int, int]],
) -> None:
    town, jobs, left = World(f"3x8 {SERVER}"), [], 24
    for number, (gpus, cpus, memory) in enumerate(drawn):
        if gpus <= left:
            left -= gpus
            town.job(f"a/{number}", gpus=gpus)
            jobs.append((f"a/{number}", gpus, float(gpus * cpus), float(gpus * memory)))
    allocation = granted(town, jobs)
    found = given(town, allocation, tune(town, allocation))
    assert sorted(found) == sorted(name for name, *_ in jobs)
    _check_amounts(town, allocation, tune(town, allocation))


def _check_amounts(town: World, allocation: Allocation, placed: Placement) -> None:
    cluster, grants = town.snapshot().cluster, allocation.amount
    for column, bounds, total in (
        (placed.cpus, grants.cpus, cluster.machine_cpus),  # type: ignore[union-attr]
        (placed.memory_gib, grants.memory_gib, cluster.machine_memory_gib),  # type: ignore[union-attr]
    ):
        assert column is not None
        assert (np.bincount(cluster.machine[placed.gpus], weights=column, minlength=3) <= total * (1 + 1e-9)).all()
        for turn, claim in enumerate(placed.claim.tolist()):
            mine = column[placed.start[turn] : placed.start[turn + 1]]
            assert bounds.least[claim] * (1 - 1e-9) <= mine.sum() <= bounds.most[claim] * (1 + 1e-9)
