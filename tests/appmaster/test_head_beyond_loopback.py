"""A gang over the arbiter's own machine and another one: ``serve --announce``, in network namespaces."""

import json
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

_floors = serving_lab.floors
pytestmark = [needs_namespaces, pytest.mark.slow, pytest.mark.timeout(600)]
SCRIPT = """
import os
import torch
import torch.distributed as group
group.init_process_group("gloo")
ranks = torch.tensor([float(group.get_rank() + 1)])
group.all_reduce(ranks)
if group.get_rank() == 0:
    made = f"{ranks.item()} {os.environ['MASTER_ADDR']} {os.environ['GLOO_SOCKET_IFNAME']}"
    open(os.environ["EUNOMIA_RUN_DIR"] + "/sum", "w").write(made)
group.destroy_process_group()
"""


class Head:
    """An arbiter with a slot on the first machine, and a launcher with another on the second."""

    def __init__(self, folder: Path, one: Machine, other: Machine) -> None:
        self.folder, self.head, self.other = folder, one, other
        self.state = folder / "state"
        self.address = f"{one.address}:7720"
        self.processes: list[subprocess.Popen[bytes]] = []
        self.tls = make(folder / "tls", [one.address])

    def serve(self, announce: str) -> "subprocess.Popen[bytes]":
        files = ("--tls-cert", str(self.tls.cert), "--tls-key", str(self.tls.key), "--tls-ca", str(self.tls.ca))
        options = ("--address", self.address, "--slots", "1", "--cpu-only", *files)
        return self._begin("serve", self.head, "serve", *options, "--announce", announce)

    def join(self) -> None:
        token = str(eventually(lambda: self.asked("nodes", "token"), "the arbiter answers")["token"])
        (self.folder / "join").write_text(token)
        (self.folder / "join").chmod(0o600)
        words = ("--arbiter", self.address, "--join", str(self.folder / "join"), "--announce", self.other.address)
        own = ("--node", "other", "--node-dir", str(self.folder / "other"), "--slots", "1", "--cpu-only")
        self._begin("other", self.other, "launcher", *words, *own)
        eventually(lambda: len(self.asked("nodes").get("nodes", ())) == 2, "it joined")

    def _begin(self, name: str, machine: Machine, command: str, *words: str) -> "subprocess.Popen[bytes]":
        where = ("--state-dir" if command == "serve" else "--state", str(self.state))
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes.append(machine.start(sys.executable, "-m", "eunomia.cli", command, *where, *words, log=log))
        return self.processes[-1]

    def asked(self, *words: str) -> dict[str, Any]:
        """The answer of a command on the arbiter's machine; empty: it does not answer yet."""
        try:
            made: dict[str, Any] = json.loads(self.head.eunomia(*words, "--state-dir", str(self.state), "--json"))
        except AssertionError:
            return {}
        return made

    def end(self) -> None:
        while self.processes:
            process = self.processes.pop()
            process.terminate()
            process.wait(90)


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Head]:
    with two_machines() as (one, other, _):
        made = Head(tmp_path, one, other)
        try:
            yield made
        finally:
            made.end()


def test_a_gang_runs_over_the_head_and_another_machine(machines: Head) -> None:
    machines.serve(machines.head.address)
    machines.join()
    nodes = machines.asked("nodes")["nodes"]
    assert [node["address"].partition(":")[0] for node in nodes] == [machines.head.address, machines.other.address]
    (machines.folder / "train.py").write_text(SCRIPT)
    file = machines.folder / "gang.toml"
    file.write_text(f'[app]\nname = "gang"\n[job]\ncommand = "{sys.executable} train.py"\nslots = 2\n')
    machines.head.eunomia("submit", str(file), "--state-dir", str(machines.state))
    eventually(lambda: not machines.asked("apps").get("apps", [1]), "it has ended", 300.0)
    ((_, state),) = [(app["app"], app["state"]) for app in machines.asked("apps", "--all")["apps"]]
    assert state == "finished"
    total, master, interface = (machines.state / "apps" / "gang" / "1" / "sum").read_text().split()
    assert (float(total), interface) == (3.0, machines.head.device)
    assert master in (machines.head.address, machines.other.address)


def test_an_announced_address_that_is_not_the_heads_is_refused(machines: Head) -> None:
    process = machines.serve("10.213.0.77")
    assert process.wait(120) != 0
    said = (machines.folder / "serve.log").read_text()
    assert "an address to listen on must be one of this machine, but got 10.213.0.77" in said
