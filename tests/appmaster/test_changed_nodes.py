"""A node comes back with more slots, or with slots of another type: it joins as what it is, and the journal has it."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from eunomia.journal.journal import read_journal
from eunomia_appmaster.explaining.dry_recovery import try_recovery
from eunomia_appmaster.journal_check import check_folder
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.protocol import launcher_pb2 as lpb
from eunomia_appmaster.service.layout import MACHINE_NOTE

_spec = importlib.util.spec_from_file_location("service_lab", Path(__file__).parent / "service_lab.py")
lab_module = sys.modules.setdefault("service_lab", importlib.util.module_from_spec(_spec))
_spec.loader.exec_module(lab_module)
eventually, Beating, Launcher = lab_module.eventually, lab_module.Beating, lab_module.Launcher


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Any]:
    with lab_module.lab(tmp_path, slots=2) as made:
        yield made.ready()
        folder = made.arbiter.settings.state_dir
        assert check_folder(folder).findings == []
        assert try_recovery(folder / "journal.sqlite").refused is None


def kinds(*names: str) -> list[lpb.Slot]:
    return [lpb.Slot(index=at, gpu_type=name, cpus=1, memory_gib=2) for at, name in enumerate(names)]


def come_back(lab: Any, count: int, **more: Any) -> None:
    """Register the node again with this many slots, by another launcher of its folder."""
    lab.quiet()
    lab.launcher.slots = count
    lab.launcher.register(home="same", **more)
    lab.beating = Beating(lab.launcher)


def rows(lab: Any) -> list[tuple[str, int, int]]:
    return [(slot.machine, slot.slot, slot.gpu) for slot in lab.seen().slots]


def running(lab: Any, gpus: int) -> Any:
    master = lab.master("ana", str(gpus))
    master.register()
    job = pb.JobAdded(job="ana/1", least=gpus, most=gpus, iterations=100.0)
    master.beat_until(lambda: master.leases, jobs_added=[job])
    master.beat()
    return master


def test_more_slots_of_a_node_are_added_and_its_leases_continue(lab: Any) -> None:
    master = running(lab, 2)
    (lease,) = master.leases
    come_back(lab, 3)
    eventually(lambda: lab.slots("free") == [2], "the new slot is free")
    assert rows(lab) == [("box7", 0, 0), ("box7", 1, 1), ("box7-cpu", 2, 2)]
    assert lab.launcher.fenced.keys() == {2}
    assert master.call().a_m_command == pb.AM_RESYNC
    master.register()
    assert list(master.leases) == [lease]
    come_back(lab, 4)
    eventually(lambda: lab.slots("free") == [2, 3], "another one")
    assert rows(lab)[3] == ("box7-cpu-2", 3, 3)


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_restarted_arbiter_knows_the_changed_slots_of_a_node(lab: Any, checkpoint: bool) -> None:
    come_back(lab, 3)
    eventually(lambda: lab.slots("free") == [0, 1, 2])
    come_back(lab, 3, slots=kinds("cpu", "cpu", "fast"))
    eventually(lambda: lab.slots("free") == [0, 1, 3], "another type")
    before = rows(lab)
    assert before == [("box7", 0, 0), ("box7", 1, 1), ("box7-fast", 2, 3)]
    lab.restart(checkpoint=checkpoint)
    lab.launcher.register(home="same", slots=kinds("cpu", "cpu", "fast"))
    lab.beating = Beating(lab.launcher)
    eventually(lambda: lab.arbiter.service.ready.is_set() and lab.slots("free") == [0, 1, 3], "the same")
    assert rows(lab) == before
    with read_journal(lab.arbiter.settings.journal) as journal:
        assert {key: note["left"] for key, note in journal.notes(MACHINE_NOTE).items()} == {"1": True, "2": False}


def test_slots_of_a_new_type_wait_until_the_processes_on_the_old_ones_have_ended(lab: Any) -> None:
    come_back(lab, 3, slots=kinds("cpu", "cpu", "fast"))
    eventually(lambda: lab.slots("free") == [0, 1, 2])
    master = running(lab, 2)
    lab.launcher.busy = {0, 1}
    come_back(lab, 3, slots=kinds("slow", "slow", "fast"))
    assert rows(lab) == [("box7-fast", 2, 2), ("box7-slow", 0, 3), ("box7-slow", 1, 4)]
    assert lab.slots("down") == [3, 4]
    master.register()
    assert not master.leases
    eventually(lambda: lab.launcher.fenced.keys() >= {0, 1}, "fences")
    assert lab.slots("down") == [3, 4]
    lab.launcher.busy = set()
    eventually(lambda: lab.slots("down") == [], "no process is left")


def test_a_new_machine_can_replace_the_only_machine_of_a_cluster(lab: Any) -> None:
    running(lab, 2)
    come_back(lab, 2, slots=kinds("fast", "fast"))
    eventually(lambda: lab.slots("down") == [], "the fence is confirmed")
    assert rows(lab) == [("box7-fast", 0, 2), ("box7-fast", 1, 3)]
    come_back(lab, 2)
    eventually(lambda: rows(lab) == [("box7", 0, 4), ("box7", 1, 5)] and lab.slots("down") == [], "back")


def test_an_arbiter_killed_before_the_old_machine_left_removes_it_after_recovery(lab: Any) -> None:
    put = lab.arbiter.service.driver.put

    def cut(events: Any, notes: Any = ()) -> None:
        events = list(events)
        if not any(type(event).__name__ == "MachineLeft" for event in events):
            put(events, notes)

    lab.arbiter.service.driver.put = cut
    come_back(lab, 2, slots=kinds("fast", "fast"))
    assert [name for name, _, _ in rows(lab)] == ["box7", "box7", "box7-fast", "box7-fast"]
    lab.restart()
    lab.launcher.register(home="same", slots=kinds("fast", "fast"))
    lab.beating = Beating(lab.launcher)
    eventually(lambda: lab.arbiter.service.ready.is_set() and lab.slots("free") == [2, 3], "only what is there")
    come_back(lab, 2, slots=kinds("fast", "fast"))  # its heartbeat is refused until it has registered again
    assert rows(lab) == [("box7-fast", 0, 2), ("box7-fast", 1, 3)]


def test_a_node_that_returns_with_other_slots_during_recovery_is_changed_afterwards(lab: Any) -> None:
    running(lab, 2)
    lab.restart()
    lab.launcher.slots = 3
    lab.launcher.register(home="same")
    eventually(lambda: lab.arbiter.service.ready.is_set(), "it is there with the slots of before")
    with pytest.raises(grpc.RpcError) as caught:
        for _ in range(3):
            lab.launcher.beat()
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    lab.launcher.register(home="same")
    lab.beating = Beating(lab.launcher)
    eventually(lambda: lab.slots("free") == [2], "the new slot is free")
    assert lab.slots("down") == []


def test_new_slots_of_a_draining_node_are_drained_too(lab: Any) -> None:
    annex = Launcher(lab, 1, "of annex", "annex")
    annex.register(home="annex")
    lab.client().DrainNode(pb.DrainNodeRequest(node="annex", why="sold"), metadata=lab.operator)
    annex.slots = 2
    annex.register(home="annex")
    beating = Beating(annex)
    try:
        eventually(lambda: not lab.arbiter.service.nodes.get("annex").down, "no process is on the new slot")
        eventually(lambda: not lab.arbiter.service.driver._events, "the step is made")
        assert lab.slots("down") == [2, 3]
        lab.client().UndrainNode(pb.UndrainNodeRequest(node="annex"), metadata=lab.operator)
        eventually(lambda: lab.slots("free") == [0, 1, 2, 3], "kept")
    finally:
        beating.end()


def test_a_node_change_that_the_policy_cannot_serve_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    with lab_module.lab(tmp_path, "afs", slots=2) as lab:
        lab.ready()
        with pytest.raises(grpc.RpcError) as caught:
            come_back(lab, 3, slots=kinds("cpu", "cpu", "V100"))
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "node box7" in str(caught.value.details())
        assert rows(lab) == [("box7", 0, 0), ("box7", 1, 1)]
        lab.restart()
        with pytest.raises(grpc.RpcError) as caught:
            come_back(lab, 3, slots=kinds("cpu", "cpu", "V100"))
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        come_back(lab, 2)
        eventually(lambda: lab.arbiter.service.ready.is_set(), "ready")
