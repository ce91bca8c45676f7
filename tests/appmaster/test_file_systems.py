"""A journal on a network file system is refused before anything is written there."""

from pathlib import Path

import pytest
from tests.appmaster import serving_lab

from eunomia.errors import InputError
from eunomia_appmaster.node import file_systems
from eunomia_appmaster.node.file_systems import check_local

_floors = serving_lab.floors

MOUNTS = """\
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
40 21 0:35 / {shared} rw,relatime shared:2 - nfs4 head:/export rw,vers=4.2
41 40 8:2 / {shared}/local rw,relatime - xfs /dev/sdb1 rw
42 21 0:36 / {shared}\\040two rw,relatime - fuse.sshfs head: rw
"""


@pytest.fixture
def mounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "mountinfo"
    file.write_text(MOUNTS.format(shared=tmp_path / "shared"))
    return file


@pytest.mark.parametrize(("folder", "kind"), [("shared/state", "nfs4"), ("shared two/a/b", "fuse.sshfs")])
def test_a_state_folder_on_a_network_file_system_is_refused(
    tmp_path: Path, mounts: Path, folder: str, kind: str
) -> None:
    with pytest.raises(InputError, match=f"must be on a local disk, .*{folder}, on {kind}"):
        check_local(tmp_path / folder, mounts=mounts)


@pytest.mark.parametrize("folder", ["state", "shared/local/state", "sharedness"])
def test_a_state_folder_on_a_local_disk_is_accepted(tmp_path: Path, mounts: Path, folder: str) -> None:
    check_local(tmp_path / folder, mounts=mounts)
    check_local(tmp_path / folder, mounts=tmp_path / "none")  # not known


def test_serve_refuses_it_before_it_writes_anything(
    tmp_path: Path, mounts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_systems.check_local, "__kwdefaults__", {"mounts": mounts})
    (tmp_path / "shared").mkdir()
    with pytest.raises(InputError, match="on nfs4"), serving_lab.supervisor(tmp_path / "shared"):
        pass
    assert not list((tmp_path / "shared").rglob("journal*"))
