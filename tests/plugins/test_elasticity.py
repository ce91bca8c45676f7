import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eunomia import Locality, Menus, Snapshot
from eunomia.contract.events import (
    AppArrived,
    Event,
    JobAdded,
    JobFinished,
    JobPaused,
    JobReported,
    JobResumed,
    RateMeasured,
)
from eunomia.contract.menus import CurvePoints
from eunomia.fold.fold import fold
from eunomia.model.cluster import Cluster
from eunomia.round.show import show
from eunomia.store.state import State
from eunomia.testing.builders import World
from eunomia.units import AppId, JobId, Seconds, UserId, Version
from eunomia_plugins.elasticity.fixed import Fixed, menus_of
from eunomia_plugins.elasticity.range import Range, RangeOptions
from eunomia_plugins.orders.las import LasOptions


def test_fixed_offers_each_job_only_the_size_of_its_whole_gang() -> None:
    world = World().job("a/1", gpus=2).job("b/1", gpus=(1, 4), seconds_per_iteration=0.5)
    menus = Fixed().eunomia_elasticity(world.snapshot())
    assert menus.sizes(world.row("a/1")).tolist() == [2]
    assert menus.sizes(world.row("b/1")).tolist() == [4]
    assert menus.rate(world.row("b/1"), 4) == 8.0
    assert np.isnan(menus.rate(world.row("a/1"), 2))
    assert menus.largest_at_most(world.row("b/1"), 3) == 0
    assert menus.only(world.row("b/1")) == (4, 8.0)
    assert menus.only(world.row("a/1"))[0] == 2  # type: ignore[index]


def test_the_service_computed_for_one_job_equals_that_for_all() -> None:
    world = World().job("a/1", gpus=2).job("b/1", gpus=(1, 4)).holds("b/1", 0)
    snapshot = world.snapshot(now=9.0)
    for name in ("a/1", "b/1"):
        intercept, slope = snapshot.service(np.array([world.row(name)], np.int32), by_gpus=True)
        assert snapshot.service_of(world.row(name), by_gpus=True) == (intercept[0], slope[0])


def test_range_gives_every_size_and_equal_jobs_share_a_curve() -> None:
    world = World().job("a/1", gpus=(2, 4)).job("b/1", gpus=(2, 4)).job("c/1", gpus=(1, 4))
    menus = Range(RangeOptions()).eunomia_elasticity(world.snapshot())
    assert menus.sizes(world.row("a/1")).tolist() == [2, 3, 4]
    assert menus.sizes(world.row("c/1")).tolist() == [1, 2, 3, 4]
    curves = menus.curve[[world.row("a/1"), world.row("b/1"), world.row("c/1")]]
    assert curves[0] == curves[1] != curves[2]


def test_jobs_of_different_speed_do_not_share_a_curve() -> None:
    world = (
        World().job("a/1", gpus=(1, 2), seconds_per_iteration=1.0).job("b/1", gpus=(1, 2), seconds_per_iteration=2.0)
    )
    menus = Range(RangeOptions()).eunomia_elasticity(world.snapshot())
    assert (menus.rate(world.row("a/1"), 2), menus.rate(world.row("b/1"), 2)) == (2.0, 1.0)


@given(st.lists(st.tuples(st.integers(1, 12), st.integers(0, 12)), min_size=1, max_size=8))
def test_powers_of_two_include_the_minimum_and_maximum(spans: list[tuple[int, int]]) -> None:
    world = World("4x8 V100")
    for number, (least, more) in enumerate(spans):
        world.job(f"a/{number}", gpus=(least, least + more))
    menus = Range(RangeOptions(sizes="powers_of_two")).eunomia_elasticity(world.snapshot())
    for number, (least, more) in enumerate(spans):
        sizes = menus.sizes(world.row(f"a/{number}")).tolist()
        assert sizes == [n for n in range(least, least + more + 1) if n in (least, least + more) or n & (n - 1) == 0]


