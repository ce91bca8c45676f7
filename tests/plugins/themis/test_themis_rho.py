"""ρ by the paper's own example (Themis §4.3.3), single jobs by equation 1, and what a bid table holds."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eunomia.contract.bundles import ByBundle, MachineClasses, Part
from eunomia.model.forecasts import Forecast, JobForecast, Phase
from eunomia.units import Locality
from eunomia_plugins.themis.rho import BidContext, bid, ideal_seconds, rho, rho_now
from eunomia_plugins.themis.work import RemainingWork, split
from strength import examples


def jobs(seconds: list[float], iterations: float, most: int) -> Phase:
    return Phase(
        jobs=tuple(JobForecast(iterations_left=iterations, seconds_per_iteration=s, most=most) for s in seconds)
    )


def example(*, most: int = 8) -> Forecast:
    """§4.3.3: 4, 2 and 1 jobs; the later phases are copies of the median job."""
    phases = (jobs([80, 100, 100, 120], 8, most), jobs([100, 100], 16, most), jobs([100], 36, most))
    return Forecast(phases=phases, total_gpu_seconds=10000.0, most=16)


def context(**changes: object) -> BidContext:
    plain = BidContext(
        elapsed=0.0,
        waited=0.0,
        ideal=2500.0,
        lease=600.0,
        usable=np.arange(1, 17),
        gpu_type=-1,
        held={},
        rack_of={},
    )
    return dataclasses.replace(plain, **changes)


def one_machine(free: int) -> MachineClasses:
    return MachineClasses.of(machine=[0], free=[free], gpu_type=[0], rack=[0])


def test_the_independent_finish_time_equals_that_of_the_example() -> None:
    assert ideal_seconds(10000.0, 16, 16, 4.0) == 2500.0


@pytest.mark.parametrize(
    ("gpus", "seconds", "expected"),
    [(1, 10000.0, 4.0), (2, 5000.0, 2.0), (4, 2660.0, 1.064), (8, 1330.0, 0.532), (16, 2590 / 3, 0.345333)],
)
def test_the_example_is_reproduced_with_whole_gpus(gpus: int, seconds: float, expected: float) -> None:
    """Table 3 prints 1, 0.5 and 0.34 for 4, 8 and 16 GPUs: it takes work as perfectly divisible."""
    left = RemainingWork(example()).seconds([gpus], Locality.MACHINE, Locality.MACHINE)
    assert left == pytest.approx(seconds)
    assert rho(left, context()) == pytest.approx(expected, rel=1e-5)


def test_sixteen_gpus_are_split_as_in_the_example() -> None:
    first = list(example().phases[0].jobs)
    assert split(first, 16) == [3, 4, 4, 5]
    best = 200 * 16 / 15  # 640 / 3 of the job with 80 s an iteration
    assert best + 200 + 450 == pytest.approx(863.333, abs=1e-3)
    assert pytest.approx(0.356) == (120 * 8 / 4 + 200 + 450) / 2500


def test_updated_estimates_give_the_rho_of_the_example() -> None:
    """Jobs of 120 and 100 s go on: the paper prints (120 x 16) = 3200; it is 1920, in all 5680 s, ρ = 2.272."""
    phases = (example().phases[0], jobs([120, 100], 16, 8), jobs([120], 36, 8))
    forecast = Forecast(phases=phases, total_gpu_seconds=10000.0, most=16)
    left = RemainingWork(forecast).seconds([2], Locality.MACHINE, Locality.MACHINE)
    assert left == pytest.approx(1600 + 1920 + 2160)
    assert rho(left, context()) == pytest.approx(2.272)


def test_the_bid_of_the_example_equals_the_table_of_the_paper() -> None:
    rows = bid(RemainingWork(example()), context(), one_machine(16))
    table = {row.size: row.rho for row in rows}
    assert sorted(table) == [1, 2, 4, 8, 16]
    assert [table[size] for size in (1, 2, 4, 8, 16)] == pytest.approx([4, 2, 1.064, 0.532, 0.3453], rel=1e-3)


def single(
    *, iterations: float = 1000, seconds: float = 1.0, least: int = 1, most: int = 8, **more: object
) -> Forecast:
    job = JobForecast(iterations_left=iterations, seconds_per_iteration=seconds, least=least, most=most, **more)
    return Forecast(phases=(Phase(jobs=(job,)),), total_gpu_seconds=iterations * seconds, most=most)


def test_the_rho_of_one_job_follows_equation_one() -> None:
    """1000 s of serial work over 2 machines of 2: S = 1.1; elapsed time counts."""
    work = RemainingWork(single())
    assert work.seconds([2, 2], Locality.ISLAND, Locality.RACK) == pytest.approx(275.0)
    assert work.seconds([4], Locality.ISLAND, Locality.ISLAND) == pytest.approx(250.0)
    assert work.seconds([2, 2], Locality.ISLAND, Locality.CLUSTER) == pytest.approx(325.0)
    assert work.seconds([16], Locality.ISLAND, Locality.ISLAND) == pytest.approx(125.0)
    assert rho(275.0, context(elapsed=100.0, ideal=250.0)) == pytest.approx(1.5)


def test_a_measured_slowdown_replaces_the_assumed_one() -> None:
    """Table 1: VGG16 on 4 GPUs makes 103.6 images/s on one server, 80.4 over two; Inception-v3 243 and 242."""
    vgg = RemainingWork(single(slowdown=(1.0, 1.0, 103.6 / 80.4, 103.6 / 80.4)))
    inception = RemainingWork(single(slowdown=(1.0, 1.0, 243 / 242, 243 / 242)))
    assert vgg.seconds([2, 2], Locality.ISLAND, Locality.RACK) == pytest.approx(250 * 103.6 / 80.4)
    assert inception.seconds([2, 2], Locality.ISLAND, Locality.RACK) == pytest.approx(250 * 243 / 242)


def test_a_job_leaves_a_remote_gpu_idle_if_that_is_faster() -> None:
    work = RemainingWork(single())
    assert work.seconds([7, 1], Locality.ISLAND, Locality.CLUSTER) == pytest.approx(1000 / 7)


def test_a_gang_does_not_run_on_fewer_gpus_than_its_size() -> None:
    work = RemainingWork(single(least=4, most=4), sizes=np.array([4]))
    assert work.seconds([3], Locality.ISLAND, Locality.ISLAND) == math.inf
    assert work.seconds([7], Locality.ISLAND, Locality.ISLAND) == pytest.approx(250.0)
    rows = bid(work, context(usable=np.array([4])), one_machine(8))
    assert [row.size for row in rows] == [4]


def test_an_app_without_gpus_has_a_worse_rho_than_with_any_bundle() -> None:
    work = RemainingWork(example())
    now = [rho_now(work, context(elapsed=waited, waited=waited)) for waited in (0.0, 100.0, 1000.0)]
    assert now == sorted(now)
    assert len(set(now)) == 3
    assert all(math.isfinite(value) for value in now)
    assert now[0] == pytest.approx((600 + 10000) / 2500)
    rows = bid(work, context(), one_machine(16))
    assert max(row.rho for row in rows) < now[0]


def test_each_lease_without_gpus_raises_the_gain_of_any_bundle() -> None:
    """Two leases without GPUs, and any bundle betters ρ threefold at least, though little is left of a long life."""
    work = RemainingWork(single(iterations=1))
    late = context(elapsed=90_000.0, waited=1200.0)
    rows = bid(work, late, one_machine(4))
    assert rows
    assert all(rho_now(work, late) >= 3.0 * row.rho for row in rows)


def test_held_gpus_count_in_bids() -> None:
    """It holds 2 GPUs of machine 0: 2 more there make one piece of 4, 2 elsewhere two pieces."""
    classes = MachineClasses.of(machine=[0, 1], free=[2, 2], gpu_type=[0, 0], rack=[0, 0], named=[0])
    place = context(held={0: 2}, rack_of={0: 0}, usable=np.arange(1, 9), ideal=1000.0)
    work = RemainingWork(single())
    assert rho_now(work, place) == pytest.approx(0.5)
    rows = {row.parts: row.rho for row in bid(work, place, classes)}
    here, there = (int(np.flatnonzero([classes.members(k)[0] == m for k in range(2)])[0]) for m in (0, 1))
    assert rows[(Part(here, 2),)] == pytest.approx(0.25)
    assert rows[(Part(there, 2),)] == pytest.approx(0.275)
    assert rows[(Part(0, 2), Part(1, 2))] == pytest.approx(1.1 / 6)


def test_an_app_without_work_left_bids_for_nothing() -> None:
    done = RemainingWork(single(iterations=0))
    assert bid(done, context(), one_machine(4)) == []
    assert math.isfinite(rho_now(done, context()))


@settings(max_examples=examples(60), deadline=None)
@given(
    work=st.lists(st.floats(1.0, 1000.0), min_size=1, max_size=6),
    most=st.integers(1, 5),
    extra=st.integers(0, 12),
)
def test_the_split_of_gpus_among_jobs_is_optimal(work: list[float], most: int, extra: int) -> None:
    """Against the least time by which every job could be done with the GPUs there are, found by counting."""
    phase = [JobForecast(iterations_left=1.0, seconds_per_iteration=item, most=most) for item in work]
    gpus = len(work) + extra
    shares = split(phase, gpus)
    assert sum(shares) <= gpus
    assert all(1 <= share <= most for share in shares)
    last = max(item / share for item, share in zip(work, shares, strict=True))
    times = sorted({item / share for item in work for share in range(1, most + 1)})
    best = next(
        t
        for t in times
        if sum(min(math.ceil(item / t - 1e-12), 99) for item in work) <= gpus
        and all(item / most <= t * (1 + 1e-12) for item in work)
    )
    assert last == pytest.approx(best)


@settings(max_examples=examples(40), deadline=None)
@given(seed=st.integers(0, 10**6))
def test_bids_pass_the_checks_of_the_arbiter_and_improve_rho(seed: int) -> None:
    rng = np.random.default_rng(seed)
    machines = int(rng.integers(1, 30))
    classes = MachineClasses.of(
        machine=np.arange(machines),
        free=rng.integers(0, 9, machines),
        gpu_type=rng.integers(0, 2, machines),
        rack=rng.integers(0, 4, machines),
        named=np.flatnonzero(rng.random(machines) < 0.2),
    )
    most = int(rng.integers(1, 40))
    rows = bid(
        RemainingWork(single(most=most)),
        context(usable=np.arange(1, most + 1), gpu_type=int(rng.integers(-1, 2))),
        classes,
    )
    table = ByBundle.of(classes, [100.0], [rows])
    table.check()
    assert len(rows) <= 96
    assert (table.sizes <= most).all()
