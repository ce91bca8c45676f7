import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from eunomia import Allocation, Claims, Grants, Reason, Scope, Scores, Unit, Valuations
from eunomia.testing.builders import World
from eunomia.units import Rows
from eunomia_plugins.allocations.ordered import Ordered, OrderedOptions
from eunomia_plugins.elasticity.range import Range, RangeOptions
from eunomia_plugins.orders.fifo import Fifo


def serve(
    world: World,
    *,
    now: float = 100.0,
    scope: Scope = Scope.FREE,
    valuations: Valuations | None = None,
    **options: object,
) -> tuple[dict[str, int], dict[str, Reason], Allocation]:
    snapshot, offer = world.snapshot(now=now), world.offer(now, scope=scope)
    menus = Range(RangeOptions()).eunomia_elasticity(snapshot)
    valuations = valuations or Fifo().eunomia_valuation(snapshot, menus, offer)
    plugin = Ordered(OrderedOptions.model_validate(options))
    allocation = plugin.eunomia_allocation(snapshot, menus, offer, valuations)
    assert isinstance(allocation.amount, Grants)
    ids = [str(snapshot.jobs.id[row]) for row in allocation.claims.rows]
    sizes = {ids[claim]: int(allocation.amount.gpus[claim]) for claim in allocation.order}
    rows, reasons = allocation.verdicts.rows.tolist(), allocation.verdicts.reasons.tolist()
    said = {str(snapshot.jobs.id[row]): Reason(reason) for row, reason in zip(rows, reasons, strict=True)}
    assert set(sizes) | set(said) == set(ids)
    return sizes, said, allocation


def test_each_job_gets_the_largest_free_size_and_the_rest_are_outranked() -> None:
    world = (
        World("1x8 V100").job("a/1", gpus=(1, 4), arrived=0).job("b/1", gpus=(2, 8), arrived=1).job("c/1", arrived=2)
    )
    sizes, said, _ = serve(world)
    assert sizes == {"a/1": 4, "b/1": 4}
    assert said == {"c/1": Reason.OUTRANKED}


def test_a_job_that_does_not_fit_is_skipped_or_waited_for() -> None:
    world = World("1x4 V100").job("a/1", gpus=3, arrived=0).job("b/1", gpus=2, arrived=1).job("c/1", gpus=1, arrived=2)
    assert serve(world, on_misfit="skip")[0] == {"a/1": 3, "c/1": 1}
    assert serve(world, on_misfit="stop")[0] == {"a/1": 3}


def test_a_job_that_can_never_run_has_a_reason_and_delays_no_other() -> None:
    world = World("1x4 V100, 1x2 P100").job("a/1", gpus=8, arrived=0).job("b/1", gpus=3, gpu_type="P100", arrived=1)
    sizes, said, _ = serve(world.job("c/1", gpus=4, arrived=2), on_misfit="stop")
    assert sizes == {"c/1": 4}
    assert said == {"a/1": Reason.NO_SIZE_FITS, "b/1": Reason.NO_SIZE_FITS}


def test_a_job_whose_gpu_type_is_completely_down_gets_the_reason_no_gpu_of_type() -> None:
    world = World("1x4 V100, 1x2 P100").job("b/1", gpus=1, gpu_type="P100").down(4, 5)
    assert serve(world)[1] == {"b/1": Reason.NO_GPU_OF_TYPE}


def test_a_gang_is_of_one_type_and_each_type_is_filled_separately() -> None:
    world = World("1x4 V100, 1x4 P100").job("a/1", gpus=3, gpu_type="P100").job("b/1", gpus=(1, 6)).job("c/1", gpus=2)
    sizes, said, allocation = serve(world)
    assert sizes == {"a/1": 3, "b/1": 4}
    assert said == {"c/1": Reason.OUTRANKED}
    assert isinstance(allocation.amount, Grants)
    assert allocation.amount.gpu_type is not None
    assert allocation.amount.gpu_type.tolist() == [0, 1, -1]


def test_preemptive_service_ranks_running_jobs_with_the_rest() -> None:
    world = World("1x4 V100").job("late/1", gpus=4, arrived=50).holds("late/1", 0, 1, 2, 3)
    world.job("early/1", gpus=4, arrived=10)
    sizes, said, _ = serve(world, scope=Scope.ALL, preemptive=True)
    assert sizes == {"early/1": 4}
    assert said == {"late/1": Reason.OUTRANKED}
    assert serve(world)[0] == {}


def test_gpus_that_other_apps_keep_are_not_granted() -> None:
    world = World("1x4 V100").app("divides").holds("divides", 0, 1, ends_at=50.0).job("a/1", gpus=(1, 4), arrived=0)
    assert serve(world, now=100.0)[0] == {"a/1": 2}  # an app keeps the GPUs of an ended lease until another takes them


def test_an_order_of_apps_orders_their_jobs() -> None:
    world = World("1x2 V100").job("a/1", arrived=0).job("a/2", arrived=1).job("b/1", arrived=2)
    rows = np.array([world.row("a"), world.row("b")], np.int32)
    worth = Valuations(claims=Claims(unit=Unit.APP, rows=rows), forms=(Scores(score=np.array([2.0, 1.0])),))
    assert serve(world, valuations=worth)[0] == {"b/1": 1, "a/1": 1}


def test_jobs_that_the_order_does_not_name_come_last() -> None:
    world = World("1x2 V100").job("a/1", arrived=0).job("b/1", arrived=1).job("c/1", arrived=2)
    rows: Rows = np.array([world.row("c/1")], np.int32)
    worth = Valuations(claims=Claims(unit=Unit.JOB, rows=rows), forms=(Scores(score=np.zeros(1)),))
    assert serve(world, valuations=worth)[0] == {"c/1": 1, "a/1": 1}


_JOBS = st.lists(st.tuples(st.integers(1, 6), st.integers(0, 4), st.sampled_from([None, "V100", "P100"])), max_size=25)


@given(_JOBS, st.sampled_from(["2x4 V100", "2x4 V100, 1x6 P100"]), st.sampled_from(["skip", "stop"]))
def test_service_equals_serving_the_list_one_by_one(
    jobs: list[tuple[int, int, str | None]], cluster: str, on_misfit: str
) -> None:
    world = World(cluster)
    kinds = world.cluster.gpu_types
    for number, (least, more, kind) in enumerate(jobs):
        world.job(
            f"a/{number:02d}", gpus=(least, least + more), gpu_type=kind if kind in kinds else None, arrived=number
        )
    sizes, _, _ = serve(world, on_misfit=on_misfit)
    assert sizes == _one_by_one(world, jobs, on_misfit == "stop")


def _one_by_one(world: World, jobs: list[tuple[int, int, str | None]], stop: bool) -> dict[str, int]:
    kinds = world.cluster.gpu_types
    capacity = dict(zip(kinds, world.cluster.capacity.tolist(), strict=True))
    free = dict(capacity)
    served: dict[str, int] = {}
    for number, (least, more, kind) in enumerate(jobs):
        allowed = [kind] if kind in kinds else list(kinds)
        if max(capacity[k] for k in allowed) < least:
            continue
        best = max(allowed, key=lambda k: free[k])
        size = min(least + more, free[best])
        if size >= least:
            served[f"a/{number:02d}"] = size
            free[best] -= size
        elif stop:
            break
    return served
