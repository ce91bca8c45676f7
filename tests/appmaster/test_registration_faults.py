"""A fault of the arbiter, or a damaged token, ends no app master that runs, and counts against no app."""

import threading
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import pytest
import structlog

from eunomia.errors import EunomiaError
from eunomia_appmaster.master.link import ArbiterLink, OverError, Resync
from eunomia_appmaster.master.outbox import Outbox
from eunomia_appmaster.node.kept_files import DamagedTokenError, read_token, sealed_token
from eunomia_appmaster.node.machine_faults import is_machine_fault
from eunomia_appmaster.node.system import MACHINE
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.protocol import arbiter_pb2_grpc as rpc

TOKEN = f"app:ana:{'0' * 64}"


class Faulty(rpc.ApplicationMasterProtocolServicer):
    """An arbiter that answers with these codes before it answers well."""

    def __init__(self, *codes: grpc.StatusCode) -> None:
        self.codes = list(codes)
        self.tokens: list[Any] = []

    def RegisterApplicationMaster(self, request: Any, context: Any) -> Any:
        self._answer(context)
        return pb.RegisterApplicationMasterResponse(heartbeat_seconds=0.1)

    def Allocate(self, request: Any, context: Any) -> Any:
        self._answer(context)
        return pb.AllocateResponse(response_id=1)

    def _answer(self, context: Any) -> None:
        self.tokens.append(dict(context.invocation_metadata()).get("authorization"))
        if self.codes:
            context.abort(self.codes.pop(0), "its own fault")


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Serve an arbiter; returns the link of an app master to it."""
    monkeypatch.setattr("eunomia_appmaster.master.link.LONGEST_PAUSE_SECONDS", 0.1)
    monkeypatch.setattr("eunomia_appmaster.master.link.LONGEST_FAULT_PAUSE_SECONDS", 0.2)
    servers = []

    def start(arbiter: Faulty) -> ArbiterLink:
        server = grpc.server(futures.ThreadPoolExecutor(2))
        rpc.add_ApplicationMasterProtocolServicer_to_server(arbiter, server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        servers.append(server)
        (tmp_path / "token").write_text(sealed_token(TOKEN))
        return ArbiterLink(f"127.0.0.1:{port}", tmp_path / "token", "ana", 1, Outbox(MACHINE), MACHINE.flag())

    yield start
    for server in servers:
        server.stop(None)


def test_a_registration_that_fails_in_the_arbiter_is_repeated(serve: Any) -> None:
    codes = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.UNAUTHENTICATED)
    with structlog.testing.capture_logs() as logs:
        assert serve(Faulty(*codes)).register(()).heartbeat_seconds == 0.1
    assert [line["code"] for line in logs if line["event"] == "arbiter.failed"] == [code.name for code in codes]


def test_an_app_master_registers_again_after_a_heartbeat_that_failed_in_the_arbiter(serve: Any) -> None:
    link = serve(arbiter := Faulty())
    link.register(())
    arbiter.codes.append(grpc.StatusCode.INTERNAL)
    with pytest.raises(Resync):
        link.exchange()
    assert link.register(()).heartbeat_seconds == 0.1


def test_an_app_master_exits_if_its_registration_is_malformed_or_its_app_is_over(serve: Any) -> None:
    with pytest.raises(EunomiaError, match="the arbiter must accept this app master, but got INVALID_ARGUMENT") as own:
        serve(Faulty(grpc.StatusCode.INVALID_ARGUMENT)).register(())
    assert not is_machine_fault(own.value)
    with pytest.raises(OverError):
        serve(Faulty(grpc.StatusCode.FAILED_PRECONDITION)).register(())


def test_a_token_damaged_while_an_app_master_runs_changes_nothing(serve: Any, tmp_path: Path) -> None:
    link = serve(arbiter := Faulty())
    link.register(())
    for damaged in (b"", b"app:an", b"\xff", f"{TOKEN}\nsum 00000000\n".encode()):
        (tmp_path / "token").write_bytes(damaged)
        with structlog.testing.capture_logs() as logs:
            link.register(())
        assert [line["event"] for line in logs] == ["token.damaged"]
    assert set(arbiter.tokens) == {f"Bearer {TOKEN}"}


def test_a_token_unreadable_at_the_start_of_an_app_master_is_not_its_failure(tmp_path: Path) -> None:
    path = tmp_path / "token"
    with pytest.raises(DamagedTokenError, match="writes it again") as gone:
        read_token(path)
    assert is_machine_fault(gone.value)
    path.write_text(f"{TOKEN}\n")  # of an earlier version
    assert read_token(path) == TOKEN
    good = sealed_token(TOKEN)
    path.write_text(good)
    assert read_token(path) == TOKEN
    for at in range(len(good)):
        path.write_text(good[:at] + chr(ord(good[at]) ^ 1) + good[at + 1 :])
        try:
            assert read_token(path) == TOKEN, at
        except DamagedTokenError:
            continue


def test_a_link_that_is_stopped_does_not_wait_any_longer(serve: Any) -> None:
    link = serve(Faulty(*[grpc.StatusCode.INTERNAL] * 1000))
    threading.Timer(0.3, link._stopped.set).start()
    with pytest.raises(EunomiaError, match="an order to stop"):
        link.register(())
