"""A second machine joins a running arbiter: its slots are used, and every later arbiter of the journal knows them."""

import asyncio
import importlib.util
import pwd
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from eunomia.errors import InputError
from eunomia.journal.journal import Journal, read_journal
from eunomia.journal.values import Note
from eunomia.units import Locality
from eunomia_appmaster.explaining.dry_recovery import try_recovery
from eunomia_appmaster.journal_check import check_folder
from eunomia_appmaster.master.wire import cluster_of
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.protocol import launcher_pb2 as lpb
from eunomia_appmaster.protocol.tokens import container_token
from eunomia_appmaster.protocol.versions import PROTOCOL, PYTHON, VERSION
from eunomia_appmaster.service.clock_offsets import ClockOffset
from eunomia_appmaster.service.layout import MACHINE_NOTE, Layout, Place
from eunomia_appmaster.service.node_accounts import check_uids
from eunomia_appmaster.service.waiting import to_its_end

_spec = importlib.util.spec_from_file_location("service_lab", Path(__file__).parent / "service_lab.py")
lab_module = sys.modules.setdefault("service_lab", importlib.util.module_from_spec(_spec))
_spec.loader.exec_module(lab_module)
eventually, Beating, Launcher = lab_module.eventually, lab_module.Beating, lab_module.Launcher


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Any]:
    with lab_module.lab(tmp_path, slots=2) as made:
        yield made.ready()


@pytest.fixture
def beating() -> Iterator[list[Any]]:
    made: list[Any] = []
    yield made
    for one in made:
        one.end()


def other(lab: Any, beating: list[Any], node: str = "annex", count: int = 2, **more: Any) -> Any:
    """Another node, registered and beating."""
    launcher = Launcher(lab, count, f"of {node}", node)
    launcher.register(**more)
    beating.append(Beating(launcher))
    return launcher


