"""Machines that are network namespaces of this one, of which each pair can be cut off from each other.

Each machine has a namespace of its own, and one more is the switch between them; the host's network has no part in it.
A cut is silent, as one of a real network is: a neighbour's hardware address is set to one that does not exist, so that
packets to it are sent and lost, in one direction or in both. Needs root and ``ip``.
"""

import contextlib
import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
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
        self.one, self.other = one, other
        self._lost: list[tuple[Machine, Machine]] = []

    def cut(self) -> None:
        """Lose all packets, in both directions, from now on."""
        self.lose(self.one)
        self.lose(self.other)

    def lose(self, here: Machine) -> None:
        """Lose the packets that one of the two sends to the other; those in the other direction pass."""
        there = self.other if here == self.one else self.one
        words = ("lladdr", _NOWHERE, "nud", "permanent", "dev", here.device)
        _ip("-n", here.name, "neigh", "replace", there.address, *words)
        self._lost.append((here, there))

    def mend(self) -> None:
        """Let packets pass again."""
        while self._lost:
            here, there = self._lost.pop()
            _ip("-n", here.name, "neigh", "del", there.address, "dev", here.device)


class Network:
    """Machines on one switch, and the cable of each pair of them."""

    def __init__(self, machines: Sequence[Machine]) -> None:
        self.machines = tuple(machines)
        self._cables = {frozenset(pair): Cable(*pair) for pair in itertools.combinations(machines, 2)}

    def between(self, one: Machine, other: Machine) -> Cable:
        """The connection of two machines, which no other machine has a part in."""
        return self._cables[frozenset((one, other))]

    def mend(self) -> None:
        """Let all packets pass again."""
        for cable in self._cables.values():
            cable.mend()


@contextlib.contextmanager
def network(count: int) -> Iterator[Network]:
    """Make machines on a switch, which is a namespace with a bridge; all are gone afterwards."""
    mark = f"{os.getpid()}-{next(_NUMBERS)}"
    switch = f"eun-{mark}-s"
    machines = [Machine(f"eun-{mark}-{number}", f"10.213.0.{number}", "eun0") for number in range(1, count + 1)]
    try:
        _ip("netns", "add", switch)
        _ip("-n", switch, "link", "add", "eunbr", "type", "bridge")
        _ip("-n", switch, "link", "set", "eunbr", "up")
        for number, machine in enumerate(machines):
            _ip("netns", "add", machine.name)
            _ip("-n", machine.name, "link", "set", "lo", "up")
            port = ("peer", "name", f"port{number}", "netns", switch)
            _ip("-n", machine.name, "link", "add", machine.device, "type", "veth", *port)
            _ip("-n", switch, "link", "set", f"port{number}", "master", "eunbr", "up")
            _ip("-n", machine.name, "addr", "add", f"{machine.address}/24", "dev", machine.device)
            _ip("-n", machine.name, "link", "set", machine.device, "up")
        yield Network(machines)
    finally:
        for name in (switch, *(machine.name for machine in machines)):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


@contextlib.contextmanager
def two_machines() -> Iterator[tuple[Machine, Machine, Cable]]:
    """Two machines and their cable; they are gone afterwards."""
    with network(2) as made:
        one, other = made.machines
        yield one, other, made.between(one, other)


def _ip(*words: str) -> None:
    made = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    assert made.returncode == 0, f"ip {' '.join(words)}: {made.stderr}"
