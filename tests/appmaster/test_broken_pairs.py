"""Two machines that do not reach each other, while both reach the arbiter: three machines in network namespaces."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.appmaster import serving_lab
from tests.appmaster.machines_lab import LiveMachines
from tests.appmaster.namespaces_lab import Network, needs_namespaces, network
from tests.appmaster.serving_lab import eventually, tiny_app
from tests.appmaster.test_gangs_over_nodes import wide_app

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


class Cluster(LiveMachines):
    """An arbiter without slots on the first machine, and a launcher on each machine that has slots."""

    def __init__(self, folder: Path, net: Network) -> None:
        super().__init__(folder, net.machines[0])
        self.machines = net.machines
        self.cable = net.between(*net.machines[1:])

    def start(self, *slots: int) -> None:
        """Start all; ``slots``: of each machine, 0 for no launcher."""
        self.serve("--no-launcher")
        self.take_token()
        for name, machine, many in zip(NAMES, self.machines, slots, strict=True):
            if many:  # one after the other, so that the numbers of GPUs follow the machines
                self.join(name, machine, many, "--announce", machine.address)

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


Started = Callable[..., Cluster]


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    """Starts a cluster with these slots."""
    with network(3) as net:
        made = Cluster(tmp_path, net)

        def start(*slots: int) -> Cluster:
            made.start(*slots)
            return made

        try:
            yield start
        finally:
            made.cable.mend()
            made.end()


def test_an_app_returns_its_slots_on_a_node_that_its_app_master_cannot_reach(started: Started) -> None:
    cluster = started(0, 2, 1)
    cluster.submit(tiny_app(cluster.folder, "ana", iterations=400, seconds=0.1, searches=True))
    eventually(lambda: cluster.workers("a01", "ana") == 2 and cluster.workers("c01", "ana") == 1, "it runs on both")
    cluster.cable.cut()
    ((node, other, why),) = eventually(lambda: cluster.left_out("ana"), "the pair is reported", LIMIT_SECONDS)
    assert (node, other) == ("c01", "a01")
    assert "a01 (its app master) cannot reach 10.213.0.3:" in why
    assert why.endswith("; tried again every 5 s")
    eventually(lambda: cluster.slots("ana") == ["a01", "a01"], "its slot there comes back, once", LIMIT_SECONDS)
    cluster.submit(tiny_app(cluster.folder, "ben", iterations=10, seconds=0.05))
    eventually(lambda: cluster.is_over("ben"), "another app has the slot", LIMIT_SECONDS)
    assert cluster.slots("ana") == ["a01", "a01"]
    cluster.cable.mend()
    eventually(lambda: not cluster.left_out("ana"), "the check passes", LIMIT_SECONDS)
    eventually(lambda: cluster.is_over("ana"), "all trials have ended", LIMIT_SECONDS)


def test_an_app_master_moves_to_the_node_with_most_of_its_slots(started: Started) -> None:
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


def test_a_gang_does_not_span_two_nodes_that_cannot_reach_each_other(started: Started) -> None:
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
    cluster.eunomia("cancel", "ben")
    eventually(lambda: cluster.is_over("wide"), "it has run over two that reach each other", LIMIT_SECONDS)
