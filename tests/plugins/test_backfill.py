import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eunomia import Grants, Reason
from eunomia.testing.builders import World
from eunomia_plugins.allocations.backfill import Outlook
from eunomia_plugins.allocations.ordered import Ordered, OrderedOptions
from eunomia_plugins.elasticity.range import Range, RangeOptions
from eunomia_plugins.orders.fifo import Fifo


def served(
    world: World, on_misfit: str, **options: object
) -> tuple[dict[str, int], dict[str, float], dict[str, Reason]]:
    snapshot, offer = world.snapshot(), world.offer()
    plugin = Ordered(OrderedOptions.model_validate({"on_misfit": on_misfit, **options}))
    menus = Range(RangeOptions()).eunomia_elasticity(snapshot)
    answer = plugin.eunomia_allocation(snapshot, menus, offer, Fifo().eunomia_valuation(snapshot, menus, offer))
    assert isinstance(answer.amount, Grants)
    assert answer.starts_at is not None
    ids = [str(snapshot.jobs.id[row]) for row in answer.claims.rows]
    starts = {name: time for name, time in zip(ids, answer.starts_at.tolist(), strict=True) if not np.isnan(time)}
    rows, reasons = answer.verdicts.rows.tolist(), answer.verdicts.reasons.tolist()
    said = {str(snapshot.jobs.id[row]): Reason(reason) for row, reason in zip(rows, reasons, strict=True)}
    return {ids[claim]: int(answer.amount.gpus[claim]) for claim in answer.order}, starts, said


def world() -> World:
    """Four GPUs, two of them taken for another 100 s; at the head a gang of 4, behind it jobs that could pass."""
    made = World("1x4 V100").job("run/1", gpus=2, iterations=150, done=50, since=0.0, rate=1.0)
    made.holds("run/1", 0, 1)
    made.job("head/1", gpus=4, iterations=40, seconds_per_iteration=4.0, arrived=1)
    made.job("long/1", gpus=1, iterations=101, seconds_per_iteration=1.0, arrived=2)
    return made.job("short/1", gpus=1, iterations=100, seconds_per_iteration=1.0, arrived=3)


def test_under_easy_a_job_that_ends_before_the_head_starts_may_pass_it() -> None:
    sizes, starts, said = served(world(), "easy")
    assert sizes == {"short/1": 1}
    assert starts == {"head/1": 100.0}
    assert said == {"head/1": Reason.PLANNED_LATER, "long/1": Reason.OUTRANKED}


def test_conservative_gives_every_job_a_start_time() -> None:
    # The gang starts at 100 and runs 40 s; the long job, one second too long to pass, follows it.
    sizes, starts, _ = served(world(), "conservative")
    assert sizes == {"short/1": 1}
    assert starts == {"head/1": 100.0, "long/1": 140.0}


def test_conservative_reserves_for_a_limited_number_of_jobs() -> None:
    assert served(world(), "conservative", bookings=1)[1] == {"head/1": 100.0}


def test_a_job_may_pass_on_gpus_that_the_head_does_not_need() -> None:
    made = World("1x4 V100").job("run/1", gpus=2, iterations=100, since=0.0, rate=1.0).holds("run/1", 0, 1)
    made.job("head/1", gpus=3, iterations=40, seconds_per_iteration=3.0, arrived=1)
    made.job("long/1", gpus=1, iterations=1000, seconds_per_iteration=1.0, arrived=2)
    made.job("longer/1", gpus=1, iterations=1000, seconds_per_iteration=1.0, arrived=3)
    assert served(made, "easy")[0] == {"long/1": 1}


def test_without_known_ends_no_job_is_delayed() -> None:
    made = World("1x4 V100").job("run/1", gpus=2).holds("run/1", 0, 1)
    made.job("head/1", gpus=4, arrived=1).job("b/1", gpus=1, arrived=2).job("c/1", gpus=1, arrived=3)
    sizes, starts, said = served(made, "easy")
    assert sizes == {"b/1": 1, "c/1": 1}
    assert starts == {}
    assert said == {"head/1": Reason.OUTRANKED}


def test_a_job_of_unknown_length_does_not_pass_the_head() -> None:
    made = world().job("unknown/1", gpus=1, arrived=2.5)
    assert served(made, "easy")[0] == {"short/1": 1}


