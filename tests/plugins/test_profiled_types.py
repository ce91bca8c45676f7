"""``profiled_types``: each kind is measured once on each GPU type, by one of its jobs."""

import math

import numpy as np
import pytest

from eunomia import Menus, Reason, Seconds
from eunomia.arbiter import Arbiter
from eunomia.contract.events import AppArrived, AppFinished, Event, JobAdded, KindProfiled, RateMeasured
from eunomia.model.cluster import Cluster
from eunomia.model.kind_profiles import KnownRate
from eunomia.platform.profiles import Profile
from eunomia.units import AppId, JobId, Locality, UserId
from eunomia_plugins.elasticity.profiled_types import ProfiledTypes, ProfiledTypesOptions

TYPES = ("K80", "P100", "V100")
CLUSTER = Cluster.parse("1x4 K80, 1x4 P100, 1x2 V100")
AT_ONCE = Seconds(0.0)


def arbiter() -> Arbiter:
    stages = Profile.load("fifo", settings={"stages.elasticity": "profiled_types"}).stages(CLUSTER)
    return Arbiter(CLUSTER, stages, stages)


def arrival(app: str, kind: str | None = "resnet", gpus: int = 1, **columns: float) -> tuple[Event, Event]:
    job = JobAdded(app=AppId(app), job=JobId(f"{app}/1"), least=gpus, most=gpus, kind=kind, **columns)  # type: ignore[arg-type]
    return AppArrived(app=AppId(app), user=UserId("u")), job


def measured(app: str, gpu_type: str, rate: float, gpus: int = 1) -> RateMeasured:
    job = JobId(f"{app}/1")
    return RateMeasured(job=job, gpus=gpus, gpu_type=gpu_type, locality=Locality.MACHINE, rate=rate)


def menus(made: Arbiter, until_profiled: str = "assumed") -> Menus:
    options = ProfiledTypesOptions.model_validate({"until_profiled": until_profiled})
    found: Menus = ProfiledTypes(options).eunomia_elasticity(made.snapshot())
    return found


def rates(made: Arbiter, app: str) -> dict[str, float]:
    """By GPU type: the rate on the menu of an app's job."""
    found = menus(made)
    at = int(found.curve[made.state.job_row(JobId(f"{app}/1"))])
    points = slice(int(found.points.start[at]), int(found.points.start[at + 1]))
    types = [CLUSTER.gpu_types.index(name) for name in TYPES]
    by_type = dict(zip(found.points.gpu_type[points].tolist(), found.points.rate[points].tolist(), strict=True))
    return {name: by_type[kind] for name, kind in zip(TYPES, types, strict=True) if kind in by_type}


def asked(made: Arbiter, until_profiled: str = "assumed") -> list[tuple[str, int, str]]:
    """Job, GPUs and GPU type of each probe."""
    probe = menus(made, until_profiled).probe
    if probe is None or probe.gpu_type is None:
        return []
    rows = zip(probe.jobs.tolist(), probe.gpus.tolist(), probe.gpu_type.tolist(), strict=True)
    return [(str(made.state.job_id(job)), gpus, CLUSTER.gpu_types[kind]) for job, gpus, kind in rows]


def test_one_job_of_a_kind_is_measured_on_one_type_after_the_other() -> None:
    made = arbiter()
    made.step(AT_ONCE, [*arrival("a"), *arrival("b"), *arrival("c", kind="bert")])
    (first, second) = asked(made)
    assert {first[0], second[0]} == {"a/1", "c/1"}
    for gpu_type, rate in zip(TYPES, (1.0, 2.0, 4.0), strict=True):
        made.step(Seconds(made.state.now + 1.0), [measured("a", gpu_type, rate)])
    assert [job for job, _, _ in asked(made)] == ["c/1"]
    assert rates(made, "a") == rates(made, "b") == {"K80": 1.0, "P100": 2.0, "V100": 4.0}


def test_a_later_job_of_the_kind_is_not_measured_again() -> None:
    made = arbiter()
    made.step(AT_ONCE, arrival("a"))
    made.step(Seconds(1.0), [measured("a", gpu_type, 3.0) for gpu_type in TYPES])
    made.step(Seconds(2.0), [AppFinished(app=AppId("a"))])
    made.step(Seconds(3.0), arrival("b"))
    assert asked(made) == []
    assert rates(made, "b") == dict.fromkeys(TYPES, 3.0)


def test_imported_rates_need_no_measurement() -> None:
    made = arbiter()
    known = [KnownRate(gpus=1, gpu_type=name, locality=Locality.ISLAND, rate=2.0) for name in TYPES]
    made.step(AT_ONCE, [KindProfiled(kind="resnet", rates=tuple(known)), *arrival("a")])
    assert asked(made) == []


def test_an_unmeasured_type_has_the_declared_rate_or_the_fastest_measured_one() -> None:
    made = arbiter()
    made.step(
        AT_ONCE, [*arrival("a"), *arrival("b", kind="bert", seconds_per_iteration=0.5), *arrival("c", kind="new")]
    )
    made.step(Seconds(1.0), [measured("a", "P100", 6.0), measured("b", "P100", 6.0)])
    assert rates(made, "a") == {"K80": 6.0, "P100": 6.0, "V100": 6.0}
    assert rates(made, "b") == {"K80": 2.0, "P100": 6.0, "V100": 2.0}
    assert all(math.isnan(rate) for rate in rates(made, "c").values())


def test_types_too_small_for_a_job_or_not_requested_are_not_measured() -> None:
    made = arbiter()
    made.step(AT_ONCE, arrival("a", gpus=4))
    assert set(rates(made, "a")) == {"K80", "P100"}
    made.step(Seconds(1.0), [measured("a", "K80", 1.0, gpus=4), measured("a", "P100", 1.5, gpus=4)])
    assert asked(made) == []


@pytest.mark.parametrize(("until_profiled", "waiting"), [("wait", ["b/1", "c/1"]), ("assumed", [])])
def test_an_option_makes_other_jobs_of_the_kind_wait_for_measurements(until_profiled: str, waiting: list[str]) -> None:
    made = arbiter()
    made.step(AT_ONCE, [*arrival("a"), *arrival("b"), *arrival("c"), *arrival("d", kind="bert")])
    found = menus(made, until_profiled)
    assert sorted(str(made.state.job_id(job)) for job in found.verdicts.rows.tolist()) == waiting
    assert set(found.verdicts.reasons.tolist()) <= {int(Reason.NOT_PROFILED)}
    assert np.all(found.curve[found.verdicts.rows] == -1)


def test_without_a_declared_kind_each_app_is_measured_separately() -> None:
    made = arbiter()
    made.step(AT_ONCE, [*arrival("a", kind=None), *arrival("b", kind=None)])
    made.step(Seconds(1.0), [measured("a", gpu_type, 3.0) for gpu_type in TYPES])
    assert [job for job, _, _ in asked(made)] == ["b/1"]
