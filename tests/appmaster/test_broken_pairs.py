"""Two machines that do not reach each other, while both reach the arbiter: three machines in network namespaces."""

import functools
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.appmaster import serving_lab
from tests.appmaster.namespaces_lab import Cable, Machine, needs_namespaces
from tests.appmaster.serving_lab import eventually, tiny_app
from tests.appmaster.test_gangs_over_nodes import wide_app
from tests.appmaster.three_machines_lab import three_machines

from eunomia_appmaster.service.certificates import make

_floors = serving_lab.floors
pytestmark = [needs_namespaces, pytest.mark.slow, pytest.mark.timeout(1200)]
LIMIT_SECONDS = 400.0
NAMES = ("b01", "a01", "c01")
SLOTS = """
import json, sys
from pathlib import Path
from eunomia_appmaster import Client
with Client(state_dir=Path(sys.argv[1])) as arbiter:
    print(json.dumps([(one.app, one.machine) for one in arbiter.list(slots=True).slots if one.app]))
"""


class Cluster:
    """An arbiter without slots on the first machine, and a launcher on each machine that has slots."""

    def __init__(self, folder: Path, machines: tuple[Machine, ...], cables: dict[frozenset[int], Cable]) -> None:
        self.folder, self.machines, self.head = folder, machines, machines[0]
        self.cable = cables[frozenset((1, 2))]
        self.state = folder / "state"
        self.address = f"{self.head.address}:7720"
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, *slots: int) -> None:
        """Start all; ``slots``: of each machine, 0 for no launcher."""
        tls = make(self.folder / "tls", [self.head.address])
        files = ("--tls-cert", str(tls.cert), "--tls-key", str(tls.key), "--tls-ca", str(tls.ca))
        self._begin("serve", self.head, "serve", "--address", self.address, "--no-launcher", *files)
        (self.folder / "join").write_text(eventually(self._token, "the arbiter answers"))
        (self.folder / "join").chmod(0o600)
        for name, machine, many in zip(NAMES, self.machines, slots, strict=True):
            words = ("--arbiter", self.address, "--join", str(self.folder / "join"), "--announce", machine.address)
            own = ("--node", name, "--node-dir", str(self.folder / name), "--slots", str(many), "--cpu-only")
            if many:  # one after the other, so that the numbers of GPUs follow the machines
                self._begin(name, machine, "launcher", *words, *own)
                eventually(functools.partial(self._has_joined, name), f"{name} joined")

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

    def asked(self, *words: str) -> dict[str, Any]:
        """The answer of a command on the arbiter's machine."""
        made: dict[str, Any] = json.loads(self.head.eunomia(*words, "--state-dir", str(self.state), "--json"))
        return made

    def nodes(self) -> dict[str, dict[str, Any]]:
        try:
            return {node["node"]: node for node in self.asked("nodes")["nodes"]}
        except AssertionError:  # it waits for its first machine
            return {}

    def _has_joined(self, name: str) -> bool:
        return name in self.nodes()

    def submit(self, file: Path) -> None:
        self.head.eunomia("submit", str(file), "--state-dir", str(self.state))

    def workers(self, node: str, app: str) -> int:
        """How many workers of an app run on a node, by its launcher's records."""
        found = 0
        for path in (self.folder / node / "live").glob(f"{app}.*/container.json"):
            record = json.loads(path.read_text())
            found += record["slot"] != -1 and record["state"] == "RUNNING"
        return found

    def left_out(self, app: str) -> list[tuple[str, str, str]]:
        """By node that an app does without: the other of the pair, and the reason."""
        found = {
            (one["app"], one["node"], one["other"], one["why"])
            for node in self.nodes().values()
            for one in node["left_out"]
        }
        return sorted((node, other, why) for name, node, other, why in found if name == app)

    def slots(self, app: str) -> list[str]:
        """The nodes of an app's slots."""
        made = self.head.run(sys.executable, "-c", SLOTS, str(self.state))
        return sorted(node for name, node in json.loads(made) if name == app)

    def is_over(self, app: str) -> bool:
        (found,) = (one for one in self.asked("apps", "--all")["apps"] if one["app"] == app)
        assert found["state"] != "failed", found
        return bool(found["state"] == "finished")

    def end(self) -> None:
        while self.processes:
            process = self.processes.pop()
            process.terminate()
            process.wait(90)


