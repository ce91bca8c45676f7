"""What the root of one joined node can do to others: its credential, forged leases, and a name that is taken."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.appmaster.service_lab import NODE, PATIENCE_SECONDS, eventually
from tests.appmaster.test_node_identity import Cluster, Machine

from eunomia_appmaster.launcher.joining import NODE_CA, OwnJoin
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.protocol import arbiter_pb2_grpc as rpc
from eunomia_appmaster.protocol import launcher_pb2 as lpb
from eunomia_appmaster.protocol import launcher_pb2_grpc as lrpc
from eunomia_appmaster.protocol.node_names import tls_name
from eunomia_appmaster.protocol.tokens import container_token, node_token
from eunomia_appmaster.service.certificates import make

DENIED = grpc.StatusCode.PERMISSION_DENIED


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path, make(tmp_path / "tls"))
    yield made
    made.close()


@pytest.fixture
def victim(cluster: Cluster) -> Iterator[Machine]:
    """A node with a launcher of its own process."""
    machine = Machine(cluster, "b09", cluster.token().text())
    eventually(lambda: (node := cluster.arbiter.service.nodes.get("b09")) is not None and node.registered)
    yield machine
    machine.end()


@pytest.fixture
def attacker(cluster: Cluster) -> OwnJoin:
    """Another node, whose root has its credential and its secret."""
    own = cluster.node("b08")
    own.join(cluster.token())
    return own


def code_of(call: Any, request: Any, **more: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as refused:
        call(request, timeout=PATIENCE_SECONDS, **more)
    return refused.value.code(), refused.value.details()


def test_the_credential_of_a_node_is_refused_for_other_nodes_and_roles(
    cluster: Cluster, victim: Machine, attacker: OwnJoin
) -> None:
    service, metadata = cluster.arbiter.service, attacker.metadata()
    known = service.nodes.get("b09")
    assert known is not None
    before, calls = known.registration_id, lrpc.ResourceTrackerStub(cluster.channel)
    tries = [
        (calls.NodeHeartbeat, lpb.NodeHeartbeatRequest(node="b09", registration_id=before)),
        (calls.ReportContainers, lpb.ReportContainersRequest(node="b09", registration_id=before, leaving=True)),
        (lrpc.NodeAdmissionStub(cluster.channel).RenewNode, lpb.JoinNodeRequest(node="b09")),
        (rpc.ClientProtocolStub(cluster.channel).RemoveNode, pb.RemoveNodeRequest(node="b09", now=True)),
        (rpc.ClientProtocolStub(cluster.channel).MakeJoinToken, pb.MakeJoinTokenRequest()),
        (rpc.ApplicationMasterProtocolStub(cluster.channel).Allocate, pb.AllocateRequest(app="ana", attempt=1)),
    ]
    assert {code_of(call, request, metadata=metadata)[0] for call, request in tries} == {DENIED}
    with pytest.raises(grpc.RpcError) as refused:
        cluster.register(metadata, "b09")
    assert refused.value.code() is DENIED
    assert "a node may speak for itself alone" in refused.value.details()
    assert known.registration_id == before and not known.left, "the node that it is about goes on"


def test_a_forged_lease_starts_and_ends_nothing_on_another_node(
    cluster: Cluster, victim: Machine, attacker: OwnJoin
) -> None:
    service = cluster.arbiter.service
    secrets = {name: service.tokens.container_secret(name) for name in ("b08", "b09", NODE)}
    address = service.nodes.get("b09").container_manager_address  # type: ignore[union-attr]
    options = (("grpc.ssl_target_name_override", tls_name("b09", 1)),)
    trusted = grpc.ssl_channel_credentials((victim.folder / NODE_CA).read_bytes())

    def start(token: str, epoch: int) -> lpb.StartContainersRequest:
        wanted = lpb.ContainerRequest(container_id="evil", slot=0, epoch=epoch, container_token=token)
        return lpb.StartContainersRequest(
            app="ana", job=1, incarnation=1, containers=[wanted], command=["true"], working_folder="/"
        )

    forged = [
        (container_token(secrets["b08"], "ana", "b09", 0, 1), 1),
        (container_token(secrets[NODE], "ana", "b09", 0, 1), 1),
        (container_token(secrets["b09"], "ana", "b08", 0, 1), 1),  # a lease of the attacker's own slot
        (container_token(secrets["b09"], "ana", "b09", 0, 1), 2),  # a lease that is over, under a later epoch
        (container_token(secrets["b09"], "ben", "b09", 0, 1), 1),  # another app's
    ]
    with grpc.secure_channel(address, trusted, options) as channel:
        manager = lrpc.ContainerManagerStub(channel)
        for token, epoch in forged:
            code, why = code_of(manager.StartContainers, start(token, epoch))
            assert code is DENIED
            assert "a container token must be signed for app ana, node b09, slot 0" in why
        mine = node_token(secrets["b08"], "ana", "b09")
        tries = [
            (manager.StopContainers, lpb.StopContainersRequest(app="ana", node_token=mine, container_ids=["one"])),
            (manager.GoContainers, lpb.GoContainersRequest(app="ana", node_token=mine, container_ids=["one"])),
            (manager.WatchContainers, lpb.WatchContainersRequest(app="ana", node_token=mine)),
        ]
        assert {code_of(call, request)[0] for call, request in tries} == {DENIED}
    assert not list((victim.folder / "live").iterdir())
    assert "container.started" not in victim.log.read_text()


def test_a_node_cannot_extend_its_lease_by_its_own_reports(cluster: Cluster, attacker: OwnJoin) -> None:
    service, metadata = cluster.arbiter.service, attacker.metadata()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("eunomia_appmaster.service.tracker.check_reached", _reached)
        answer = cluster.register(metadata, "b08")
    node, calls = service.nodes.get("b08"), lrpc.ResourceTrackerStub(cluster.channel)
    assert node is not None
    longest = service.nodes.leases.longest
    for left, endless in ((1e15, False), (0.0, True)):
        beat = lpb.NodeHeartbeatRequest(
            node="b08", registration_id=answer.registration_id, lease_left_seconds=left, lease_endless=endless
        )
        beat.slot_states.add(slot=0)
        calls.NodeHeartbeat(beat, metadata=metadata, timeout=PATIENCE_SECONDS)
        assert 0.0 < node.lease.left_seconds <= longest


def test_a_joined_node_cannot_register_as_the_machine_of_the_arbiter(cluster: Cluster, attacker: OwnJoin) -> None:
    request = lpb.RegisterNodeRequest(node="b08", head=True)
    request.MergeFrom(cluster.registration("b08"))
    code, why = code_of(lrpc.ResourceTrackerStub(cluster.channel).RegisterNode, request, metadata=attacker.metadata())
    assert (code, why) == (DENIED, "a node may speak for itself alone, but got the arbiter's own machine from b08")


def test_a_launcher_with_a_stolen_credential_is_refused_while_the_first_lives(
    cluster: Cluster, victim: Machine
) -> None:
    known = cluster.arbiter.service.nodes.get("b09")
    assert known is not None
    before = known.registration_id
    without = shutil.ignore_patterns("live", "lock", ".*")  # hidden ones are files while they are written
    shutil.copytree(victim.folder, cluster.folder / "copy", ignore=without)
    thief = Machine(cluster, "b09", folder="copy", log="thief")
    assert "a node must have one launcher (end that one, or take another --node)" in thief.refused()
    assert known.registration_id == before


async def _reached(address: str, name: str, authority: bytes, *, node: str) -> None:
    """The attacker's launcher answers."""
