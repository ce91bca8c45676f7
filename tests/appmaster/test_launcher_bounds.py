"""What a worker or an app master tells a launcher stays within what the arbiter takes: it must hear of the machine."""

import json
import math
import socket
from pathlib import Path
from typing import Any

import pytest
from tests.appmaster.launcher_lab import lab

from eunomia_appmaster.launcher.container import MOST_ANNOUNCED, Container
from eunomia_appmaster.launcher.errors import InputError
from eunomia_appmaster.launcher.gangs import check_path
from eunomia_appmaster.protocol import launcher_pb2 as pb
from eunomia_appmaster.runtimes import WatchPosition
from eunomia_appmaster.service import bounds


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("progress", {"step": -1}),
        ("progress", {"step": 2**63}),
        ("progress", {"step": 3, "seconds_per_step": math.nan}),
        ("progress", {"step": 3, "seconds_per_step": math.inf}),
        ("progress", {"step": 3, "seconds_per_step": -0.5}),
        ("saved", {"step": -1}),
        ("suspended", {"step": 1e300}),
        ("announce", {"metric": "x" * MOST_ANNOUNCED}),
    ],
)
def test_a_report_of_a_worker_beyond_the_limits_is_ignored(tmp_path: Path, kind: str, content: dict[str, Any]) -> None:
    container = Container(pb.ContainerStatus(container_id="c", app="ana"), tmp_path)
    container.heard(kind, {"step": 7, "seconds_per_step": 0.5} if kind != "announce" else {"metric": "loss"})
    before = container.status.SerializeToString()
    with pytest.raises(ValueError, match="must"):
        container.heard(kind, content)
    assert container.status.SerializeToString() == before
    bounds.check(pb.NodeHeartbeatRequest(node="box7", containers=[container.status]))


@pytest.mark.parametrize("path", ["/a\0b", "/" + "x" * 256, "/y" * 2000, "/" + "ü" * 128])
def test_a_path_that_no_file_system_accepts_is_refused(path: str) -> None:
    with pytest.raises(InputError, match="a run folder must have names of at most 255 bytes"):
        check_path(path, "a run folder")


def test_paths_within_the_bounds_are_accepted() -> None:
    for path in ("", "/", "/a/" + "x" * 255, "relative"):
        check_path(path, "a run folder")


def test_connections_without_a_token_are_closed_but_not_that_of_an_app_master(tmp_path: Path) -> None:
    with lab(tmp_path, "--connection-seconds", "1") as made:
        runtime = made.runtime()
        runtime.watch(WatchPosition(), wait_seconds=0)
        address = json.loads((made.state / "launcher" / "launcher.json").read_text())["address"]
        host, _, port = address.rpartition(":")
        silent = [socket.create_connection((host, int(port)), timeout=60.0) for _ in range(30)]
        for connection in silent:
            with connection:
                while connection.recv(4096):  # what HTTP/2 says first; then the end
                    pass
        before = runtime._channel
        runtime.watch(WatchPosition(), wait_seconds=0)
        assert runtime._channel is before
