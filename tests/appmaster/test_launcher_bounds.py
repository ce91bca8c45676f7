"""What a worker or an app master tells a launcher stays within what the arbiter takes: it must hear of the machine."""

import math
from pathlib import Path
from typing import Any

import pytest

from eunomia_appmaster.launcher.container import MOST_ANNOUNCED, Container
from eunomia_appmaster.launcher.errors import InputError
from eunomia_appmaster.launcher.gangs import check_path
from eunomia_appmaster.protocol import launcher_pb2 as pb
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
def test_a_report_of_a_worker_that_is_out_of_bounds_is_ignored(
    tmp_path: Path, kind: str, content: dict[str, Any]
) -> None:
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


def test_other_paths_are_accepted() -> None:
    for path in ("", "/", "/a/" + "x" * 255, "relative"):
        check_path(path, "a run folder")
