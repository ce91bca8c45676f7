"""A heartbeat that says what the arbiter knows already is no reason to look over all nodes."""

from eunomia_appmaster.protocol import launcher_pb2 as pb
from eunomia_appmaster.service.nodes import Node

STATUS = pb.ContainerStatus(container_id="ana-1.r1", version=3, state=pb.RUNNING)
MASTER = pb.AppMasterStatus(app="ana", version=2)
SLOT = pb.SlotState(slot=0, highest_epoch=4)


def test_a_repeated_report_does_not_count_as_a_change() -> None:
    node = Node("box7", pb.RegisterNodeRequest(node="box7"))
    assert node.hear([STATUS], [MASTER], [SLOT], draining=False)
    assert not node.hear([STATUS], [MASTER], [SLOT], draining=False)
    assert not node.hear((), (), ())
    assert node.hear([pb.ContainerStatus(container_id="ana-1.r1", version=4, state=pb.COMPLETED)], (), ())
    assert not node.hear([STATUS], (), ()), "older than what is known"
    assert node.hear((), [pb.AppMasterStatus(app="ana", version=3)], ())
    assert node.hear((), (), [pb.SlotState(slot=0, highest_epoch=5)])
    assert node.hear((), (), (), draining=True)
