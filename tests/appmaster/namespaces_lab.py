"""Machines that are network namespaces of this one, with a cable between two of them that can be cut.

Each machine has a namespace of its own; a pair of virtual interfaces joins the two, and the host's network has no part
in it. A cut is silent, as one of a real network is: the neighbour's hardware address is set to one that does not exist,
so that packets are sent and lost. Needs root and ``ip``.
"""

import contextlib
import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

import pytest

_NOWHERE = "02:00:00:00:00:99"
_NUMBERS = itertools.count()


def why_not() -> str:
    """Why there can be no namespaces here; empty: there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "network namespaces need the command ip"
    name = f"eun-try-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        return f"no network namespace can be made: {made.stderr.strip()}"
    subprocess.run(["ip", "netns", "del", name], check=True)
    return ""


needs_namespaces = pytest.mark.skipif(bool(why_not()), reason=why_not() or "-")


@dataclass(frozen=True)
class Machine:
    """A namespace with one interface."""

    name: str
    address: str
    device: str

    def command(self, *words: str) -> list[str]:
        """A command line that runs a command there."""
        return ["ip", "netns", "exec", self.name, *words]

    def run(self, *words: str) -> str:
        """Run a command there to its end and return its output."""
        made = subprocess.run(self.command(*words), capture_output=True, text=True, check=False, timeout=120)
        assert made.returncode == 0, f"{words}: {made.stdout} {made.stderr}"
        return made.stdout

    def eunomia(self, *words: str) -> str:
        """Run Eunomia's command there."""
        return self.run(sys.executable, "-m", "eunomia.cli", *words)

    def start(self, *words: str, log: IO[bytes], **more: Any) -> "subprocess.Popen[bytes]":
        """Start a program there; ``ip`` becomes that program, so the process is its own."""
        return subprocess.Popen(self.command(*words), stdout=log, stderr=log, **more)


class Cable:
    """The connection of two machines."""

    def __init__(self, one: Machine, other: Machine) -> None:
        self._ends = ((one, other), (other, one))
        self._is_cut = False

    def cut(self) -> None:
        """Lose all packets, in both directions, from now on."""
        self._is_cut = True
        for here, there in self._ends:
            words = ("lladdr", _NOWHERE, "nud", "permanent", "dev", here.device)
            _ip("-n", here.name, "neigh", "replace", there.address, *words)

    def mend(self) -> None:
        """Let packets pass again."""
        for here, there in self._ends if self._is_cut else ():
            _ip("-n", here.name, "neigh", "del", there.address, "dev", here.device)
        self._is_cut = False


@contextlib.contextmanager
def two_machines() -> Iterator[tuple[Machine, Machine, Cable]]:
    """Two machines and their cable; they are gone afterwards."""
    mark = f"{os.getpid()}-{next(_NUMBERS)}"
    one = Machine(f"eun-{mark}-a", "10.213.0.1", "eun0")
    other = Machine(f"eun-{mark}-b", "10.213.0.2", "eun0")
    try:
        for machine in (one, other):
            _ip("netns", "add", machine.name)
            _ip("-n", machine.name, "link", "set", "lo", "up")
        _ip("-n", one.name, "link", "add", "eun0", "type", "veth", "peer", "name", "eun0", "netns", other.name)
        for machine in (one, other):
            _ip("-n", machine.name, "addr", "add", f"{machine.address}/24", "dev", machine.device)
            _ip("-n", machine.name, "link", "set", machine.device, "up")
        yield one, other, Cable(one, other)
    finally:
        for machine in (one, other):
            subprocess.run(["ip", "netns", "del", machine.name], capture_output=True, check=False)


def _ip(*words: str) -> None:
    made = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    assert made.returncode == 0, f"ip {' '.join(words)}: {made.stderr}"