@pytest.mark.parametrize("plugin", [Fixed(), Range(RangeOptions())], ids=["fixed", "range"])
def test_a_measured_rate_takes_precedence_over_the_declared_one(plugin: Fixed | Range) -> None:
    world = (
        World("2x4 V100").job("a/1", gpus=4, seconds_per_iteration=1.0).job("b/1", gpus=4, seconds_per_iteration=1.0)
    )
    world.measures("a/1", 4, 3.0).measures("a/1", 4, 2.5, locality=Locality.RACK).measures("a/1", 7, 9.0)
    menus = plugin.eunomia_elasticity(world.snapshot())
    job = world.row("a/1")
    assert menus.sizes(job).tolist() == [4]
    assert menus.rate(job, 4) == 3.0
    assert menus.rate(job, 4, Locality.RACK) == 2.5
    assert menus.rate(world.row("b/1"), 4) == 4.0


def test_a_job_without_a_declared_rate_has_its_measured_rates() -> None:
    world = World().job("a/1", gpus=(1, 4)).measures("a/1", 2, 3.0)
    menus = Range(RangeOptions()).eunomia_elasticity(world.snapshot())
    assert [menus.rate(world.row("a/1"), size) for size in (1, 2, 4)] == [1.5, 3.0, 6.0]


def test_paused_jobs_have_no_menu_and_an_empty_cluster_no_curve() -> None:
    from eunomia import JobState

    world = World().job("a/1", state=JobState.PAUSED)
    for plugin in (Fixed(), Range(RangeOptions())):
        assert plugin.eunomia_elasticity(world.snapshot()).curve[world.row("a/1")] == -1
        assert plugin.eunomia_elasticity(World().snapshot()).sizes(0).size == 0


def test_thresholds_out_of_order_are_refused() -> None:
    with pytest.raises(ValueError, match="must be in ascending order"):
        LasOptions(queues=(10.0, 5.0))


def _assert_equal(found: Menus, expected: Menus) -> None:
    assert found.one_size == expected.one_size
    assert found.curve.tolist() == expected.curve.tolist()
    for column in dataclasses.fields(CurvePoints):
        np.testing.assert_array_equal(getattr(found.points, column.name), getattr(expected.points, column.name))


def _ranges(snapshot: Snapshot) -> Menus:
    return Range(RangeOptions()).eunomia_elasticity(snapshot)


@pytest.mark.parametrize(("plugin", "rebuilt"), [(Fixed(), menus_of), (Range(RangeOptions()), _ranges)])
def test_menus_updated_from_round_to_round_equal_menus_built_from_scratch(
    plugin: Fixed | Range, rebuilt: Callable[[Snapshot], Menus]
) -> None:
    """Measured, paused, removed, measured again; a job that declares no rate is known by its measurements."""
    state = State(Cluster.parse("2x4 V100"))

    def after(*events: Event) -> None:
        fold(state, Seconds(state.now + 1.0), events, grace=Seconds(0.0))
        state.counters.version = Version(state.counters.version + 1)
        for _ in range(2):  # the second time, nothing has changed
            _assert_equal(plugin.eunomia_elasticity(show(state)), rebuilt(show(state)))

    def job(name: str, pace: float = float("nan")) -> JobAdded:
        return JobAdded(app=AppId("a"), job=JobId(name), least=1, most=4, seconds_per_iteration=Seconds(pace))

    def measured(name: str, rate: float) -> RateMeasured:
        return RateMeasured(job=JobId(name), gpus=4, gpu_type="V100", locality=Locality.ISLAND, rate=rate)

    after(AppArrived(app=AppId("a"), user=UserId("u")))
    after(job("a/1", 1.0), job("a/2", 2.0))
    after(measured("a/1", 3.0))
    after(JobReported(job=JobId("a/2"), iterations_done=1.0, rate=0.0))
    after(measured("a/1", 2.0), job("a/3", 0.5))
    after(JobPaused(job=JobId("a/1")))
    after(JobResumed(job=JobId("a/1")))
    after(job("a/4"), measured("a/4", 5.0))
    after(JobFinished(job=JobId("a/4")))
    after(JobFinished(job=JobId("a/1")))
    after(job("a/5", 4.0))
