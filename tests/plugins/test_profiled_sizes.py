"""``profiled_sizes``: a kind starts within its fair share, is measured on the way down, and grows from there."""

import dataclasses
from itertools import pairwise
from pathlib import Path
from typing import Self

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from eunomia import Cause, Locality, Menus, Seconds
from eunomia.arbiter import Arbiter
from eunomia.contract.events import AppArrived, AppFinished, Event, JobAdded, KindProfiled, RateMeasured
from eunomia.contract.snapshot import Reported
from eunomia.model.cluster import Cluster
from eunomia.model.kind_profiles import KnownRate
from eunomia.model.leases import GpuState
from eunomia.platform.profiles import Profile
from eunomia.testing.builders import World
from eunomia.units import AppId, Ints, JobId, UserId
from eunomia_plugins.elasticity.profiled_sizes import ProfiledSizes, ProfiledSizesOptions, rates_between
from eunomia_testbed.performance import AfsScaling
from eunomia_testbed.simulator import Engine, Reports, SimulatedRun, SimulationOptions, assemble
from eunomia_testbed.workload import Workload

TRUE = {1: 1.0, 2: 1.9, 4: 3.4, 8: 5.0, 12: 6.0, 16: 6.4}
"""Steps a second of the model ``cnn`` by GPUs."""


class Lab:
    """A cluster of four machines of 4 GPUs with jobs of one kind, whose rates are known for all of them."""

    def __init__(self, *jobs: str, gpus: tuple[int, int] = (1, 16)) -> None:
        self.world, self.jobs = World("4x4 V100"), jobs
        for job in jobs:
            self.world.job(job, gpus=gpus, kind="cnn", seconds_per_iteration=1.0)
        self.known: list[KnownRate] = []

    def knows(self, *sizes: int, rate: float | None = None, **columns: object) -> Self:
        """Add rates of the kind: the true ones, or another one."""
        fields = {"gpu_type": "V100", "locality": Locality.ISLAND, **columns}
        for size in sizes:
            self.known.append(KnownRate(gpus=size, rate=TRUE[size] if rate is None else rate, **fields))  # type: ignore[arg-type]
        return self

    def holds(self, job: str, gpus: range) -> Self:
        self.world.holds(job, *gpus)
        return self

    def menus(self, *, state: Ints | None = None, **options: object) -> Menus:
        snapshot = self.world.snapshot()
        if state is not None:
            held = dataclasses.replace(snapshot.holdings, state=state)
            snapshot = dataclasses.replace(snapshot, holdings=held)
        kind = int(snapshot.jobs.job_kind[self.world.row(self.jobs[0])])
        snapshot = dataclasses.replace(
            snapshot, reports=Reported(profiles={kind: tuple(self.known)} if self.known else {})
        )
        return ProfiledSizes(ProfiledSizesOptions.model_validate(options)).eunomia_elasticity(snapshot)

    def rates(self, job: str) -> dict[int, float]:
        made, row = self.menus(), self.world.row(job)
        return {size: made.rate(row, size) for size in made.sizes(row).tolist()}

    def asked(self, *, state: Ints | None = None, **options: object) -> list[tuple[str, int]]:
        probe = self.menus(state=state, **options).probe
        if probe is None:
            return []
        names = {self.world.row(job): job for job in self.jobs}
        return [(names[job], gpus) for job, gpus in zip(probe.jobs.tolist(), probe.gpus.tolist(), strict=True)]


# --- first shares ----------------------------------------------------------------------------------------------------


def test_a_job_of_an_unknown_kind_has_linear_rates_up_to_its_fair_share() -> None:
    assert Lab("a/1").rates("a/1") == {size: float(size) for size in range(1, 17)}
    assert Lab("a/1", "b/1", "c/1").rates("c/1") == {size: float(size) for size in range(1, 6)}


def test_the_minimum_size_is_on_the_menu_even_beyond_the_fair_share() -> None:
    assert list(Lab("a/1", "b/1", "c/1", gpus=(8, 16)).rates("a/1")) == [8]


def test_a_kind_is_limited_to_its_fair_share_until_its_minimum_size_is_measured() -> None:
    made = Lab("a/1", "b/1").holds("a/1", range(8)).knows(8)
    assert max(made.rates("b/1")) == 8
    assert max(made.knows(4, 2).rates("b/1")) == 8
    assert max(made.knows(1).rates("b/1")) == 16


def test_a_kind_of_job_with_no_running_job_to_measure_has_no_size_limit() -> None:
    assert max(Lab("a/1", "b/1").knows(4).rates("b/1")) == 16


# --- measurements ----------------------------------------------------------------------------------------------------


def test_a_running_job_is_measured_at_packed_sizes_below_its_own_the_largest_first() -> None:
    made = Lab("a/1").holds("a/1", range(12))
    for size, expected in ((12, 8), (8, 4), (4, 2), (2, 1)):
        assert made.knows(size).asked() == [("a/1", expected)]
    assert made.knows(1).asked() == []


