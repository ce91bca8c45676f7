"""The lottery of the tutorial: loaded from its file, run to the end, equal for equal seeds."""

from pathlib import Path

import pytest

from eunomia import Profile
from eunomia.arbiter import Arbiter
from eunomia.contract.decisions import Decision
from eunomia.contract.events import AppArrived, Event, JobAdded
from eunomia.errors import InputErrors
from eunomia.model.cluster import Cluster
from eunomia.platform.registry import Registry
from eunomia.round.invariants import check_state
from eunomia.testing.drive import Drive, Outcome
from eunomia.units import AppId, JobId, UserId

FILE = Path(__file__).parent.parent / "docs" / "examples" / "eunomia_lottery" / "eunomia_lottery.py"


def profile() -> Profile:
    return Profile.load("lottery", registry=Registry.find(paths=[FILE]))


def driven(seed: int) -> Outcome:
    cluster = Cluster.parse("2x4 V100")
    arbiter = Arbiter(cluster, profile().stages(cluster), Profile.fallback().stages(cluster), seed=seed)
    script: list[tuple[float, Event]] = []
    for number in range(20):
        app = AppId(f"app{number:02d}")
        script.append((0.1 * number, AppArrived(app=app, user=UserId("ana"), weight=1.0 + number)))
        script.append((0.1 * number, JobAdded(job=JobId(f"{app}/0"), app=app, least=2, most=2)))
    work = {JobId(f"app{number:02d}/0"): 30.0 for number in range(20)}

    def watch(drive: Drive, decision: Decision) -> None:
        check_state(arbiter.state)
        assert not decision.faults

    return Drive(arbiter, work=work, seed=1, watch=watch).run(script)


def test_every_job_wins_in_an_order_that_the_seed_decides() -> None:
    first, again, other = driven(1), driven(1), driven(2)
    assert len(first.finished) == 20
    assert first.finished == again.finished
    assert first.finished != other.finished


def test_a_cluster_of_two_gpu_types_is_refused() -> None:
    mixed = Cluster.parse("1x4 V100, 1x4 P100")
    with pytest.raises(InputErrors, match="lottery"):
        profile().stages(mixed)
