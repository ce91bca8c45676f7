"""What standard tools ask of a running arbiter: health, reflection, HEAD of its metrics, and names of processes."""

import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.appmaster.service_lab import PATIENCE_SECONDS, Lab, lab

from eunomia_appmaster.service.metrics import Meters
from eunomia_appmaster.service.metrics_server import MetricsServer


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Lab]:
    with lab(tmp_path) as made:
        yield made.ready()


def called(made: Lab, method: str, metadata: Any = ()) -> tuple[grpc.StatusCode, str]:
    call = made.channel.unary_unary(method, request_serializer=bytes, response_deserializer=bytes)
    with pytest.raises(grpc.RpcError) as caught:
        call(b"", metadata=metadata, timeout=PATIENCE_SECONDS)
    return caught.value.code(), caught.value.details()


def test_an_unknown_method_with_a_valid_token_returns_unimplemented(served: Lab) -> None:
    for method in ("/eunomia.arbiter.ClientProtocol/Sbumit", "/eunomia.arbitr.ClientProtocol/Submit"):
        code, why = called(served, method, served.operator)
        assert code is grpc.StatusCode.UNIMPLEMENTED
        assert method in why
        assert called(served, method)[0] is grpc.StatusCode.UNAUTHENTICATED


def test_health_is_reported_without_a_token(served: Lab) -> None:
    pb2 = pytest.importorskip("grpc_health.v1.health_pb2")
    rpc = pytest.importorskip("grpc_health.v1.health_pb2_grpc")
    stub = rpc.HealthStub(served.channel)
    for name in ("", "eunomia.arbiter.ClientProtocol"):
        assert stub.Check(pb2.HealthCheckRequest(service=name), timeout=PATIENCE_SECONDS).status == 1
    with pytest.raises(grpc.RpcError) as caught:
        stub.Check(pb2.HealthCheckRequest(service="nets"), timeout=PATIENCE_SECONDS)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


def test_an_arbiter_that_waits_for_its_machines_is_not_serving(tmp_path: Path) -> None:
    pb2 = pytest.importorskip("grpc_health.v1.health_pb2")
    rpc = pytest.importorskip("grpc_health.v1.health_pb2_grpc")
    with lab(tmp_path) as made:
        assert rpc.HealthStub(made.channel).Check(pb2.HealthCheckRequest(), timeout=PATIENCE_SECONDS).status == 2


def test_reflection_needs_the_token_of_the_operator(served: Lab) -> None:
    pb2 = pytest.importorskip("grpc_reflection.v1alpha.reflection_pb2")
    rpc = pytest.importorskip("grpc_reflection.v1alpha.reflection_pb2_grpc")
    stub = rpc.ServerReflectionStub(served.channel)
    asked = [pb2.ServerReflectionRequest(list_services="")]
    (answer,) = stub.ServerReflectionInfo(iter(asked), metadata=served.operator, timeout=PATIENCE_SECONDS)
    names = {one.name for one in answer.list_services_response.service}
    assert {"eunomia.arbiter.ClientProtocol", "grpc.health.v1.Health"} <= names
    for token, refused in (((), grpc.StatusCode.UNAUTHENTICATED), (served.launcher.token, None)):
        with pytest.raises(grpc.RpcError) as caught:
            list(stub.ServerReflectionInfo(iter(asked), metadata=token, timeout=PATIENCE_SECONDS))
        assert caught.value.code() is (refused or grpc.StatusCode.PERMISSION_DENIED)


def test_head_returns_the_headers_of_get_without_a_body(tmp_path: Path) -> None:
    with lab(tmp_path) as made:
        service = made.arbiter.service
        service.meters = Meters()

        async def serve() -> MetricsServer:
            assert service.meters is not None
            return MetricsServer(service, service.meters, "127.0.0.1:0")

        server = made.arbiter.run(serve())
        try:
            asked = urllib.request.Request(f"http://{server.address}/metrics", method="HEAD")
            with urllib.request.urlopen(asked, timeout=PATIENCE_SECONDS) as answer:
                assert answer.status == 200
                assert int(answer.headers["Content-Length"]) > 0
                assert answer.read() == b""
        finally:
            server.close()


def test_a_renamed_process_keeps_its_environment() -> None:
    pytest.importorskip("setproctitle")
    script = """
from pathlib import Path
from eunomia_appmaster.node.process_name import name_worker
name_worker()
print(Path("/proc/self/cmdline").read_bytes().replace(b"\\0", b" ").decode())
print("SPT_NOENV" in __import__("os").environ, b"EUNOMIA_JOB=nets/3" in Path("/proc/self/environ").read_bytes())
"""
    env = {**os.environ, "EUNOMIA_JOB": "nets/3", "RANK": "1"}
    told = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True)
    title, kept = told.stdout.splitlines()
    assert title.startswith("eunomia: nets/3 rank 1")
    assert kept == "False True"