def test_every_size_is_measured_if_the_option_says_so() -> None:
    made = Lab("a/1", gpus=(2, 16)).holds("a/1", range(6))
    for size in (6, 5, 4, 3):
        assert made.knows(size, rate=float(size)).asked(measure="all") == [("a/1", size - 1)]
    assert made.knows(2).asked(measure="all") == []


def test_each_size_is_measured_by_one_job_and_the_largest_job_comes_first() -> None:
    made = Lab("a/1", "b/1", "c/1").holds("a/1", range(4)).holds("b/1", range(4, 12))
    assert made.asked() == [("b/1", 2), ("a/1", 1)]  # a/1 is measured at 4 where it is
    assert made.knows(8, 4, 2).asked() == [("b/1", 1)]
    assert made.knows(1).asked() == []


def test_a_minimum_size_that_is_not_packed_is_measured_too() -> None:
    assert Lab("a/1", gpus=(3, 16)).holds("a/1", range(4)).knows(4).asked() == [("a/1", 3)]


def test_jobs_without_a_declared_kind_are_each_measured() -> None:
    world = World("4x4 V100").job("a/1", gpus=(1, 8)).job("b/1", gpus=(1, 8))
    world.holds("a/1", 0, 1).holds("b/1", 4, 5).measures("a/1", 2, 1.9).measures("b/1", 2, 1.8).measures("b/1", 1, 1.0)
    made = ProfiledSizes(ProfiledSizesOptions()).eunomia_elasticity(world.snapshot())
    assert made.probe is not None
    assert (made.probe.jobs.tolist(), made.probe.gpus.tolist()) == ([world.row("a/1")], [1])
    assert (made.rate(world.row("a/1"), 4), made.rate(world.row("b/1"), 4)) == (3.8, 3.6)


def test_gpus_that_a_job_is_leaving_do_not_count_as_its_size() -> None:
    made = Lab("a/1", gpus=(1, 8)).holds("a/1", range(12)).knows(1, 2, 4)
    leaving = (np.arange(16) >= 4).astype(np.int32) * (GpuState.LEAVING - GpuState.HELD) + GpuState.HELD
    assert made.asked(state=leaving) == []
    assert made.asked() == [("a/1", 8)]


def test_waiting_jobs_are_not_measured() -> None:
    assert Lab("a/1").asked() == []
    empty = ProfiledSizes(ProfiledSizesOptions()).eunomia_elasticity(World().snapshot())
    assert (empty.probe, empty.points.gpus.size) == (None, 0)


@pytest.mark.parametrize(
    ("option", "value"), [("iterations", 0), ("again", "0s"), ("measure", "some"), ("iteration", 5)]
)
def test_bad_options_are_refused(option: str, value: object) -> None:
    with pytest.raises(ValidationError, match=option):
        ProfiledSizesOptions.model_validate({option: value})


# --- curves ----------------------------------------------------------------------------------------------------------


def test_rates_are_linear_between_known_sizes_and_proportional_outside_of_them() -> None:
    got = Lab("a/1").knows(4, 2).rates("a/1")
    assert got[1] == pytest.approx(1.9 / 2)
    assert got[3] == pytest.approx((1.9 + 3.4) / 2)
    assert got[16] == pytest.approx(4 * 3.4)


def test_a_size_no_faster_than_a_smaller_one_is_dropped_and_larger_ones_still_tried() -> None:
    got = Lab("a/1").knows(1).knows(4, rate=1.8).knows(2).rates("a/1")
    assert list(got)[:3] == [1, 2, 5]
    assert got[5] == pytest.approx(1.8 * 5 / 4)


def test_rates_of_zero_and_of_other_gpu_types_are_ignored() -> None:
    assert Lab("a/1").knows(2, rate=0.0).knows(1).rates("a/1")[3] == pytest.approx(3.0)
    assert Lab("a/1").knows(2, rate=9.0, gpu_type="K80").knows(1).rates("a/1")[2] == pytest.approx(2.0)


def test_rates_across_machines_are_not_used_if_rates_within_one_exist() -> None:
    made = Lab("a/1").knows(2, rate=1.2, locality=Locality.RACK).knows(1)
    assert made.rates("a/1")[3] == pytest.approx(3.0)
    assert made.knows(2, locality=Locality.MACHINE).rates("a/1")[3] == pytest.approx(1.9 * 1.5)
    assert made.knows(8, locality=Locality.RACK).rates("a/1")[5] == pytest.approx(1.9 + (5.0 - 1.9) / 2)
    assert Lab("a/1").knows(2, rate=1.2, locality=Locality.RACK).rates("a/1")[4] == pytest.approx(2.4)


