"""Values by curve and length equal those of each claim, and only those that an allocation asks for are computed."""

from collections.abc import Callable

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from eunomia import Allocation, ByCurve, BySize, Grants, Menus, Offer, Scope, SizeUnit, Snapshot, Valuations
from eunomia.testing.builders import World
from eunomia.units import Reals, Rows
from eunomia_plugins.allocations.marginal_gain import BLOCK, MarginalGain
from eunomia_plugins.elasticity.range import Range, RangeOptions
from eunomia_plugins.themis_baselines.optimus import Optimus
from eunomia_plugins.themis_baselines.sizes import size_rows
from strength import examples

JOBS = st.lists(
    st.tuples(
        st.integers(1, 4),
        st.integers(0, 4),
        st.sampled_from([50.0, 200.0, float("nan")]),
        st.sampled_from([1.0, 0.25, float("nan")]),
        st.sampled_from([0.0, 9000.0]),
        st.sampled_from([None, 0.0, 3.0]),
    ),
    max_size=12,
)


def world_of(jobs: list[tuple[int, int, float, float, float, float | None]], cluster: str = "2x4 V100") -> World:
    world = World(cluster)
    for number, (least, more, iterations, seconds, received, rate) in enumerate(jobs):
        name = f"a/{number}"
        world.job(
            name,
            gpus=(least, least + more),
            arrived=float(number),
            iterations=iterations,
            seconds_per_iteration=seconds,
            received=received,
        )
        if rate is not None:
            world.measures(name, least, rate)
    return world


def valued(world: World) -> tuple[Snapshot, Menus, Offer, Valuations]:
    snapshot, offer = world.snapshot(), world.offer(scope=Scope.ALL)
    menus = Range(RangeOptions()).eunomia_elasticity(snapshot)
    return snapshot, menus, offer, Optimus().eunomia_valuation(snapshot, menus, offer)


def per_claim(snapshot: Snapshot, menus: Menus, offer: Offer) -> BySize:
    """The values as a form that names every size of every claim."""
    rows = size_rows(snapshot, menus, offer.candidates)
    return BySize(claim=rows.claim, gpus=rows.gpus, value=-rows.left / rows.rate, unit=SizeUnit.SECONDS_LEFT)


def columns(form: BySize) -> tuple[list[int], list[int], list[float], SizeUnit]:
    return form.claim.tolist(), form.gpus.tolist(), form.value.tolist(), form.unit


@given(JOBS, st.data())
@settings(max_examples=examples(60), deadline=None)
def test_values_by_curve_equal_those_of_each_claim(
    jobs: list[tuple[int, int, float, float, float, float | None]], data: st.DataObject
) -> None:
    snapshot, menus, offer, valuations = valued(world_of(jobs))
    whole = per_claim(snapshot, menus, offer)
    assert columns(valuations.by_size(SizeUnit.SECONDS_LEFT)) == columns(whole)
    some = np.array(data.draw(st.permutations(range(len(jobs)))), np.int32)[: len(jobs) // 2]
    got = valuations.form(ByCurve).of(some)
    expected = [np.flatnonzero(whole.claim == claim) for claim in some.tolist()]
    at = np.concatenate([np.empty(0, np.int64), *expected])
    assert columns(got)[:3] == (whole.claim[at].tolist(), whole.gpus[at].tolist(), whole.value[at].tolist())


@given(JOBS, st.sampled_from(["1x3 V100", "2x4 V100", "1x4 V100, 1x4 P100"]))
@settings(max_examples=examples(60), deadline=None)
def test_values_by_curve_and_by_claim_lead_to_the_same_decisions(
    jobs: list[tuple[int, int, float, float, float, float | None]], cluster: str
) -> None:
    snapshot, menus, offer, valuations = valued(world_of(jobs, cluster))
    whole = Valuations(claims=valuations.claims, forms=(per_claim(snapshot, menus, offer),))
    lazy, eager = (MarginalGain().eunomia_allocation(snapshot, menus, offer, each) for each in (valuations, whole))
    assert decided(lazy) == decided(eager)


def decided(allocation: Allocation) -> tuple[list[int], list[int], list[int]]:
    assert isinstance(allocation.amount, Grants)
    verdicts = allocation.verdicts.reasons.tolist()
    return allocation.amount.gpus.tolist(), allocation.order.tolist(), verdicts


def test_of_a_long_queue_only_jobs_that_could_get_gpus_are_valued() -> None:
    world = World("1x4 V100").jobs(1000, gpus=(1, 2), iterations=100, seconds_per_iteration=1.0)
    snapshot, menus, offer, valuations = valued(world)
    asked = list[int]()

    def counted(keys: Callable[[Rows], tuple[Rows, Reals]]) -> Callable[[Rows], tuple[Rows, Reals]]:
        def call(jobs: Rows) -> tuple[Rows, Reals]:
            asked.append(jobs.size)
            return keys(jobs)

        return call

    form = valuations.form(ByCurve)
    watched = ByCurve(jobs=form.jobs, keys=counted(form.keys), values=form.values, unit=form.unit)
    answer = MarginalGain().eunomia_allocation(
        snapshot, menus, offer, Valuations(claims=valuations.claims, forms=(watched,))
    )
    assert isinstance(answer.amount, Grants)
    assert answer.amount.gpus.sum() == 4
    assert asked == [BLOCK]


def test_jobs_of_one_curve_and_length_share_their_values() -> None:
    world = World("1x4 V100").jobs(5, gpus=(1, 4), iterations=100, seconds_per_iteration=1.0)
    form = valued(world)[3].form(ByCurve)
    curves, lengths = form.keys(form.jobs)
    assert len(set(zip(curves.tolist(), lengths.tolist(), strict=True))) == 1
    sizes, values = form.values(int(curves[0]), np.array([100.0, 50.0]))
    assert sizes.tolist() == [1, 2, 3, 4]
    assert values[0].tolist() == (2.0 * values[1]).tolist() == [-100.0, -50.0, -100.0 / 3.0, -25.0]
