"""Connections without a valid token are closed, and never keep the operator, launchers or app masters out."""

import resource
import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from appmaster.service_lab import PATIENCE_SECONDS, Lab, eventually
from eunomia.units import Seconds
from eunomia_appmaster.node.connections import KEPT, OWN_FILES, most_connections, peer_of_text
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.protocol import arbiter_pb2_grpc as rpc

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5)
"""HTTP/2's first bytes and empty settings: a connection that could carry calls, and carries none."""
MOST = 2 * KEPT + 32


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    one = Lab(tmp_path, connection_patience=Seconds(2.0), connections=MOST).ready()
    try:
        yield one
    finally:
        one.close()


def silent(lab: Lab, said: bytes = b"") -> socket.socket:
    host, _, port = lab.arbiter.address.rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS)
    connection.sendall(said)
    return connection


def has_ended(connection: socket.socket) -> bool:
    """Read what has come; return whether the other side has closed."""
    while select.select([connection], [], [], 0)[0]:
        try:
            if not connection.recv(4096):
                return True
        except ConnectionError:
            return True
    return False


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\n", PREFACE])
def test_a_connection_without_a_call_is_closed(lab: Lab, said: bytes) -> None:
    connection = silent(lab, said)
    eventually(lambda: has_ended(connection), "closed")


def test_a_connection_whose_calls_have_a_wrong_token_is_closed(lab: Lab) -> None:
    with grpc.insecure_channel(lab.arbiter.address, [("grpc.enable_retries", 0)]) as channel:
        states: list[grpc.ChannelConnectivity] = []
        channel.subscribe(states.append)
        wrong = (("authorization", "Bearer operator::00"),)

        def closed_while_calling() -> bool:
            with pytest.raises(grpc.RpcError) as refused:
                rpc.ClientProtocolStub(channel).Health(pb.HealthRequest(), metadata=wrong, timeout=PATIENCE_SECONDS)
            assert refused.value.code() in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.UNAVAILABLE)
            ready = states.index(grpc.ChannelConnectivity.READY) if grpc.ChannelConnectivity.READY in states else None
            return ready is not None and len(states) > ready + 1

        eventually(closed_while_calling, "closed")


def test_a_connection_with_a_token_stays_open_while_it_is_silent(lab: Lab) -> None:
    with grpc.insecure_channel(lab.arbiter.address) as channel:
        states: list[grpc.ChannelConnectivity] = []
        channel.subscribe(states.append)
        stub = rpc.ClientProtocolStub(channel)
        stub.Health(pb.HealthRequest(), metadata=lab.operator, timeout=PATIENCE_SECONDS)
        others = [silent(lab) for _ in range(3)]
        eventually(lambda: all(has_ended(one) for one in others), "the silent ones closed")
        assert states[-1] == grpc.ChannelConnectivity.READY
        stub.Health(pb.HealthRequest(), metadata=lab.operator, timeout=PATIENCE_SECONDS)
        assert states.count(grpc.ChannelConnectivity.READY) == 1


def test_too_many_silent_connections_do_not_lock_the_operator_out(lab: Lab) -> None:
    crowd = [silent(lab) for _ in range(2 * MOST)]
    with grpc.insecure_channel(lab.arbiter.address) as channel:
        answer = rpc.ClientProtocolStub(channel).Health(
            pb.HealthRequest(), metadata=lab.operator, timeout=PATIENCE_SECONDS, wait_for_ready=True
        )
    assert answer.ready
    eventually(lambda: all(has_ended(one) for one in crowd), "all closed")
    for one in crowd:
        one.close()


def test_the_limit_of_descriptors_is_raised_and_some_are_reserved() -> None:
    script = (
        "import resource; from eunomia_appmaster.node.connections import *\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (256, 700)); low = most_connections()\n"
        "raise_descriptors(); print(low, most_connections(), resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split(maxsplit=2) == [str(2 * KEPT), str(700 - OWN_FILES), "(700, 700)\n"]
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert most_connections() <= soft - OWN_FILES


@pytest.mark.parametrize(
    ("text", "peer"),
    [
        ("ipv4:127.0.0.1:5000", ("127.0.0.1", 5000)),
        ("ipv6:%5B::1%5D:5000", ("::1", 5000)),
        ("ipv6:[::ffff:10.0.0.1]:7", ("10.0.0.1", 7)),
        ("unix:/tmp/x", None),
        ("", None),
    ],
)
def test_the_address_of_a_peer_is_parsed_into_host_and_port(text: str, peer: tuple[str, int] | None) -> None:
    assert peer_of_text(text) == peer
