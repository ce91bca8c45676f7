"""Optimus and SLAQ as Themis compares with them: valuations by size, and the greedy allocation that both use."""

import numpy as np
import pytest

from eunomia import Allocation, Claims, Grants, Reason, Scope, Unit, Valuations
from eunomia.contract.valuations import BySize
from eunomia.model.forecasts import Forecast, LossCurve
from eunomia.testing.builders import World
from eunomia_plugins.allocations.marginal_gain import MarginalGain
from eunomia_plugins.elasticity.range import Range, RangeOptions
from eunomia_plugins.themis_baselines.optimus import Optimus
from eunomia_plugins.themis_baselines.slaq import Slaq, SlaqOptions

Plugin = Optimus | Slaq


def values(world: World, plugin: Plugin, *, scope: Scope = Scope.FREE) -> dict[tuple[str, int], float]:
    snapshot = world.snapshot()
    menus = Range(RangeOptions()).eunomia_elasticity(snapshot)
    answer = plugin.eunomia_valuation(snapshot, menus, world.offer(scope=scope))
    form = answer.form(BySize)
    names = [str(snapshot.jobs.id[row]) for row in answer.claims.rows]
    return {
        (names[claim], gpus): worth
        for claim, gpus, worth in zip(form.claim.tolist(), form.gpus.tolist(), form.value.tolist(), strict=True)
    }


def allocated(world: World, plugin: Plugin, *, scope: Scope = Scope.FREE) -> tuple[dict[str, int], Allocation]:
    snapshot, offer = world.snapshot(), world.offer(scope=scope)
    menus = Range(RangeOptions()).eunomia_elasticity(snapshot)
    answer = MarginalGain().eunomia_allocation(snapshot, menus, offer, plugin.eunomia_valuation(snapshot, menus, offer))
    assert isinstance(answer.amount, Grants)
    sizes = zip(answer.claims.rows, answer.amount.gpus.tolist(), strict=True)
    return {str(snapshot.jobs.id[row]): gpus for row, gpus in sizes}, answer


def busy_world(cluster: str = "1x4 V100") -> World:
    """Serial work of 1200 and of 120 s, both on up to four GPUs."""
    world = World(cluster).job("long/1", gpus=(1, 4), iterations=1200, seconds_per_iteration=1.0)
    return world.job("short/1", gpus=(1, 4), iterations=120, seconds_per_iteration=1.0)


# --- Optimus ----------------------------------------------------------------------------------------------------------


def test_optimus_values_a_size_by_the_seconds_that_the_job_would_still_take() -> None:
    valued = values(busy_world(), Optimus())
    assert [valued["long/1", gpus] for gpus in (1, 2, 3, 4)] == [-1200.0, -600.0, -400.0, -300.0]
    assert valued["short/1", 4] == -30.0


def test_optimus_gives_each_job_a_worker_and_the_rest_where_completion_falls_most() -> None:
    """By hand: after one GPU each, another GPU saves the long job 600 s, then 200 s, and the short one at most 60 s."""
    assert allocated(busy_world(), Optimus())[0] == {"long/1": 3, "short/1": 1}


def test_optimus_uses_measured_speeds() -> None:
    """A job gets no second GPU if it would run no faster."""
    world = busy_world().measures("long/1", 2, 1.0).measures("long/1", 3, 1.0)
    assert allocated(world, Optimus())[0] == {"long/1": 1, "short/1": 3}


def test_the_gain_of_a_larger_size_is_divided_by_its_additional_gpus() -> None:
    # From 1 to 4 GPUs at once saves 900 s, 300 a GPU; the other saves 400 by its second.
    world = World("1x5 V100").job("gap/1", gpus=(1, 4), iterations=1200, seconds_per_iteration=1.0)
    world.job("even/1", gpus=(1, 2), iterations=800, seconds_per_iteration=1.0)
    snapshot, offer = world.snapshot(), world.offer()
    menus = Range(RangeOptions(sizes="powers_of_two")).eunomia_elasticity(snapshot)
    form = BySize(
        claim=np.array([0, 0, 1, 1], np.int32),
        gpus=np.array([1, 4, 1, 2]),
        value=np.array([-1200.0, -300.0, -800.0, -400.0]),
    )
    answer = MarginalGain().eunomia_allocation(
        snapshot, menus, offer, Valuations(claims=_claims(offer.candidates), forms=(form,))
    )
    assert isinstance(answer.amount, Grants)
    assert answer.amount.gpus.tolist() == [1, 2]  # two are left, and three more are too many


def test_running_jobs_are_resized() -> None:
    world = busy_world().holds("short/1", 0, 1, 2, ends_at=1e9).holds("long/1", 3, ends_at=1e9)
    assert allocated(world, Optimus(), scope=Scope.ALL)[0] == {"long/1": 3, "short/1": 1}


