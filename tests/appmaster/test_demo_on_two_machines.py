"""The demo's four apps on two machines with an address each; the arbiter has no slots of its own."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.appmaster import serving_lab
from tests.appmaster.namespaces_lab import Machine, needs_namespaces, two_machines
from tests.appmaster.serving_lab import eventually

from eunomia_appmaster.service.certificates import make
from eunomia_testbed.demo.apps_of_demo import app_sources

_floors = serving_lab.floors
pytestmark = [needs_namespaces, pytest.mark.slow, pytest.mark.timeout(1200)]
LIMIT_SECONDS = 900.0
LEASE = ("--set", "rounds.lease=15s")
"""A start takes a good part of the demo's six seconds where no process holds what the scripts import."""


class TwoNodes:
    """An arbiter without slots on the first machine, and a launcher with two slots on each."""

    def __init__(self, folder: Path, one: Machine, other: Machine) -> None:
        self.folder, self.head = folder, one
        self.machines = {"one": one, "other": other}
        self.state = folder / "state"
        self.address = f"{one.address}:7720"
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        tls = make(self.folder / "tls", [self.head.address])
        files = ("--tls-cert", str(tls.cert), "--tls-key", str(tls.key), "--tls-ca", str(tls.ca))
        self._begin(
            "serve", self.head, "serve", "--address", self.address, "--no-launcher", "--policy", "demo", *LEASE, *files
        )
        token = eventually(self._token, "the arbiter answers")
        (self.folder / "join").write_text(token)
        (self.folder / "join").chmod(0o600)
        for name, machine in self.machines.items():
            words = ("--arbiter", self.address, "--join", str(self.folder / "join"), "--announce", machine.address)
            own = ("--node", name, "--node-dir", str(self.folder / name), "--slots", "2", "--cpu-only")
            self._begin(name, machine, "launcher", *words, *own)
        eventually(self._both_joined, "both joined")

    def _begin(self, name: str, machine: Machine, command: str, *words: str) -> None:
        where = ("--state-dir" if command == "serve" else "--state", str(self.state))
        with (self.folder / f"{name}.log").open("ab") as log:
            argv = (sys.executable, "-m", "eunomia.cli", command, *where, *words)
            self.processes.append(machine.start(*argv, log=log))

    def _token(self) -> str:
        try:
            return str(self.asked("nodes", "token", "--reusable")["token"])
        except AssertionError:
            return ""

    def _both_joined(self) -> bool:
        try:
            return len(self.asked("nodes")["nodes"]) == 2
        except AssertionError:  # it waits for its first machine
            return False

    def asked(self, *words: str) -> dict[str, Any]:
        """The answer of a command on the arbiter's machine."""
        made: dict[str, Any] = json.loads(self.head.eunomia(*words, "--state-dir", str(self.state), "--json"))
        return made

    def end(self) -> None:
        while self.processes:
            process = self.processes.pop()
            process.terminate()
            process.wait(90)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[TwoNodes]:
    with two_machines() as (one, other, _):
        made = TwoNodes(tmp_path, one, other)
        try:
            made.start()
            yield made
        finally:
            made.end()


def test_the_demos_apps_end_on_two_machines_and_no_slot_has_two_holders(nodes: TwoNodes) -> None:
    sources = app_sources()
    shutil.copytree(sources[0].path.parent, nodes.folder / "apps")
    for source in sources:
        file = nodes.folder / "apps" / source.path.name
        file.write_text(source.text)
        nodes.head.eunomia("submit", str(file), "--state-dir", str(nodes.state))
    eventually(lambda: not nodes.asked("apps")["apps"], "all apps have ended", LIMIT_SECONDS)
    ends = {app["app"]: app["state"] for app in nodes.asked("apps", "--all")["apps"]}
    assert ends == {source.path.stem: "finished" for source in sources}
    for name in nodes.machines:
        assert list((nodes.folder / name).glob("live/*")), f"work ran on {name}"
    nodes.end()
    checked = nodes.head.eunomia("journal", "check", str(nodes.state))
    assert "nothing found" in checked
