"""An elastic job that could use more GPUs than the cluster has runs on those there are."""

import pytest

from eunomia.arbiter import Arbiter
from eunomia.contract.events import AppArrived, JobAdded
from eunomia.model.cluster import Cluster
from eunomia.platform.profiles import Profile
from eunomia.units import AppId, JobId, Seconds, UserId


@pytest.mark.parametrize("policy", ["default", "srtf", "las", "themis_rho"])
def test_an_elastic_job_wider_than_the_cluster_runs_on_all_of_it(policy: str) -> None:
    cluster = Cluster.parse("1x2 V100")
    arbiter = Arbiter(cluster, Profile.load(policy).stages(cluster), Profile.fallback().stages(cluster))
    arrived = AppArrived(app=AppId("a"), user=UserId("ana"), divides=False)
    added = JobAdded(job=JobId("a/1"), app=AppId("a"), least=1, most=4, iterations=10.0, seconds_per_iteration=1.0)
    decision = arbiter.step(Seconds(0.0), [arrived, added])
    (start,) = decision.transitions
    assert start.gpus.tolist() == [0, 1]


def test_a_gang_wider_than_the_cluster_waits() -> None:
    cluster = Cluster.parse("1x2 V100")
    arbiter = Arbiter(cluster, Profile.load("default").stages(cluster), Profile.fallback().stages(cluster))
    arrived = AppArrived(app=AppId("a"), user=UserId("ana"), divides=False)
    decision = arbiter.step(Seconds(0.0), [arrived, JobAdded(job=JobId("a/1"), app=AppId("a"), least=4, most=4)])
    assert not decision.transitions
    assert [waiting.reason.word for waiting in decision.waiting if waiting.reason] == ["no_size_fits"]