@given(
    st.dictionaries(st.integers(1, 32), st.floats(0.1, 100.0), min_size=1, max_size=6),
    st.integers(1, 8),
    st.integers(0, 8),
)
def test_known_sizes_keep_their_rates_and_menus_ascend(known: dict[int, float], least: int, more: int) -> None:
    known = dict(sorted(known.items()))
    sizes = np.arange(1, 41)
    found = rates_between(known, sizes)
    assert np.isfinite(found).all()
    assert (found > 0.0).all()
    assert {size: found[size - 1] for size in known} == pytest.approx(known)
    made = Lab("a/1", gpus=(least, least + more))
    for size, rate in known.items():
        made.knows(size, rate=rate)
    got = made.rates("a/1")
    assert next(iter(got)) == least
    assert all(after > before for before, after in pairwise(got.values()))


# --- with an arbiter ------------------------------------------------------------------------------------------------


def test_rates_of_a_kind_outlive_its_job_and_imported_ones_need_no_measurement() -> None:
    cluster = Cluster.parse("4x4 V100")
    stages = Profile.load("coddl").stages(cluster)
    made = Arbiter(cluster, stages, stages)
    known = [KnownRate(gpus=size, gpu_type="V100", locality=Locality.ISLAND, rate=rate) for size, rate in TRUE.items()]
    made.step(Seconds(0.0), [KindProfiled(kind="cnn", rates=tuple(known[:4])), *_arrival("a")])
    made.step(Seconds(1.0), [AppFinished(app=AppId("a"))])
    made.step(Seconds(2.0), [*_arrival("b"), *_arrival("c")])
    found = ProfiledSizes(ProfiledSizesOptions()).eunomia_elasticity(made.snapshot())
    assert found.probe is None
    assert found.rate(made.state.job_row(JobId("c/1")), 12) == pytest.approx(5.0 * 12 / 8)


def _arrival(app: str) -> tuple[Event, Event]:
    job = JobAdded(app=AppId(app), job=JobId(f"{app}/1"), least=1, most=16, kind="cnn", seconds_per_iteration=1.0)
    return AppArrived(app=AppId(app), user=UserId("u")), job


def test_a_reported_rate_triggers_a_round_of_coddl() -> None:
    cluster = Cluster.parse("4x4 V100")
    stages = Profile.load("coddl").stages(cluster)
    made = Arbiter(cluster, stages, stages)
    made.step(Seconds(0.0), _arrival("a"))
    report = RateMeasured(job=JobId("a/1"), gpus=16, gpu_type="V100", locality=Locality.CLUSTER, rate=6.4)
    assert made.step(Seconds(9.0), [report]).causes == {Cause.REPORTED}


# --- in a simulation -------------------------------------------------------------------------------------------------


def _scaling(folder: Path) -> AfsScaling:
    lines = [f"cnn,64,{gpus},{1.0 / rate}" for gpus, rate in TRUE.items()]
    (folder / "scaling.csv").write_text("\n".join(["model,global_batch,num_gpus,step_time_s", *lines, ""]))
    return AfsScaling.read(folder / "scaling.csv")


def _simulated(folder: Path, profile: Profile, reports: Reports, *, plain: bool = False) -> tuple[SimulatedRun, Engine]:
    """Six jobs of one kind, 500 s apart."""
    work = Workload.single_jobs(
        "cnn",
        ids=list("abcdef"),
        arrival_seconds=np.arange(6) * 500.0,
        gpus=np.full(6, 16),
        iterations=np.full(6, 4000.0),
        seconds_per_iteration=np.full(6, 1.0 / TRUE[16]),
        models=["cnn"] * 6,
    )
    jobs = dataclasses.replace(work.jobs, least=np.ones(6, np.int64))
    work = dataclasses.replace(work, jobs=jobs)
    options = SimulationOptions(reports=reports, plain=plain)
    engine = assemble(work, Cluster.parse("4x4 V100"), profile, options, models=_scaling(folder))
    return engine.run(), engine


def test_a_kind_is_measured_once_and_jobs_finish_nearly_as_early_as_with_declared_curves(tmp_path: Path) -> None:
    run, engine = _simulated(tmp_path, Profile.load("coddl"), Reports(know="measured"))
    declared = Profile.load("coddl", settings={"stages.elasticity": "throughput"})
    best, _ = _simulated(tmp_path, declared, Reports(know=("sizes", "types")))
    state = engine.sim.arbiter.state
    known = {(rate.gpus, round(rate.rate, 9)) for rate in state.reports.profiles[state.names.kinds["cnn"]]}
    assert known >= {(1, 1.0), (2, 1.9), (4, 3.4), (8, 5.0)}
    assert known <= set(TRUE.items())
    probes = int(run.probes.sum())
    assert 3 <= probes <= len(TRUE) - 1
    assert run.finish_seconds.mean() == pytest.approx(best.finish_seconds.mean(), rel=0.01)


def test_plain_and_incremental_runs_are_equal(tmp_path: Path) -> None:
    one, other = (
        _simulated(tmp_path, Profile.load("coddl"), Reports(know="measured"), plain=plain)[0] for plain in (True, False)
    )
    assert one.finish_seconds.tolist() == other.finish_seconds.tolist()
    assert one.probes.tolist() == other.probes.tolist()
