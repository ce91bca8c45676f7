"""The CPUs of a holder who gives its GPUs up are there for whoever comes next."""

from eunomia import Cluster, Profile
from eunomia.arbiter import Arbiter
from eunomia.contract.events import AppArrived, Event, JobAdded
from eunomia.testing.drive import Drive
from eunomia.units import AppId, JobId, UserId


def test_a_plan_treats_the_cpus_of_a_suspended_gang_as_free() -> None:
    cluster = Cluster.parse("1x2 V100 4cpu 16GB")
    profile = Profile.load("default", settings={"stages.valuation": "las", "rounds.lease": "10s"})
    arbiter = Arbiter(cluster, profile.stages(cluster), Profile.fallback().stages(cluster))
    script: list[tuple[float, Event]] = []
    for time, name, gpus, cpus in ((0.0, "wide", 2, 1.5), (1.0, "narrow", 1, 3.0)):
        app = AppId(name)
        script.append((time, AppArrived(app=app, user=UserId("ana"), divides=False)))
        added = JobAdded(job=JobId(f"{name}/0"), app=app, least=gpus, most=gpus, cpus_per_gpu=cpus)
        script.append((time, added))
    drive = Drive(arbiter, work={JobId("wide/0"): 200.0, JobId("narrow/0"): 5.0})
    outcome = drive.run(script, until=20.0)
    assert [decision.faults for decision in outcome.decisions if decision.faults] == []
    assert outcome.finished == {"narrow/0": 15.0}
