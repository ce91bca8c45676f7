"""An app gets no slots of a node that lacks what its command needs, until the node has it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.appmaster import serving_lab
from tests.appmaster.serving_lab import client, eventually, supervisor, tiny_app

from eunomia_appmaster import Client
from eunomia_appmaster.node.supervisor import Supervisor

_floors = serving_lab.floors
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="another machine's files need a mount namespace, and that root"),
]


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Supervisor]:
    with supervisor(tmp_path, slots=1) as one:
        yield one


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A folder with an interpreter, which the second machine does not have at first."""
    folder = tmp_path / "tools"
    folder.mkdir()
    (folder / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (folder / "python").chmod(0o755)
    return folder


@pytest.fixture
def annex(made: Supervisor, tmp_path: Path, tools: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A second node with a slot, for which the folder of tools is empty."""
    command = ["unshare", "-m", "sh", "-c", f'mount -t tmpfs none {tools} && exec "$@"', "sh"]
    command += [sys.executable, "-m", "eunomia_appmaster.launcher", "--state", str(made.state_dir), "--node", "annex"]
    command += ["--node-dir", str(tmp_path / "annex"), "--slots", "1", "--cpu-only", "--no-zygote"]
    command += ["--arbiter", made.address, "--token-file", str(made.run_dir / "launcher.token")]
    with (tmp_path / "annex.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    with client(made) as arbiter:
        eventually(lambda: len(arbiter.health().nodes) == 2, "it joined")
    yield process
    process.terminate()
    process.wait(30)


def app_of_tools(folder: Path, tools: Path, name: str, *, seconds: float, iterations: int = 60) -> Path:
    """A search whose command is run by the interpreter of the tools."""
    file = tiny_app(folder, name, iterations=iterations, seconds=seconds, searches=True)
    file.write_text(file.read_text().replace(sys.executable, str(tools / "python")))
    return file


def left_out(arbiter: Client) -> list[str]:
    """What is said of the apps that get no slots of the second node."""
    found = [node for node in arbiter.nodes() if node.node == "annex"]
    return [f"{one.app}: {one.words}" for node in found for one in node.left_out]


def grants(log: Path, app: str) -> int:
    """How often the arbiter has given something to an app."""
    return sum(f"start {app}" in line for line in log.read_text().splitlines() if "round.decided" in line)


def test_an_app_gets_no_slots_of_a_node_that_lacks_its_interpreter(
    made: Supervisor, annex: "subprocess.Popen[bytes]", tools: Path, tmp_path: Path
) -> None:
    with client(made) as arbiter:
        arbiter.submit(app_of_tools(tmp_path, tools, "ana", seconds=0.2))
        (said,) = eventually(lambda: left_out(arbiter), "it is left out")
        assert said.startswith(f"ana: no slots on annex: the program of a command must exist, but got '{tools}/python'")
        assert said.endswith("; tried again every 30 s")
        assert all(one.nodes[-1] in said for one in arbiter.explanations("ana") if one.state == "waiting")
        free = eventually(lambda: [one for one in arbiter.list(slots=True).slots if one.machine == "annex"], "its slot")
        eventually(lambda: arbiter.list(slots=True).slots[free[0].gpu].state == "free", "it is given back")
        arbiter.submit(tiny_app(tmp_path, "ben", iterations=20, seconds=0.05))
        eventually(
            lambda: arbiter.list(app="ben", ended=True).apps[0].state == "finished", "the other app has the slot"
        )
        subprocess.run(["nsenter", "-t", str(annex.pid), "-m", "umount", str(tools)], check=True)
        eventually(lambda: not left_out(arbiter), "the check passes")
        eventually(lambda: arbiter.list(slots=True).slots[free[0].gpu].app == "ana", "the app has its slot")
        eventually(lambda: arbiter.list(app="ana", ended=True).apps[0].state == "finished", "it is over")
        assert arbiter.list(app="ana", ended=True).apps[0].failed == 0