Started = Callable[..., Cluster]


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    """Starts a cluster with these slots."""
    with three_machines() as (machines, cables):
        made = Cluster(tmp_path, machines, cables)

        def start(*slots: int) -> Cluster:
            made.start(*slots)
            return made

        try:
            yield start
        finally:
            made.cable.mend()
            made.end()


def test_an_app_does_without_a_node_that_its_master_does_not_reach(started: Started) -> None:
    cluster = started(0, 2, 1)
    cluster.submit(tiny_app(cluster.folder, "ana", iterations=400, seconds=0.1, searches=True))
    eventually(lambda: cluster.workers("a01", "ana") == 2 and cluster.workers("c01", "ana") == 1, "it runs on both")
    cluster.cable.cut()
    ((node, other, why),) = eventually(lambda: cluster.left_out("ana"), "the pair is reported", LIMIT_SECONDS)
    assert (node, other) == ("c01", "a01")
    assert "a01 (its app master) cannot reach 10.214.0.3:" in why
    assert why.endswith("; tried again every 5 s")
    eventually(lambda: cluster.slots("ana") == ["a01", "a01"], "its slot there comes back, once", LIMIT_SECONDS)
    cluster.submit(tiny_app(cluster.folder, "ben", iterations=10, seconds=0.05))
    eventually(lambda: cluster.is_over("ben"), "another app has the slot", LIMIT_SECONDS)
    assert cluster.slots("ana") == ["a01", "a01"]
    cluster.cable.mend()
    eventually(lambda: not cluster.left_out("ana"), "the check passes", LIMIT_SECONDS)
    eventually(lambda: cluster.is_over("ana"), "all trials have ended", LIMIT_SECONDS)


def test_a_master_moves_to_where_its_slots_are(started: Started) -> None:
    cluster = started(0, 1, 3)
    cluster.submit(tiny_app(cluster.folder, "ana", iterations=600, seconds=0.1, searches=True))
    eventually(lambda: cluster.workers("a01", "ana") == 1 and cluster.workers("c01", "ana") == 3, "it runs on both")
    cluster.cable.cut()

    def moved() -> bool:
        return [node for node, _, _ in cluster.left_out("ana")] == ["a01"]

    eventually(moved, "its master on c01 does not reach a01", LIMIT_SECONDS)
    assert [app["attempt"] for app in cluster.asked("apps")["apps"]] == [2]
    cluster.cable.mend()
    eventually(lambda: not cluster.left_out("ana"), "the check passes", LIMIT_SECONDS)
    eventually(lambda: cluster.is_over("ana"), "all trials have ended", LIMIT_SECONDS)


def test_a_gang_forms_elsewhere_than_over_two_nodes_that_are_apart(started: Started) -> None:
    cluster = started(1, 1, 1)
    cluster.submit(tiny_app(cluster.folder, "ben", iterations=100_000, seconds=0.05))
    eventually(lambda: cluster.slots("ben"), "it runs")
    assert cluster.slots("ben") == ["b01"], "so that the gang needs the two others, and its master is on the first"
    cluster.cable.cut()
    cluster.submit(wide_app(cluster.folder, "wide", iterations=60))
    ((node, other, why),) = eventually(lambda: cluster.left_out("wide"), "the pair is reported", LIMIT_SECONDS)
    assert {node, other} == {"a01", "c01"}
    assert "no gang forms over" in why
    assert why.endswith("; tried again every 30 s")
    cluster.head.eunomia("cancel", "ben", "--state-dir", str(cluster.state))
    eventually(lambda: cluster.is_over("wide"), "it has run over two that reach each other", LIMIT_SECONDS)