def test_an_elastic_job_passes_the_head_at_a_size_that_ends_in_time() -> None:
    # Two GPUs are free until 100. On both it is done at 80; on one it would take 160.
    made = World("1x4 V100").job("run/1", gpus=2, iterations=100, since=0.0, rate=1.0).holds("run/1", 0, 1)
    made.job("head/1", gpus=4, iterations=40, seconds_per_iteration=4.0, arrived=1)
    made.job("e/1", gpus=(1, 4), iterations=160, seconds_per_iteration=1.0, arrived=2)
    assert served(made, "easy")[0] == {"e/1": 2}


def test_each_gpu_type_is_planned_separately() -> None:
    made = World("1x2 V100, 1x2 P100").job("run/1", gpus=1, iterations=50, since=0.0, rate=1.0).holds("run/1", 0)
    made.job("head/1", gpus=2, gpu_type="V100", iterations=10, seconds_per_iteration=2.0, arrived=1)
    made.job("other/1", gpus=2, iterations=10, seconds_per_iteration=2.0, arrived=2)
    sizes, starts, _ = served(made, "easy")
    assert sizes == {"other/1": 2}
    assert starts == {"head/1": 50.0}


def test_the_allocation_wakes_when_the_rank_of_a_started_job_changes() -> None:
    from eunomia_plugins.orders.las import Las, LasOptions

    made = World("1x4 V100").job("a/1", gpus=4, received=20.0).job("b/1", gpus=4, received=60.0, arrived=1)
    snapshot, offer = made.snapshot(now=10.0), made.offer(10.0)
    menus = Range(RangeOptions()).eunomia_elasticity(snapshot)
    worth = Las(LasOptions(queues=(100.0,))).eunomia_valuation(snapshot, menus, offer)
    answer = Ordered(OrderedOptions(preemptive=True)).eunomia_allocation(snapshot, menus, offer, worth)
    assert answer.wake_at == 30.0  # 80 GPU-seconds on four GPUs


_RUNNING = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 50)), max_size=3)
_WAITING = st.lists(st.tuples(st.integers(1, 8), st.integers(1, 60)), min_size=1, max_size=10)


@pytest.mark.parametrize("on_misfit", ["easy", "conservative"])
@given(running=_RUNNING, waiting=_WAITING)
def test_no_job_that_passes_delays_a_reserved_start(
    on_misfit: str, running: list[tuple[int, int]], waiting: list[tuple[int, int]]
) -> None:
    """Run the plan forward: each job with a start time finds its GPUs free then, for as long as it runs."""
    made = World("1x9 V100")
    at = 0
    for number, (gpus, left) in enumerate(running):
        name = f"run/{number}"
        made.job(name, gpus=gpus, iterations=left, since=0.0, rate=1.0).holds(name, *range(at, at + gpus))
        at += gpus
    for number, (gpus, seconds) in enumerate(waiting):
        made.job(f"w/{number:02d}", gpus=gpus, iterations=seconds, seconds_per_iteration=float(gpus), arrived=number)
    sizes, starts, _ = served(made, on_misfit)
    spans = [(0.0, float(left), gpus) for gpus, left in running]
    for number, (gpus, seconds) in enumerate(waiting):
        name = f"w/{number:02d}"
        begins = 0.0 if name in sizes else starts.get(name)
        if begins is not None:
            spans.append((begins, begins + seconds, gpus))
    for moment in sorted({start for start, _, _ in spans}):
        assert sum(gpus for start, end, gpus in spans if start <= moment < end) <= 9
    assert sizes or not any(gpus <= 9 - at for gpus, _ in waiting[:1])
    if on_misfit == "conservative":
        assert len(sizes) + len(starts) == len(waiting)


@given(st.lists(st.tuples(st.floats(0.0, 20.0), st.integers(1, 3)), max_size=5), st.integers(0, 3), st.integers(1, 9))
def test_the_planned_start_is_the_earliest_possible(ends: list[tuple[float, int]], free: int, gpus: int) -> None:
    at = np.array([time for time, _ in ends])
    given_back = np.array([[count] for _, count in ends], np.int64).reshape(-1, 1)
    plan = Outlook(0.0, np.array([free]), at, given_back)
    found = plan.earliest(gpus, 0, 5.0)
    enough = [time for time in sorted({0.0, *at.tolist()}) if free * 1 + sum(n for t, n in ends if t <= time) >= gpus]
    if free >= gpus:
        assert found == 0.0
    else:
        assert found == (pytest.approx(enough[0], abs=1e-9) if enough else np.inf)
