"""Nodes drain, are kept and leave by the operator's order; versions are checked, app masters move."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from eunomia.contract.events import MachineBack, MachineDraining
from eunomia.journal.journal import read_journal
from eunomia.units import NEVER
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.protocol import launcher_pb2 as lpb
from eunomia_appmaster.protocol.versions import PYTHON, VERSION
from eunomia_appmaster.service.layout import MACHINE_NOTE

_spec = importlib.util.spec_from_file_location("service_lab", Path(__file__).parent / "service_lab.py")
lab_module = sys.modules.setdefault("service_lab", importlib.util.module_from_spec(_spec))
_spec.loader.exec_module(lab_module)
eventually, Beating, Launcher = lab_module.eventually, lab_module.Beating, lab_module.Launcher
Two, gang = lab_module.Two, lab_module.gang


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Two]:
    with lab_module.two_nodes(tmp_path, 2.0) as made:
        yield made


def running(two: Two, name: str, gpus: int) -> Any:
    master = two.lab.master(name, str(gpus))
    master.register()
    master.beat_until(lambda: master.leases, jobs_added=[gang(f"{name}/1", gpus)])
    master.beat()
    return master


def test_nodes_are_listed_with_slots_load_and_last_heartbeat(two: Two) -> None:
    seen = eventually(lambda: (nodes := two.nodes())["annex"].HasField("heard_seconds") and nodes, "heard")
    assert list(seen) == ["annex", "box7"]
    annex = seen["annex"]
    assert (annex.state, dict(annex.slots), annex.held, annex.version) == ("up", {"cpu": 2}, 0, VERSION)
    assert 0.0 <= annex.heard_seconds < 5.0
    assert annex.why == ""


def test_slots_of_a_drained_node_go_to_no_job_until_it_is_undrained(two: Two) -> None:
    seen = two.call("DrainNode", pb.DrainNodeRequest(node="annex", why="ana: maintenance"))
    assert (seen.state, seen.why) == ("drained", "ana: maintenance")
    assert two.lab.slots("down") == [2, 3]
    master = two.lab.master("ana", "4")
    master.register()
    master.beat(jobs_added=[gang("ana/1", 4)])
    two.restart()
    assert two.nodes()["annex"].why == "ana: maintenance"
    again = two.call("DrainNode", pb.DrainNodeRequest(node="annex"))
    assert again.why == "ana: maintenance", "a second order without a reason keeps it"
    assert two.lab.slots("down") == [2, 3]
    master.register()
    assert not master.leases
    assert two.call("UndrainNode", pb.UndrainNodeRequest(node="annex")).state == "up"
    master.beat_until(lambda: master.leases)
    assert "must drain to be undrained" in two.refused("UndrainNode", pb.UndrainNodeRequest(node="annex"))


def test_a_node_in_use_is_removed_once_its_leases_have_ended(two: Two) -> None:
    master = running(two, "ana", 4)
    made = two.remove(why="sold")
    assert (made.left, made.node.state, made.node.held, made.node.leaves) == (False, "draining", 2, True)
    assert made.node.why == "sold; it is removed once it is empty"
    two.lab.arbiter.call(lambda: None)
    (lease,) = master.leases.values()
    master.beat(release=[pb.Release(lease=lease.id, epoch=lease.epoch, gpus=[0, 1, 2, 3])], jobs_paused=["ana/1"])
    eventually(lambda: list(two.nodes()) == ["box7"], "it has left")
    assert [(slot.machine, slot.gpu) for slot in two.lab.seen().slots] == [("box7", 0), ("box7", 1)]
    two.restart()
    assert list(two.nodes()) == ["box7"]
    assert two.lab.client().Health(pb.HealthRequest(), metadata=two.lab.operator).slots == 2


def test_a_removal_keeps_the_deadline_that_a_drain_set_for_unlimited_leases(two: Two) -> None:
    master = running(two, "ana", 4)
    assert not two.call("DrainNode", pb.DrainNodeRequest(node="annex")).HasField("ends_in_seconds")
    drained = two.call("DrainNode", pb.DrainNodeRequest(node="annex", within_seconds=1000.0))
    assert 990.0 < drained.ends_in_seconds <= 1000.0
    assert 990.0 < two.call("DrainNode", pb.DrainNodeRequest(node="annex", why="sold")).ends_in_seconds <= 1000.0
    two.restart()
    master.register()
    assert 900.0 < two.remove().node.ends_in_seconds <= 1000.0
    with read_journal(two.lab.arbiter.settings.journal) as journal:
        events = [event for step in journal.steps() for event in step.events]
    first, *later = [event.until for event in events if isinstance(event, MachineDraining)]
    assert first == NEVER and len(later) == 3 and len(set(later)) == 1
    two.call("UndrainNode", pb.UndrainNodeRequest(node="annex"))
    assert not two.call("DrainNode", pb.DrainNodeRequest(node="annex")).HasField("ends_in_seconds")


def test_a_removed_node_can_join_again_and_gets_new_numbers(two: Two) -> None:
    running(two, "ana", 4)
    assert two.remove(now=True, why="sold").left
    with pytest.raises(grpc.RpcError) as caught:
        two.annex.register()
    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert "must be started again to join" in str(caught.value.details())
    two.quiet()
    later = Launcher(two.lab, 2, "a later one", "annex")
    later.register()
    assert two.call("DrainNode", pb.DrainNodeRequest(node="annex")).why == "", "the removal's reason is over"
    two.call("UndrainNode", pb.UndrainNodeRequest(node="annex"))
    assert [(slot.machine, slot.gpu) for slot in two.lab.seen().slots][2:] == [("annex", 4), ("annex", 5)]
    two.annex, two.beating = later, Beating(later)
    two.restart()
    layout = two.lab.arbiter.service.nodes.layout
    assert (layout.gpus_of("annex"), layout.nodes) == ([4, 5], ("annex", "box7"))
    with read_journal(two.lab.arbiter.settings.journal) as journal:
        assert {key: note["left"] for key, note in journal.notes(MACHINE_NOTE).items()} == {"1": True, "2": False}


def test_the_first_node_can_be_removed_and_numbers_of_slots_are_not_reused(two: Two) -> None:
    assert two.call("RemoveNode", pb.RemoveNodeRequest(node="box7")).left
    two.lab.quiet()
    assert list(two.nodes()) == ["annex"]
    assert "a cluster must keep a node" in two.refused("RemoveNode", pb.RemoveNodeRequest(node="annex"))
    two.quiet()
    two.lab.restart()
    two.annex.register()
    two.beating = Beating(two.annex)
    eventually(lambda: two.lab.arbiter.service.ready.is_set(), "ready")
    assert [(slot.machine, slot.gpu) for slot in two.lab.seen().slots] == [("annex", 2), ("annex", 3)]


def test_a_silent_node_is_removed_only_if_the_operator_states_that_it_is_off(two: Two) -> None:
    assert "a node that answers is not off" in two.refused(
        "RemoveNode", pb.RemoveNodeRequest(node="annex", is_off=True)
    )
    two.lose()
    remedy = "start its launcher again, or eunomia nodes remove annex --is-off once the machine is off"
    assert two.nodes()["annex"].why == f"silent; its slots wait until its processes are known to be dead: {remedy}"
    assert "--is-off says so" in two.refused("RemoveNode", pb.RemoveNodeRequest(node="annex", now=True))
    assert two.remove(is_off=True).left
    assert list(two.nodes()) == ["box7"]


def test_the_error_for_an_unknown_node_lists_the_nodes(two: Two) -> None:
    why = two.refused("DrainNode", pb.DrainNodeRequest(node="anex"))
    assert 'a node must be one of the cluster (annex, box7), but got "anex"' in why
    assert "annex" in why.partition("but got")[2]


def with_master_on_annex(two: Two, attempt: int) -> None:
    """Submit an app whose master runs on the second node, which reports it as this attempt."""
    two.lab.arbiter.service.nodes.get("annex").is_head = True
    two.lab.submit("ana", "1")
    eventually(lambda: ("ana", 1) in two.annex.started, "the first attempt")
    two.annex.master("ana", attempt, lpb.APP_MASTER_RUNNING)
    two.annex.report()


def test_an_app_master_on_a_lost_node_moves_with_a_higher_attempt_number(two: Two) -> None:
    with_master_on_annex(two, attempt=3)
    two.lose()
    eventually(lambda: ("ana", 4) in two.lab.launcher.started, "the next one elsewhere")
    assert two.lab.arbiter.service.apps.get("ana").node == "box7"
    two.annex.register()
    two.beating = Beating(two.annex)
    eventually(lambda: "ana" in two.annex.stopped, "the former one is ended")


def test_an_app_master_moves_to_a_drained_node_if_no_other_answers(two: Two) -> None:
    """Its job may run there, and only an app master sees that it ends."""
    with_master_on_annex(two, attempt=1)
    two.call("DrainNode", pb.DrainNodeRequest(node="box7"))
    two.lose()
    eventually(lambda: ("ana", 2) in two.lab.launcher.started, "the next one on the drained node")
    assert two.lab.arbiter.service.apps.get("ana").node == "box7"


def test_the_last_remaining_node_is_not_removed(two: Two) -> None:
    running(two, "ana", 4)
    assert not two.remove().left
    why = two.refused("RemoveNode", pb.RemoveNodeRequest(node="box7"))
    assert (
        'a cluster must keep a node, but got "box7", the only one that stays (annex will leave), to be removed' in why
    )
    two.call("UndrainNode", pb.UndrainNodeRequest(node="annex"))
    assert not two.call("RemoveNode", pb.RemoveNodeRequest(node="box7")).left


@pytest.mark.parametrize(
    ("given", "got"),
    [
        ({"version": "0.0.1"}, f"Eunomia 0.0.1, Python {PYTHON} and protocol"),
        ({"python": "2.7"}, "Python 2.7"),
        ({"protocol": 1}, "protocol 1 (barn)"),
        ({"version": ""}, "Eunomia an earlier one"),
    ],
)
def test_a_node_of_another_version_is_refused_with_both_versions(two: Two, given: dict[str, Any], got: str) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        Launcher(two.lab, 1, "x", "barn").register(**given)
    why = str(caught.value.details())
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert f"the arbiter's Eunomia {VERSION}, Python {PYTHON}" in why
    assert got in why


def test_a_node_that_comes_back_gives_a_job_that_waits_a_round_at_once(two: Two) -> None:
    two.lose()
    master = two.lab.master("ana", "4")
    master.register()
    master.beat(jobs_added=[gang("ana/1", 4)])
    with read_journal(two.lab.arbiter.settings.journal) as journal:
        before = journal.last_step
    two.annex.register()
    two.beating = Beating(two.annex)
    master.beat_until(lambda: master.leases)
    with read_journal(two.lab.arbiter.settings.journal) as journal:
        steps = list(journal.steps(before))
    (back,) = [step for step in steps if any(isinstance(event, MachineBack) for event in step.events)]
    (starts,) = [step for step in steps if step.decision.transitions]
    assert (starts.number, starts.now) == (back.number, back.now), "in that step"


def test_a_gpu_is_a_slot_of_one_node_at_most(two: Two) -> None:
    two.quiet()
    gpus = [lpb.Slot(index=at, gpu_type="A100", uuid=f"GPU-{at}") for at in range(2)]
    two.annex.register(slots=gpus)
    barn = Launcher(two.lab, 1, "of barn", "barn")
    with pytest.raises(grpc.RpcError, match=r"a GPU must be a slot of one node .*GPU-1, which annex has") as caught:
        barn.register(slots=[lpb.Slot(index=0, gpu_type="A100", uuid="GPU-1")])
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    two.annex.register(slots=gpus)  # the same node again
    assert set(two.nodes()) == {"annex", "box7"}
    barn.register(slots=[lpb.Slot(index=0, gpu_type="A100", uuid="GPU-2")])


def test_a_node_that_is_back_names_the_processes_that_its_slots_wait_for(two: Two) -> None:
    two.lose()
    two.annex.busy.add(0)
    left = lpb.ContainerStatus(container_id="ana.4.1.0", app="ana", job=4, slot=0, pid=4711, state=lpb.RUNNING)
    two.annex.containers = [left]
    two.annex.register()
    two.beating = Beating(two.annex)
    seen = two.nodes()["annex"]
    assert seen.state == "down"
    assert seen.why == "it is back; its slots wait until what ran there has ended (ana/4: process 4711)"
    two.annex.busy.clear()
    two.annex.containers = []
    eventually(lambda: two.nodes()["annex"].state == "up", "it is empty")
