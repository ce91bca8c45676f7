"""A gang over several nodes starts on all or none: real launchers, one folder each."""

import asyncio
import contextlib
import json
import socket
from collections.abc import Iterator
from importlib import util
from pathlib import Path
from typing import Any

import pytest

from eunomia_appmaster.launcher.interfaces import interface_to
from eunomia_appmaster.launcher.prepared import Prepared
from eunomia_appmaster.node.system import MACHINE
from eunomia_appmaster.protocol import launcher_pb2 as pb
from eunomia_appmaster.protocol.tokens import node_token
from eunomia_appmaster.runtimes import (
    ContainerState,
    GangSpec,
    LeaseOverError,
    NodeAccess,
    NodeRuntimes,
    RefusedError,
    RuntimeAwayError,
    SlotBusyError,
)


def _load(name: str) -> Any:
    spec = util.spec_from_file_location(name, Path(__file__).parent / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


launcher_lab = _load("launcher_lab")
SHOW = """
import json, os, socket
names = ("RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
names += ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
if os.environ["RANK"] == "0":
    with socket.create_server((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))):
        pass
print(json.dumps({name: os.environ.get(name) for name in names}), flush=True)
"""
IDLE = "import time\ntime.sleep(600)\n"


@contextlib.contextmanager
def two_nodes(folder: Path) -> Iterator[tuple[Any, Any, NodeRuntimes]]:
    """Two launchers, and the runtimes of app ``ana`` on both: node ``own`` and node ``other``."""
    for name in ("own", "other"):
        (folder / name).mkdir()
    with launcher_lab.lab(folder / "own") as own, launcher_lab.lab(folder / "other") as other:
        runtimes = NodeRuntimes("ana", own.runtime(), "own")
        runtimes.hear([access(own, "own"), access(other, "other")])
        runtimes.keep({"other"})
        try:
            yield own, other, runtimes
        finally:
            runtimes.close()


def access(lab: Any, name: str, **more: Any) -> NodeAccess:
    address = lab.arbiter.registrations[-1].container_manager_address
    return NodeAccess(
        node=name, address=address, token=node_token(launcher_lab.SECRET, "ana", launcher_lab.NODE), **more
    )


def parts(own: Any, other: Any, script: str, **more: Any) -> dict[str, GangSpec]:
    """A gang of two workers on the first node and one on the second."""
    first = own.gang(0, 1, script=script, world_size=3, **more)
    second = other.gang(2, script=script, world_size=3, group_rank=1, **more)
    last = second.containers[0]
    renamed = type(last)(container_id=last.container_id, slot=2, epoch=last.epoch, token=last.token, rank=2)
    return {"own": first, "other": type(second)(**_fields(second) | {"containers": (renamed,)})}


def _fields(spec: GangSpec) -> dict[str, Any]:
    return {name: getattr(spec, name) for name in spec.__dataclass_fields__}


def environments(*labs: Any) -> list[dict[str, str | None]]:

    found = [json.loads(line) for lab in labs for line in lab.stdout().splitlines()]
    return sorted(found, key=lambda each: int(each["RANK"]))


def test_the_workers_of_a_gang_over_two_nodes_have_one_master_address_and_ordered_ranks(tmp_path: Path) -> None:
    with two_nodes(tmp_path) as (own, other, runtimes):
        gang = parts(own, other, SHOW, env={"NCCL_SOCKET_IFNAME": "eth7"})
        started = runtimes.start(gang)
        assert [status.container_id for status in started] == [f"ana-1.r1.{slot}" for slot in range(3)]
        assert all(lab.completed(f"ana-1.r1.{slot}").finished for lab, slot in ((own, 0), (own, 1), (other, 2)))
        found = environments(own, other)
    assert [each["RANK"] for each in found] == ["0", "1", "2"]
    assert [(each["GROUP_RANK"], each["LOCAL_RANK"]) for each in found] == [("0", "0"), ("0", "1"), ("1", "0")]
    assert [each["LOCAL_WORLD_SIZE"] for each in found] == ["2", "2", "1"]
    for name in ("WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        assert len({each[name] for each in found}) == 1
    assert {each["GLOO_SOCKET_IFNAME"] for each in found} == {"lo"}
    assert {each["NCCL_SOCKET_IFNAME"] for each in found} == {"eth7"}  # as the app file says


def test_no_worker_starts_before_all_nodes_are_prepared(tmp_path: Path) -> None:
    with two_nodes(tmp_path) as (own, other, runtimes):
        gang = parts(own, other, IDLE)
        other.runtime().start(other.gang(2, script=IDLE, job=7))
        for _ in range(2):  # it is prepared on its own node meanwhile
            with pytest.raises(SlotBusyError) as busy:
                runtimes.start(gang)
        assert busy.value.node == "other"
        assert own.status("ana-1.r1.0").state is ContainerState.NEW
        runtimes.undo({node: [spec.container_id for spec in part.containers] for node, part in gang.items()}, "busy")
        ended = own.completed("ana-1.r1.0")
        assert ended.never_began
        assert own.stdout() == own.stderr() == ""
        own.runtime().start(own.gang(0, 1, script=IDLE, job=2))  # the slots are free again


def test_a_gang_start_that_fails_for_an_ended_lease_names_the_node(tmp_path: Path) -> None:
    with two_nodes(tmp_path) as (own, other, runtimes):
        other.arbiter.order(revocations=[pb.Revocation(slot=2, epoch=1, deadline_seconds=0)])
        launcher_lab.eventually(lambda: other.arbiter.slots[2].closed_epoch == 1)
        with pytest.raises(LeaseOverError) as over:
            runtimes.start(parts(own, other, IDLE))
        assert over.value.node == "other"


def test_a_restarted_launcher_discards_prepared_workers_and_no_other_node_starts(tmp_path: Path) -> None:
    with two_nodes(tmp_path) as (own, other, runtimes):
        gang = parts(own, other, IDLE)
        port = own.runtime().prepare(gang["own"]).master_port
        assert port
        second = GangSpec(**_fields(gang["other"]) | {"master_port": port})
        with pytest.raises(RefusedError, match="master_port"):
            other.runtime().prepare(gang["other"])
        other.runtime().prepare(second)
        other.kill()
        other.start()
        runtimes.hear([access(own, "own"), access(other, "other")])
        assert other.completed("ana-1.r1.2").never_began
        answered = runtimes.start(gang)  # by an app master that does not know of it
        assert [status.never_began for status in answered] == [False, False, True]
        assert own.status("ana-1.r1.0").state is ContainerState.NEW
        assert [status.never_began for status in other.runtime().go(["ana-1.r1.2"])] == [True]


def test_a_repeated_start_has_no_further_effect(tmp_path: Path) -> None:
    with two_nodes(tmp_path) as (own, other, runtimes):
        gang = parts(own, other, IDLE)
        runtimes.start(gang)
        pids = {launcher_lab.eventually(lambda: own.status("ana-1.r1.0").pid)}
        runtimes.start(gang)
        assert {own.status("ana-1.r1.0").pid} == pids
        assert all(known.state in ("RUNNING", "STARTING") for known in map(_state, runtimes.start(gang)))


def _state(status: Any) -> Any:
    return type("Named", (), {"state": status.state.name})


def test_a_prepared_worker_ends_with_its_lease(tmp_path: Path) -> None:
    with launcher_lab.lab(tmp_path) as lab:
        lab.runtime().prepare(lab.gang(0, 1, script=IDLE))
        assert {lab.status(f"ana-1.r1.{slot}").state for slot in (0, 1)} == {ContainerState.NEW}
        lab.arbiter.order(revocations=[pb.Revocation(slot=0, epoch=1, deadline_seconds=30)])
        assert lab.completed("ana-1.r1.0").never_began
        assert lab.completed("ana-1.r1.1").never_began  # a gang leaves together


def test_an_unreachable_node_is_not_called_again_until_a_watch_reaches_it(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    with launcher_lab.lab(tmp_path / "own") as own:
        runtimes = NodeRuntimes("ana", own.runtime(), "own")
        with MACHINE.reserve_port() as port:  # nothing listens there
            gone = NodeAccess(node="other", address=f"127.0.0.1:{port.number}", token="")
            runtimes.hear([access(own, "own"), gone])
            runtimes.keep({"other"})
            with pytest.raises(RuntimeAwayError) as first:
                runtimes.of("other").go(["x"])
            with pytest.raises(RuntimeAwayError, match="no answer for") as second:
                runtimes.of("other").go(["x"])
        assert first.value.node == second.value.node == "other"
        assert not runtimes.is_ready("other")
        assert not runtimes.is_lost("other")
        runtimes.hear([access(own, "own"), access(own, "other", lost=True)])
        assert runtimes.is_lost("other")
        assert runtimes.has_settled({"other"})
        runtimes.keep(())
        assert set(runtimes.all()) == {"own"}
        runtimes.close()


def test_a_prepared_worker_waits_for_the_start_order_and_times_out_without_it() -> None:
    async def outcomes() -> list[bool]:
        late, gone, given_up = Prepared(0.05), Prepared(30.0), Prepared(30.0)
        gone.go()
        gone.give_up()  # too late
        given_up.give_up()
        given_up.go()
        found = [await each.wait() for each in (late, gone, given_up)]
        late.go()
        return [*found, await late.wait()]

    assert asyncio.run(outcomes()) == [False, True, False, False]


def test_a_reserved_port_can_be_bound_only_by_a_process_that_takes_it_over() -> None:
    with MACHINE.reserve_port() as port, socket.socket() as stranger, socket.socket() as worker:
        with pytest.raises(OSError, match="in use"):
            stranger.bind(("127.0.0.1", port.number))
        worker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        worker.bind(("127.0.0.1", port.number))
        worker.listen()


def test_torch_takes_over_a_reserved_port() -> None:
    store = pytest.importorskip("torch.distributed").TCPStore
    with MACHINE.reserve_port() as port:
        made = store("127.0.0.1", port.number, 1, is_master=True)
        made.set("key", "value")
        assert made.get("key") == b"value"


def test_the_interface_to_a_host_is_the_one_whose_address_reaches_it() -> None:
    assert interface_to("127.0.0.1") == "lo"
    assert interface_to("no host has this name") == ""
    for index, name in socket.if_nameindex():
        assert index > 0
        assert name
