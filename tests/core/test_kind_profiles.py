"""Rates by kind of job: kept when the measured job ends, read by the next job of the kind, bounded and checked."""

import math

import pytest

from eunomia import Locality, Profile
from eunomia.arbiter import Arbiter
from eunomia.contract.decisions import Fault
from eunomia.contract.events import (
    AppArrived,
    AppFinished,
    Event,
    JobAdded,
    JobPaused,
    KindProfiled,
    RateMeasured,
    Started,
)
from eunomia.model.cluster import Cluster
from eunomia.model.kind_profiles import MOST_POINTS, KnownRate, with_rate
from eunomia.model.leases import LeaseState
from eunomia.units import AppId, Basis, Epoch, JobId, LeaseId, Seconds, UserId
from eunomia_plugins.elasticity.throughput import Throughput, ThroughputOptions


def arbiter() -> Arbiter:
    cluster = Cluster.parse("1x4 V100")
    stages = Profile.load("default", settings={"stages.elasticity": "throughput"}).stages(cluster)
    return Arbiter(cluster, stages, stages)


def arrival(app: str, kind: str | None = "resnet") -> tuple[Event, Event]:
    added = JobAdded(app=AppId(app), job=JobId(f"{app}/1"), least=1, most=4, kind=kind)
    return AppArrived(app=AppId(app), user=UserId("u")), added


def measured(app: str, gpus: int, rate: float, **columns: float) -> RateMeasured:
    where = {"gpu_type": "V100", "locality": Locality.MACHINE, "date": "2026-11-23"}
    return RateMeasured(job=JobId(f"{app}/1"), gpus=gpus, rate=rate, **where, **columns)  # type: ignore[arg-type]


def known(gpus: int, rate: float, gpu_type: str = "V100", basis: Basis = Basis.DECLARED) -> KnownRate:
    return KnownRate(gpus=gpus, gpu_type=gpu_type, locality=Locality.MACHINE, rate=rate, known=basis)


def rates_of(made: Arbiter, app: str) -> dict[int, float]:
    """By size: the rate on the menu of the app's job."""
    snapshot = made.snapshot()
    job = made.state.job_row(JobId(f"{app}/1"))
    menus = Throughput(ThroughputOptions()).eunomia_elasticity(snapshot)
    return {int(gpus): round(menus.rate(job, int(gpus)), 9) for gpus in menus.sizes(job)}


def profile_of(made: Arbiter, kind: str) -> tuple[KnownRate, ...]:
    return made.state.reports.profiles.get(made.state.names.kinds.get(kind, -1), ())


def test_the_next_job_of_a_kind_starts_with_the_rates_of_a_finished_one() -> None:
    made = arbiter()
    made.step(Seconds(0.0), arrival("a"))
    made.step(Seconds(1.0), [measured("a", 1, 3.0), measured("a", 2, 5.0), measured("a", 1, 4.0)])
    made.step(Seconds(2.0), [AppFinished(app=AppId("a"))])
    assert made.state.reports.measured == {}
    made.step(Seconds(3.0), [*arrival("b"), *arrival("c", kind="other")])
    found = rates_of(made, "b")
    assert (found[1], found[2]) == (4.0, 5.0)
    assert all(math.isnan(rate) for rate in rates_of(made, "c").values())


def test_a_rate_reported_while_its_job_releases_its_gpus_is_stored_with_their_machine() -> None:
    made = arbiter()
    made.step(Seconds(0.0), arrival("a"))
    (lease,) = made.state.leases.values()
    made.step(Seconds(0.5), [Started(lease=LeaseId(lease.id), epoch=Epoch(lease.epoch))])
    made.step(Seconds(1.0), [JobPaused(job=JobId("a/1"))])
    (lease,) = made.state.leases.values()
    assert (lease.state, len(lease.gpus)) == (LeaseState.LEAVING, 0)
    made.step(Seconds(1.5), [measured("a", 1, 3.0)])
    (point,) = profile_of(made, "resnet")
    assert (point.rate, point.machine) == (3.0, made.state.cluster.machines[0].name)


