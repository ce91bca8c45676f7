"""What an arbiter keeps of the containers that launchers report."""

from eunomia_appmaster.protocol import launcher_pb2 as pb
from eunomia_appmaster.service.container_statuses import ENDED_KEPT, ContainerStatuses


def status(version: int, *, name: str = "ana.1.1.0", ended: bool = False) -> pb.ContainerStatus:
    return pb.ContainerStatus(container_id=name, version=version, state=pb.COMPLETED if ended else pb.RUNNING)


def test_a_status_replaces_only_an_older_one() -> None:
    known = ContainerStatuses()
    assert [known.hear(status(version)) for version in (0, 2, 1, 2, 3)] == [True, True, False, False, True]
    assert [each.version for each in known] == [3]


def test_an_ended_container_is_not_listed_and_older_reports_on_it_are_ignored() -> None:
    known = ContainerStatuses()
    assert known.hear(status(4))
    assert known.hear(status(6, ended=True))
    assert list(known) == []
    assert [known.hear(status(version)) for version in (5, 6)] == [False, False]
    assert list(known) == []


def test_only_the_last_ended_containers_are_remembered() -> None:
    known = ContainerStatuses()
    for number in range(ENDED_KEPT + 1):
        assert known.hear(status(6, name=f"ana.{number}.1.0", ended=True))
    assert not known.hear(status(5, name=f"ana.{ENDED_KEPT}.1.0"))
    assert known.hear(status(5, name="ana.0.1.0")), "it ended too long ago"


def test_a_status_is_stored_as_a_copy() -> None:
    request = pb.NodeHeartbeatRequest(containers=[status(1)])
    known = ContainerStatuses()
    known.hear(request.containers[0])
    request.containers[0].version = 9
    assert [each.version for each in known] == [1]
