"""Three machines that are network namespaces, on one switch: each two of them have a cable that can be cut alone."""

import contextlib
import itertools
import os
import subprocess
from collections.abc import Iterator

from tests.appmaster.namespaces_lab import Cable, Machine, _ip

_NUMBERS = itertools.count()


@contextlib.contextmanager
def three_machines() -> Iterator[tuple[tuple[Machine, Machine, Machine], dict[frozenset[int], Cable]]]:
    """Three machines and, by two of their numbers, the cables between them; they are gone afterwards.

    The switch is a bridge in a fourth namespace, so a cut between two machines leaves the third's connections alone.
    """
    mark = f"{os.getpid()}-{next(_NUMBERS)}"
    switch = f"eun-{mark}-s"
    machines = tuple(Machine(f"eun-{mark}-{place}", f"10.214.0.{place + 1}", "eun0") for place in range(3))
    try:
        _ip("netns", "add", switch)
        _ip("-n", switch, "link", "add", "br0", "type", "bridge")
        _ip("-n", switch, "link", "set", "br0", "up")
        for number, machine in enumerate(machines):
            _ip("netns", "add", machine.name)
            _ip("-n", machine.name, "link", "set", "lo", "up")
            words = ("link", "add", "eun0", "type", "veth", "peer", "name", f"port{number}", "netns", switch)
            _ip("-n", machine.name, *words)
            _ip("-n", switch, "link", "set", f"port{number}", "master", "br0", "up")
            _ip("-n", machine.name, "addr", "add", f"{machine.address}/24", "dev", "eun0")
            _ip("-n", machine.name, "link", "set", "eun0", "up")
        one, two, three = machines
        cables = {
            frozenset((here, there)): Cable(machines[here], machines[there])
            for here, there in itertools.combinations(range(3), 2)
        }
        yield (one, two, three), cables
    finally:
        for name in (*(machine.name for machine in machines), switch):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
