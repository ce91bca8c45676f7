"""Two launchers under one node's name: the one that is there stays, and its apps go on."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.appmaster import serving_lab
from tests.appmaster.serving_lab import SCRIPT, eventually, supervisor

from eunomia_appmaster import Client
from eunomia_appmaster.node.supervisor import Supervisor

_floors = serving_lab.floors

PATIENCE_SECONDS = 90.0


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Supervisor]:
    with supervisor(tmp_path) as started:
        yield started


def second(made: Supervisor, state: Path, *more: str) -> list[str]:
    """The command of another launcher, with a state folder of its own."""
    assert made.launcher is not None
    command = list(made.launcher.command)
    command[command.index("--state") + 1] = str(state)
    locks = command.index("--gpu-locks") if "--gpu-locks" in command else None
    return [*(command if locks is None else command[:locks] + command[locks + 2 :]), *more]


def registrations(folder: Path) -> int:
    return (folder / "log" / "arbiter.log").read_text().count("node.registered")


def test_a_second_launcher_exits_and_the_first_continues(made: Supervisor, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    file = tmp_path / "ana.toml"
    file.write_text(f'[app]\nname = "ana"\n[job]\ncommand = "{sys.executable} train.py"\nslots = 2\n')
    with Client(made.address, token_file=made.token_file) as arbiter:
        arbiter.submit(file)
        eventually(lambda: arbiter.app("ana").running == 1)
        before = registrations(tmp_path)
        shutil.copytree(
            made.state_dir / "launcher", tmp_path / "copy" / "launcher", ignore=shutil.ignore_patterns("live", "*.new")
        )
        for state in (tmp_path / "other", tmp_path / "copy"):
            ended = subprocess.run(second(made, state), capture_output=True, text=True, timeout=60, check=False)
            assert ended.returncode == 2, ended.stderr
            last = ended.stderr.splitlines()[-1]
            assert last.startswith("error: a node must have one launcher (end that one, or take another --node)")
        assert registrations(tmp_path) == before
        (tmp_path / "end").touch()
        eventually(lambda: arbiter.app("ana").state == "finished")


def test_a_new_launcher_replaces_one_that_has_ended(made: Supervisor, tmp_path: Path) -> None:
    assert made.launcher is not None
    before, first = registrations(tmp_path), made.launcher.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)  # its supervisor starts the next one, of the same state folder
    eventually(lambda: registrations(tmp_path) == before + 1)
    made.launcher.stop()
    with (tmp_path / "second.log").open("ab") as log:
        other = subprocess.Popen(second(made, tmp_path / "other"), stdout=log, stderr=log)
    try:
        eventually(lambda: registrations(tmp_path) == before + 2)
        assert other.poll() is None
    finally:
        other.terminate()
        other.wait(PATIENCE_SECONDS)


def test_a_launcher_that_is_restarted_with_more_slots_offers_them_all(made: Supervisor, tmp_path: Path) -> None:
    assert made.launcher is not None
    made.launcher.stop()
    with (tmp_path / "more.log").open("ab") as log:
        more = subprocess.Popen(second(made, made.state_dir, "--slots", "3"), stdout=log, stderr=log)
    try:
        with Client(made.address, token_file=made.token_file) as arbiter:
            eventually(lambda: arbiter.health().free_slots == 3)
    finally:
        more.terminate()
        more.wait(PATIENCE_SECONDS)