@pytest.mark.parametrize(("kind", "rates"), [("resnet", (7.0, 7.0)), (None, (3.0, 7.0))])
def test_jobs_of_one_kind_share_their_last_rate_and_jobs_without_a_kind_do_not(
    kind: str | None, rates: tuple[float, float]
) -> None:
    made = arbiter()
    made.step(Seconds(0.0), [*arrival("a", kind=kind), *arrival("b", kind=kind)])
    made.step(Seconds(1.0), [measured("a", 1, 3.0)])
    made.step(Seconds(2.0), [measured("b", 1, 7.0)])
    assert (rates_of(made, "a")[1], rates_of(made, "b")[1]) == rates


def test_a_job_uses_only_rates_of_its_own_batch_size() -> None:
    made = arbiter()
    app, job = arrival("b")
    assert isinstance(job, JobAdded)
    made.step(Seconds(0.0), arrival("a"))
    made.step(Seconds(1.0), [measured("a", 1, 3.0, batch_size=32.0), measured("a", 1, 2.0, batch_size=64.0)])
    added = JobAdded(app=job.app, job=job.job, least=1, most=4, kind="resnet", batch_size=64.0)
    made.step(Seconds(2.0), [app, added])
    assert rates_of(made, "b")[1] == 2.0


def test_jobs_without_a_declared_kind_leave_no_profile() -> None:
    made = arbiter()
    made.step(Seconds(0.0), [*arrival("a", kind=None), *arrival("b", kind="b")])
    made.step(Seconds(1.0), [measured("a", 1, 3.0), measured("b", 1, 3.0)])
    assert made.state.reports.profiles == {}


def test_profiles_survive_a_checkpoint_with_their_origin() -> None:
    made = arbiter()
    made.step(Seconds(0.0), arrival("a"))
    made.step(Seconds(1.0), [measured("a", 1, 3.0, cpus=2.0), KindProfiled(kind="bert", rates=(known(2, 9.0),))])
    again = arbiter()
    again.load(made.save())
    assert again.save() == made.save()
    (point,) = profile_of(again, "resnet")
    assert (point.rate, point.cpus, point.known, point.date) == (3.0, 2.0, Basis.MEASURED, "2026-11-23")
    assert profile_of(again, "bert") == (known(2, 9.0),)


def test_the_operator_can_import_a_profile_and_drop_it() -> None:
    made = arbiter()
    made.step(Seconds(0.0), [KindProfiled(kind="resnet", rates=(known(1, 2.0), known(4, 6.0)))])
    made.step(Seconds(1.0), arrival("a"))
    assert rates_of(made, "a")[4] == 6.0
    made.step(Seconds(2.0), [KindProfiled(kind="resnet", rates=())])
    assert made.state.reports.profiles == {}


@pytest.mark.parametrize(
    ("rate", "rule"),
    [
        (known(1, -1.0), "a rate must be a number of 0 or more"),
        (known(1, math.nan), "a rate must be a number of 0 or more"),
        (known(1, 1.0, gpu_type="A100"), "a GPU type must be one of V100"),
        (known(5, 1.0), "GPUs must be from 1 to 4"),
        (known(0, 1.0), "GPUs must be from 1 to 4"),
    ],
)
def test_a_profile_that_fits_no_job_of_the_cluster_is_refused_and_changes_nothing(rate: KnownRate, rule: str) -> None:
    made = arbiter()
    made.step(Seconds(0.0), [KindProfiled(kind="resnet", rates=(known(1, 2.0),))])
    faults: tuple[Fault, ...] = made.step(
        Seconds(1.0), [KindProfiled(kind="resnet", rates=(known(2, 1.0), rate))]
    ).faults
    assert [rule in fault.what and "resnet, point 2" in fault.what for fault in faults] == [True]
    assert profile_of(made, "resnet") == (known(1, 2.0),)


def test_a_kind_has_a_limited_number_of_measured_points() -> None:
    rates: tuple[KnownRate, ...] = ()
    for gpus in range(1, MOST_POINTS + 3):
        rates = with_rate(rates, known(gpus, 1.0))
    assert (len(rates), rates[0].gpus) == (MOST_POINTS, 3)
