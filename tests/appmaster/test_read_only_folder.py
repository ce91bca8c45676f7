"""A state folder that cannot be written is refused before anything is changed."""

import importlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from eunomia import cli
from eunomia.errors import InputError
from eunomia_appmaster.node.writable import check_writable

ORDINARY = 65534
MODULES = ("commands.serve", "node.local_machine", "node.supervisor", "service.ports", "service.server")
"""Imported before this process' copy gives up its rights, with which it may not read them."""


@pytest.fixture
def state() -> Iterator[Path]:
    """A state folder that any user may reach."""
    folder = Path(f"/tmp/eunomia-read-only-{os.getpid()}")
    for name in ("run", "launcher/live", "apps/ana"):
        (folder / name).mkdir(parents=True)
    yield folder
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755)
    shutil.rmtree(folder)


@pytest.mark.parametrize("name", ["", "run", "launcher", "launcher/live", "apps", "apps/ana"])
def test_serve_names_a_folder_without_write_permission_and_changes_nothing(
    state: Path, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    for path in (state, *state.rglob("*")):
        path.chmod(0o777)
    (state / name).chmod(0o555)
    before = sorted(str(path) for path in state.rglob("*"))
    code, said = _served(state, capfd)
    assert code == 2, said
    assert "a state folder and the folders in it must be writable for the user of `eunomia serve`" in said
    assert f"but got no right to write for user {os.geteuid() or ORDINARY} ({state / name})" in said
    assert sorted(str(path) for path in state.rglob("*")) == before


def _served(state: Path, capfd: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Run the command in a copy of this process that has no more rights than an ordinary user."""
    for name in MODULES:
        importlib.import_module(f"eunomia_appmaster.{name}")
    command = ["serve", "--state-dir", str(state), "--slots", "1", "--cpu-only", "--address", "127.0.0.1:0"]
    capfd.readouterr()
    pid = os.fork()
    if pid == 0:
        if os.geteuid() == 0:
            os.setuid(ORDINARY)
        os._exit(cli.run(command))
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), capfd.readouterr().err


def test_a_folder_that_can_be_written_or_created_is_accepted(tmp_path: Path) -> None:
    check_writable(tmp_path)
    check_writable(tmp_path / "new" / "folder")
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_place_of_the_state_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    with pytest.raises(InputError, match="a state folder must be a folder, but got a file"):
        check_writable(tmp_path / "state")
