"""A node must see the arbiter's storage: it reads back what the arbiter has written, or is refused with the remedy."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.appmaster import serving_lab
from tests.appmaster.serving_lab import supervisor

from eunomia.errors import InputError
from eunomia_appmaster.commands.launcher import LauncherFlags
from eunomia_appmaster.commands.serve_flags import ServeFlags
from eunomia_appmaster.launcher.gangs import as_seen_here
from eunomia_appmaster.launcher.node import Node
from eunomia_appmaster.launcher.storage import read_back
from eunomia_appmaster.node import local_machine
from eunomia_appmaster.protocol import launcher_pb2 as pb
from eunomia_appmaster.service.shared_storage import FOLDER, SharedStorage

_floors = serving_lab.floors


def registration(apps: Path, file: str, *, head: bool = False) -> pb.RegisterNodeRequest:
    """The registration of a node that has the apps' folders at ``apps``."""
    found, fault = asyncio.run(read_back(apps, file))
    return pb.RegisterNodeRequest(node="b08", apps_folder=str(apps), storage_hash=found, storage_fault=fault, head=head)


def test_a_node_that_reads_the_file_of_the_arbiter_is_accepted(tmp_path: Path) -> None:
    storage = SharedStorage(tmp_path / "apps")
    file = storage.show()
    storage.check(registration(tmp_path / "apps", file))
    assert storage.show() == file, "it is written once"
    assert ((tmp_path / "apps" / file).stat().st_mode & 0o777) == 0o644
    storage.hide()
    storage.hide()
    assert not list((tmp_path / "apps" / FOLDER).iterdir())


def test_a_node_that_cannot_see_the_shared_folder_is_refused_with_the_remedy(tmp_path: Path) -> None:
    storage = SharedStorage(tmp_path / "apps")
    file = storage.show()
    other = tmp_path / "other"
    rule = "must see the folder of apps' folders of the arbiter .*mount it on the node, and say where with --apps"
    for make, why in (
        (lambda: None, "there is no such folder"),
        (lambda: (other / FOLDER).mkdir(parents=True), "the arbiter's file is not in it"),
        (lambda: (other / file).write_text("as of a copy"), "has another content"),
    ):
        make()
        with pytest.raises(InputError, match=rule) as refused:
            storage.check(registration(other, file))
        assert f"{other}: " in str(refused.value) and why in str(refused.value)
    storage.check(registration(other, file, head=True))  # the head's own files stand in the state folder


def test_a_restarted_arbiter_refuses_a_node_with_an_older_copy(tmp_path: Path) -> None:
    former = registration(tmp_path, SharedStorage(tmp_path).show())
    again = SharedStorage(tmp_path)
    again.show()
    assert len(list((tmp_path / FOLDER).iterdir())) == 1
    with pytest.raises(InputError, match="another content"):
        again.check(former)


def test_a_launcher_reads_no_file_outside_the_apps_folder(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    (tmp_path / "apps").mkdir()
    assert asyncio.run(read_back(tmp_path / "apps", "../secret"))[1].endswith("is not in it")
    assert asyncio.run(read_back(tmp_path / "apps", "")) == ("", "")


def test_a_start_translates_the_apps_folder_to_the_path_on_the_node(tmp_path: Path) -> None:
    node = Node(tmp_path, "b08", local_machine.detect(1, use_gpus=False), apps=tmp_path / "mnt")
    request = pb.StartContainersRequest(
        app="net",
        app_folder="/a/apps/net",
        command=["python", "--logs=/a/apps/net/1/logs", "/a/apps/net", "/a/apps/net2/1", "/b/a/apps/net"],
        env={"OUT": "/x:/a/apps/net/1", "OTHER": "/a/apps/other"},
        working_folder="/home/ana",
        run_folder="/a/apps/net/1",
    )
    here, own = as_seen_here(request, node), tmp_path / "mnt" / "net"
    assert list(here.command) == ["python", f"--logs={own}/1/logs", f"{own}", "/a/apps/net2/1", "/b/a/apps/net"]
    assert dict(here.env) == {"OUT": f"/x:{own}/1", "OTHER": "/a/apps/other"}
    assert (here.working_folder, here.run_folder) == ("/home/ana", f"{own}/1")
    request.app_folder = str(own)
    assert as_seen_here(request, node) is request


def test_a_launcher_needs_an_existing_folder_of_apps(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--apps AT, but got neither"):
        _ = LauncherFlags(arbiter="head:7720").command
    with pytest.raises(InputError, match=r"must be on this machine .*--state"):
        _ = LauncherFlags(arbiter="head:7720", state=tmp_path).command
    (tmp_path / "apps").mkdir()
    for given in ({"state": tmp_path}, {"apps": tmp_path / "apps"}):
        command = LauncherFlags(arbiter="head:7720", **given).command
        assert command[command.index("--apps") + 1] == str(tmp_path / "apps")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"arbiter": "foo"}, r'HOST:PORT, .*but got "foo" \(--arbiter\)'),
        ({"arbiter": "127.0.0.1:99999"}, "HOST:PORT"),
        ({"node": ""}, 'a node\'s name must be .*, but got "" '),
        ({"node": "../x"}, "a node's name must be"),
        ({"port_range": "9-8"}, "a range of ports"),
        ({"slot_types": "fast"}, "slot types must look like"),
        ({"control_groups": "v3"}, "control groups must be one of auto"),
        ({"stop_seconds": "-5"}, "--stop-seconds must be a duration"),
        ({"state": Path("/elsewhere")}, "by --apps, or by --state"),
    ],
)
def test_invalid_options_are_refused_before_a_launcher_starts(tmp_path: Path, given: dict[str, Any], why: str) -> None:
    with pytest.raises(InputError, match=why):
        _ = LauncherFlags.model_validate({"arbiter": "head:7720", "apps": tmp_path, **given}).command


@pytest.mark.parametrize(("text", "seconds"), [("10", "10.0"), ("2.5", "2.5"), ("1h", "3600.0"), ("0s", "0.0")])
def test_the_grace_period_of_a_launcher_is_parsed_as_a_duration(tmp_path: Path, text: str, seconds: str) -> None:
    command = LauncherFlags(arbiter="head:7720", apps=tmp_path, stop_seconds=text).command
    assert command[command.index("--stop-seconds") + 1] == seconds


@pytest.mark.parametrize("lease", ["1s", "9000d"])
def test_an_invalid_lease_and_a_launcher_without_slots_are_refused(lease: str) -> None:
    with pytest.raises(InputError, match="--node-lease must be from 5s to 7d"):
        _ = ServeFlags(node_lease=lease).arbiter_options
    with pytest.raises(InputError, match="must be given none, but got --slots"):
        _ = ServeFlags(no_launcher=True, slots=2).launcher_options


def test_a_launcher_on_another_folder_is_refused_and_exits(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    with supervisor(tmp_path, slots=1) as made:
        command = [sys.executable, "-m", "eunomia_appmaster.launcher", "--state", str(tmp_path / "own")]
        command += ["--node-dir", str(tmp_path / "own"), "--apps", str(other), "--node", "b08", "--slots", "1"]
        command += ["--cpu-only", "--no-zygote", "--arbiter", made.address]
        command += ["--token-file", str(made.run_dir / "launcher.token")]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 2
    assert f"{other}: the arbiter's file is not in it" in ended.stderr