def code_of(call: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value.code(), caught.value.details()


def gang(job: str, gpus: int) -> pb.JobAdded:
    return pb.JobAdded(job=job, least=gpus, most=gpus, iterations=100.0)


def slots(lab: Any) -> list[tuple[str, int]]:
    return [(slot.machine, slot.slot) for slot in lab.seen().slots]


def test_a_gang_gets_the_slots_of_a_joined_node_and_of_the_first_one(lab: Any, beating: list[Any]) -> None:
    master = lab.master("ana", "2")
    welcome = master.register()
    assert [machine.name for machine in welcome.cluster.machines] == ["box7"]
    other(lab, beating)
    assert slots(lab) == [("box7", 0), ("box7", 1), ("annex", 0), ("annex", 1)]
    assert master.call().a_m_command == pb.AM_RESYNC  # it knows another cluster
    welcome = master.register()
    assert [node.node for node in welcome.node_tokens] == ["box7", "annex"]
    cluster = cluster_of(welcome.cluster)
    assert cluster.machines == lab.arbiter.service.view.cluster.machines
    master.beat_until(lambda: master.leases, jobs_added=[gang("ana/1", 4)])
    (lease,) = master.leases.values()
    places = [(each.node_id, each.slot, each.gpu) for each in lease.containers]
    assert places == [("box7", 0, 0), ("box7", 1, 1), ("annex", 0, 2), ("annex", 1, 3)]
    secret = lab.arbiter.service.tokens.container_secret("annex")
    assert lease.containers[3].container_token == container_token(secret, "ana", "annex", 1, lease.epoch)
    assert lab.client().Health(pb.HealthRequest(), metadata=lab.operator).cluster == "box7: 2xcpu, annex: 2xcpu"


def test_a_rack_named_in_a_join_is_journaled_and_cannot_change(lab: Any, beating: list[Any]) -> None:
    annex = other(lab, beating, rack="r2", count=1)
    barn = other(lab, beating, "barn", count=1)
    cluster = lab.arbiter.service.view.cluster
    assert [machine.rack for machine in cluster.machines] == ["r1", "r2", "r1"]
    localities = [cluster.locality(np.array(gpus)) for gpus in ([0, 1], [0, 3], [0, 2])]
    assert localities == [Locality.ISLAND, Locality.RACK, Locality.CLUSTER]
    nodes = lab.client().ListNodes(pb.ListNodesRequest(), metadata=lab.operator).nodes
    assert {node.node: node.rack for node in nodes} == {"box7": "r1", "annex": "r2", "barn": "r1"}
    code, why = code_of(lambda: annex.register(rack="r3"))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert why.startswith("a node must keep the rack of its join, r2 (remove it, and let it join again), but got r3")
    code, why = code_of(lambda: Launcher(lab, 1, "of shed", "shed").register(rack="/"))
    assert "a rack must have a name as a node has" in why
    for one in beating:
        one.end()
    lab.restart()
    annex.register(slots=[lpb.Slot(index=at, gpu_type="cpu", cpus=1) for at in range(2)])  # and one more slot
    barn.register()
    lab.ready()
    racks = [machine.rack for machine in lab.arbiter.service.nodes.layout.cluster.machines]
    assert racks[:3] == ["r1", "r2", "r1"] and set(racks[3:]) <= {"r2"}


def test_a_launcher_that_shuts_down_takes_its_node_down_at_once(lab: Any, beating: list[Any]) -> None:
    annex = other(lab, beating)
    beating.pop().end()
    annex.stub().ReportContainers(
        lpb.ReportContainersRequest(
            node="annex", registration_id=annex.registration_id, slot_states=annex.states(), draining=True, leaving=True
        ),
        metadata=annex.token,
    )
    node = lab.arbiter.service.nodes.get("annex")
    assert (node.lost, node.left) == (True, True)
    nodes = lab.client().ListNodes(pb.ListNodesRequest(), metadata=lab.operator).nodes
    (seen,) = [one for one in nodes if one.node == "annex"]
    assert (seen.state, seen.why) == ("down", "its launcher was ended; its slots are used again once it is back")
    annex.register()
    beating.append(Beating(annex))
    eventually(lambda: not lab.arbiter.service.nodes.get("annex").lost, "it is back")


def test_the_clock_offset_of_a_node_is_shown(lab: Any, beating: list[Any]) -> None:
    annex = other(lab, beating)
    beating.pop().end()
    for ahead in (3600.0, 3599.0):
        annex.stub().NodeHeartbeat(
            lpb.NodeHeartbeatRequest(node="annex", registration_id=annex.registration_id, sent_at=time.time() + ahead),
            metadata=annex.token,
        )
    nodes = {one.node: one for one in lab.client().ListNodes(pb.ListNodesRequest(), metadata=lab.operator).nodes}
    assert 3590.0 < nodes["annex"].clock_offset_seconds <= 3600.0
    assert "s ahead of the arbiter's" in nodes["annex"].why and not nodes["box7"].HasField("clock_offset_seconds")
    assert "annex: its clock is" in lab.client().Health(pb.HealthRequest(), metadata=lab.operator).warnings[0]


def test_the_clock_offset_is_measured_by_the_heartbeat_with_the_least_delay() -> None:
    offset = ClockOffset()
    assert (offset.seconds, offset.words) == (None, "")
    for delay in (5.0, 0.25, 3.0):
        offset.hear(1000.0 - 2.0, 1000.0 + delay)
    assert (offset.seconds, offset.words) == (-2.25, "its clock is 2.2 s behind the arbiter's")
    for _ in range(8):
        offset.hear(1000.0, 1000.0)
    assert (offset.seconds, offset.words) == (0.0, "")


def test_a_login_must_have_the_same_uid_on_all_nodes() -> None:
    mine = pwd.getpwall()[0]
    good = lpb.RegisterNodeRequest(node="b08", uids={mine.pw_name: str(mine.pw_uid)})
    check_uids(good, [mine.pw_name, "added since"])
    for there, words in ((str(mine.pw_uid + 1), f"{mine.pw_uid + 1} on b08"), ("", "no account on b08")):
        with pytest.raises(InputError, match="must have one number on all nodes") as refused:
            check_uids(lpb.RegisterNodeRequest(node="b08", uids={mine.pw_name: there}), [mine.pw_name])
        assert f"{mine.pw_name}: {mine.pw_uid} on the arbiter's machine, {words}" in str(refused.value)


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_restarted_arbiter_and_all_readers_know_the_joined_machines(
    lab: Any, beating: list[Any], checkpoint: bool
) -> None:
    annex = other(lab, beating, count=1)
    types = [lpb.Slot(index=0, gpu_type="slow"), lpb.Slot(index=1, gpu_type="fast")]
    barn = other(lab, beating, "barn", slots=types)
    assert slots(lab)[2:] == [("annex", 0), ("barn-fast", 1), ("barn-slow", 0)]
    before = lab.arbiter.service.view.cluster
    for one in beating:
        one.end()
    lab.restart(checkpoint=checkpoint)
    annex.register()
    barn.register(slots=types)
    lab.ready()
    after, layout = lab.arbiter.service.view.cluster, lab.arbiter.service.nodes.layout
    assert (after.machines, after.gpu_types) == (before.machines, before.gpu_types)
    assert layout.places[2:] == (Place(node="annex", slot=0), Place(node="barn", slot=1), Place(node="barn", slot=0))
    assert layout.machines_of("barn") == ["barn-fast", "barn-slow"]
    lab.submit("ana", "5")
    folder = lab.arbiter.settings.state_dir
    assert try_recovery(folder / "journal.sqlite").refused is None
    assert check_folder(folder).findings == []


def test_the_step_and_note_of_a_joined_machine_are_journaled_atomically(lab: Any, beating: list[Any]) -> None:
    folder = lab.arbiter.settings.state_dir

    def refuse(*_: Any, **__: Any) -> None:
        raise RuntimeError("killed before the step is written")

    ended: list[int] = []

    def end(status: int) -> None:
        ended.append(status)
        raise SystemError("the process ends here")  # so that no later step of this arbiter is written

    lab.arbiter.service.driver._system = type("Still", (), {"exit": staticmethod(end)})()
    lab.arbiter.service.journal.append = refuse
    launcher = Launcher(lab, 2, "of annex", "annex")
    request = lpb.RegisterNodeRequest(
        node="annex",
        slots=[lpb.Slot(index=0, gpu_type="cpu", cpus=1.0)],
        cpus=1.0,
        version=VERSION,
        python=PYTHON,
        protocol=PROTOCOL,
        storage_hash=lab.arbiter.service.storage.hash,
    )
    registering = launcher.stub().RegisterNode.future(request, metadata=launcher.token)
    eventually(lambda: ended, "the arbiter ends with the step that is not written")
    registering.cancel()
    assert ended == [70]
    with read_journal(folder / "journal.sqlite") as journal:
        assert journal.notes(MACHINE_NOTE) == {}
    lab.restart()
    lab.ready()
    assert slots(lab) == [("box7", 0), ("box7", 1)]
    other(lab, beating)
    assert slots(lab)[2:] == [("annex", 0), ("annex", 1)]


def test_recovery_names_a_missing_note_of_a_joined_machine_before_any_decision(lab: Any, beating: list[Any]) -> None:
    annex = other(lab, beating)
    beating.pop().end()
    lab.quiet()
    lab.arbiter.close(checkpoint=False)
    path = lab.arbiter.settings.journal
    with Journal.open(path) as journal:
        note = journal.notes(MACHINE_NOTE)["1"]
        journal.note(Note(kind=MACHINE_NOTE, key="1", value=note | {"machine": note["machine"] | {"memory_gib": 7.0}}))
    assert "the note of each machine that joined" in str(try_recovery(path).refused)
    lab.arbiter = lab_module.Arbiter(lab.arbiter.settings.state_dir)  # for the fixture to close
    lab.channel = grpc.insecure_channel(lab.arbiter.address)
    annex.register()
    lab.launcher.register()
    work = lab.arbiter._work
    eventually(work.done, "the arbiter ends")
    assert "the note of each machine that joined" in str(work.exception())


def test_slots_of_a_joining_node_are_granted_only_after_its_old_processes_ended(lab: Any, beating: list[Any]) -> None:
    states = [lpb.SlotState(slot=0, busy=True), lpb.SlotState(slot=1)]
    annex = Launcher(lab, 2, "of annex", "annex")
    annex.busy = {0}
    annex.register(slot_states=states)
    assert lab.slots("down") == [2, 3]
    beating.append(Beating(annex))
    eventually(lambda: set(annex.fenced) == {0, 1}, "fences")
    assert lab.slots("down") == [2, 3]
    annex.busy = set()
    eventually(lambda: lab.slots("free") == [0, 1, 2, 3], "the slots are free")


def test_a_node_that_served_another_arbiter_is_refused(lab: Any) -> None:
    states = [lpb.SlotState(slot=0, highest_epoch=17, closed_epoch=12)]
    code, why = code_of(lambda: Launcher(lab, 1, "x", "annex").register(slot_states=states))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "must have seen no order of another arbiter (the last epoch here is 0)" in why
    assert "--node-dir" in why
    assert "but got 17 (annex)" in why
    assert slots(lab) == [("box7", 0), ("box7", 1)]


def test_a_join_needs_a_recovered_arbiter_and_at_least_one_slot(lab: Any, tmp_path: Path) -> None:
    code, why = code_of(lambda: Launcher(lab, 0, "x", "annex").register())
    assert (code, why.partition(",")[0]) == (grpc.StatusCode.INVALID_ARGUMENT, "a node that joins must have a slot")
    lab.restart()
    code, why = code_of(lambda: Launcher(lab, 1, "x", "annex").register())
    assert (code, why) == (grpc.StatusCode.UNAVAILABLE, "a node can join once the arbiter decides")
    lab.ready()


def test_a_node_of_another_gpu_type_is_refused_under_a_policy_for_one_type(tmp_path: Path) -> None:
    with lab_module.lab(tmp_path, "afs", slots=2) as lab:
        lab.ready()
        fast = [lpb.Slot(index=0, gpu_type="V100", cpus=1.0)]
        code, why = code_of(lambda: Launcher(lab, 1, "x", "annex").register(slots=fast))
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert "node annex" in why
        assert slots(lab) == [("box7", 0), ("box7", 1)]


def test_an_app_master_starts_on_the_head_or_on_the_node_with_fewest_apps(lab: Any, beating: list[Any]) -> None:
    other(lab, beating)
    lab.submit("ana", "1")
    lab.submit("bob", "1")
    nodes = lab.arbiter.service.apps
    assert [nodes.get(name).node for name in ("ana", "bob")] == ["annex", "box7"]
    lab.arbiter.service.nodes.get("box7").is_head = True
    lab.submit("cy", "1")
    assert nodes.get("cy").node == "box7"


def test_inconsistent_notes_of_joined_machines_are_refused() -> None:
    request = lpb.RegisterNodeRequest(node="b", slots=[lpb.Slot(index=0, gpu_type="cpu")], cpus=1.0)
    base = Layout.of([lpb.RegisterNodeRequest(node="a", slots=[lpb.Slot(index=0, gpu_type="cpu")])])
    grown, (joined,) = base.joined(request)
    note = joined.note(7).value
    assert base.with_notes({"1": note}).places == grown.places
    assert base.with_notes({"1": {**note, "left": True}}).nodes == ("a",)
    with pytest.raises(InputError, match="machine 1 is missing"):
        base.with_notes({"2": note})
    with pytest.raises(InputError, match="a slot for each GPU, but got 2 slots of 1"):
        base.with_notes({"1": {**note, "slots": [0, 1]}})


def test_a_second_registration_waits_until_the_first_join_has_finished(
    lab: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = lab.arbiter.service.driver
    fold, begun, go_on = driver.fold, threading.Event(), threading.Event()

    async def held(events: Any, *more: Any) -> Any:
        if not begun.is_set():
            begun.set()
            while not go_on.is_set():
                await asyncio.sleep(0.01)
        return await fold(events, *more)

    barn = Launcher(lab, 2, "of barn", "barn")
    lab.quiet()  # its heartbeats fold events, too
    monkeypatch.setattr(driver, "fold", held)
    first = barn.stub().RegisterNode.future(barn.registration(), metadata=barn.token)
    assert begun.wait(30.0)
    first.cancel()
    again = Launcher(lab, 2, "of a later one", "barn")
    second = again.stub().RegisterNode.future(again.registration(), metadata=again.token)
    with pytest.raises(grpc.FutureTimeoutError):
        second.result(timeout=0.5)
    go_on.set()
    answer = second.result(timeout=30.0)
    assert lab.arbiter.service.nodes.get("barn").registration_id == answer.registration_id
    again.registration_id = answer.registration_id
    assert again.beat().response_id


def test_a_cancelled_caller_keeps_its_lock_until_its_work_has_ended() -> None:
    async def run() -> list[str]:
        lock, seen, go_on = asyncio.Lock(), list[str](), asyncio.Event()

        async def work() -> None:
            await go_on.wait()
            seen.append("worked")

        async def call() -> None:
            async with lock:
                await to_its_end(work())

        caller = asyncio.ensure_future(call())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        caller.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert lock.locked()
        go_on.set()
        async with lock:
            seen.append("next")
        assert caller.cancelled()
        return seen

    assert asyncio.run(run()) == ["worked", "next"]
