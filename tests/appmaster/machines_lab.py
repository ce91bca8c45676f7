"""An arbiter on a machine with an address of its own, and launchers on others (``namespaces_lab``). Not a test."""

import contextlib
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.appmaster.namespaces_lab import Machine
from tests.appmaster.serving_lab import eventually

from eunomia_appmaster.service.certificates import make


class LiveMachines:
    """An arbiter that serves under TLS, and what runs beside it.

    Args:
        folder: of the state, the nodes' own folders, and logs.
        head: the arbiter's machine.
    """

    def __init__(self, folder: Path, head: Machine) -> None:
        self.folder, self.head = folder, head
        self.state = folder / "state"
        self.address = f"{head.address}:7720"
        self.processes: list[subprocess.Popen[bytes]] = []

    def serve(self, *options: str) -> "subprocess.Popen[bytes]":
        """Start the arbiter."""
        tls = make(self.folder / "tls", [self.head.address])
        files = ("--tls-cert", str(tls.cert), "--tls-key", str(tls.key), "--tls-ca", str(tls.ca))
        words = ("serve", "--state-dir", str(self.state), "--address", self.address, *files, *options)
        return self._begin("serve", self.head, *words)

    def take_token(self) -> None:
        """Wait for the arbiter, and have it make a join token."""
        answer = eventually(lambda: self.asked("nodes", "token", "--reusable"), "the arbiter answers")
        (self.folder / "join").write_text(answer["token"])
        (self.folder / "join").chmod(0o600)

    def join(self, name: str, machine: Machine, slots: int, *options: str) -> "subprocess.Popen[bytes]":
        """Start the launcher of a node, and wait until it has joined."""
        words = ["launcher", "--state", str(self.state), "--arbiter", self.address, "--node", name, "--cpu-only"]
        words += ["--node-dir", str(self.folder / name), "--slots", str(slots), "--join", str(self.folder / "join")]
        launcher = self._begin(name, machine, *words, *options)
        eventually(lambda: name in self.nodes(), f"{name} joined")
        return launcher

    def _begin(self, name: str, machine: Machine, *words: str) -> "subprocess.Popen[bytes]":
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes.append(machine.start(sys.executable, "-m", "eunomia.cli", *words, log=log))
        return self.processes[-1]

    def eunomia(self, *words: str) -> str:
        """The output of a command on the arbiter's machine."""
        return self.head.eunomia(*words, "--state-dir", str(self.state))

    def asked(self, *words: str) -> dict[str, Any]:
        """The answer of a command as JSON; empty: the arbiter does not answer yet."""
        with contextlib.suppress(AssertionError):
            made: dict[str, Any] = json.loads(self.eunomia(*words, "--json"))
            return made
        return {}

    def nodes(self) -> dict[str, dict[str, Any]]:
        """What ``eunomia nodes`` shows."""
        return {node["node"]: node for node in self.asked("nodes").get("nodes", ())}

    def submit(self, file: Path) -> None:
        """Submit an app."""
        self.eunomia("submit", str(file))

    def end(self) -> None:
        """End all, launchers first."""
        while self.processes:
            process = self.processes.pop()
            process.send_signal(signal.SIGCONT)
            process.terminate()
            process.wait(90)