def test_with_more_jobs_than_gpus_the_first_get_a_worker_and_the_rest_wait() -> None:
    world = World("1x2 V100").jobs(3, gpus=(1, 4), iterations=60, seconds_per_iteration=1.0)
    sizes, answer = allocated(world, Optimus())
    assert sizes == {"many/0": 1, "many/1": 1, "many/2": 0}
    assert answer.verdicts.reasons.tolist() == [int(Reason.OUTRANKED)]


def test_a_job_that_cannot_run_has_a_reason_and_delays_no_other() -> None:
    world = World("1x2 V100").job("big/1", gpus=8).job("small/1", iterations=5, seconds_per_iteration=1.0)
    sizes, answer = allocated(world, Optimus())
    assert sizes == {"big/1": 0, "small/1": 1}
    assert answer.verdicts.reasons.tolist() == [int(Reason.NO_SIZE_FITS)]


def test_gpus_of_a_gang_are_of_one_type() -> None:
    world = World("1x2 V100, 1x3 P100").job("a/1", gpus=(1, 8), iterations=100, seconds_per_iteration=1.0)
    world.job("b/1", gpus=(1, 8), gpu_type="V100", iterations=10, seconds_per_iteration=1.0)
    sizes, answer = allocated(world, Optimus())
    assert sizes == {"a/1": 3, "b/1": 2}
    assert isinstance(answer.amount, Grants) and answer.amount.gpu_type is not None
    assert [world.cluster.gpu_types[kind] for kind in answer.amount.gpu_type] == ["P100", "V100"]


# --- SLAQ -------------------------------------------------------------------------------------------------------------


def fresh_and_old(**options: object) -> tuple[World, Slaq]:
    """Two equal jobs, one with nine tenths of its work done."""
    world = World("1x4 V100").job("old/1", gpus=(1, 4), iterations=1000, done=900, seconds_per_iteration=1.0)
    world.job("new/1", gpus=(1, 4), iterations=1000, seconds_per_iteration=1.0)
    return world, Slaq(SlaqOptions.model_validate({"epoch": 10.0, **options}))


def test_slaq_values_a_size_by_the_reduction_of_loss_in_the_epoch() -> None:
    world, slaq = fresh_and_old()
    valued = values(world, slaq)
    # Ten iterations a GPU are one step of a hundred: 1 - 1/2, 1 - 1/3; and 1/91 - 1/92.
    assert valued["new/1", 1] == pytest.approx(1 / 2)
    assert valued["new/1", 2] == pytest.approx(2 / 3)
    assert valued["old/1", 1] == pytest.approx(1 / 91 - 1 / 92)


def test_slaq_serves_the_largest_fall_of_loss_and_starves_jobs_only_if_allowed() -> None:
    world, slaq = fresh_and_old()
    assert allocated(world, slaq)[0] == {"old/1": 1, "new/1": 3}
    world, slaq = fresh_and_old(starve=True)
    assert allocated(world, slaq)[0] == {"old/1": 0, "new/1": 4}


def test_slaq_normalizes_the_loss_curves_that_an_app_reports() -> None:
    curves = (LossCurve(job="a/1", asymptote=5.0, amplitude=100.0, exponent=1.0),)
    world = World("1x4 V100").app("a", forecast=Forecast(phases=(), total_gpu_seconds=1.0, most=4, losses=curves))
    world.job("a/1", gpus=(1, 4), iterations=1000, seconds_per_iteration=1.0)
    valued = values(world, Slaq(SlaqOptions(epoch=3.0)))
    assert valued["a/1", 1] == pytest.approx(
        1.0 - 1 / 4
    )  # three iterations later; the height of the curve has no effect
    assert valued["a/1", 2] == pytest.approx(1.0 - 1 / 7)


def test_the_loss_reduction_of_a_job_is_limited_by_its_remaining_work() -> None:
    world = World("1x4 V100").job("a/1", gpus=(1, 4), iterations=100, done=90, seconds_per_iteration=1.0)
    valued = values(world, Slaq(SlaqOptions(epoch=1e6)))
    assert valued["a/1", 1] == pytest.approx(valued["a/1", 4])
    assert allocated(world, Slaq(SlaqOptions(epoch=1e6)))[0] == {"a/1": 1}


def test_jobs_of_unknown_length_get_gpus_too() -> None:
    for plugin in (Optimus(), Slaq(SlaqOptions())):
        world = World("1x4 V100").job("a/1", gpus=(1, 4)).job("b/1", gpus=(1, 4))
        sizes, _ = allocated(world, plugin)
        assert sum(sizes.values()) == 4


def _claims(rows: "np.ndarray[tuple[int, ...], np.dtype[np.int32]]") -> Claims:
    return Claims(unit=Unit.JOB, rows=rows)
