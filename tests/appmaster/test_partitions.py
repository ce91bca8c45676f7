"""A node whose network is cut: its work has ended before it starts elsewhere; a short cut costs nothing."""

import contextlib
import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.appmaster import serving_lab
from tests.appmaster.machines_lab import LiveMachines
from tests.appmaster.namespaces_lab import Cable, Machine, needs_namespaces, two_machines
from tests.appmaster.serving_lab import eventually, tiny_app

_floors = serving_lab.floors
pytestmark = [needs_namespaces, pytest.mark.slow]
LEASE_SECONDS = 8.0
NODE = "b08"


class Cluster(LiveMachines):
    """An arbiter with a slot of its own, and a node with another behind a cable."""

    launcher: "subprocess.Popen[bytes]"

    def __init__(self, folder: Path, head: Machine, node: Machine, cable: Cable) -> None:
        super().__init__(folder, head)
        self.node, self.cable = node, cable

    def start(self, *options: str) -> None:
        """Start both, with ``options`` for the node's launcher."""
        self.serve("--slots", "1", "--cpu-only", "--node-lease", f"{LEASE_SECONDS}s")
        self.take_token()
        self.launcher = self.join(NODE, self.node, 1, *options)

    def submit_two(self, more: str = "") -> tuple[str, str]:
        """Submit two apps of one long job each; returns the one that runs on the node, then the other."""
        for name in ("ana", "ben"):
            self.submit(tiny_app(self.folder, name, iterations=100_000, seconds=0.02, more=more))
        eventually(lambda: self.workers(self.folder / NODE) and self.workers(self.state / "launcher"), "both run")
        ((identity, _),) = self.workers(self.folder / NODE).items()
        there = identity.split(".")[0]
        eventually(lambda: self.steps(there), "steps")
        return there, "ben" if there == "ana" else "ana"

    def steps(self, app: str) -> int:
        """What the workers of an app have logged, in bytes."""
        return sum(file.stat().st_size for file in (self.state / "apps" / app).glob("*/logs/events*"))

    def records(self, folder: Path, app: str = "") -> list[dict[str, Any]]:
        """The records of workers that a launcher with its own files in a folder remembers, of one app or all."""
        found = []
        for path in (folder / "live").glob(f"{app}*/container.json"):
            with contextlib.suppress(OSError, ValueError):
                found.append(json.loads(path.read_text()) | {"folder": str(path.parent.resolve())})
        return [record for record in found if record["slot"] != -1]

    def workers(self, folder: Path) -> dict[str, int]:
        """Pids of the workers that run by a launcher's records, by container."""
        records = self.records(folder)
        return {one["container_id"]: one["pid"] for one in records if one["state"] != "COMPLETED" and one["pid"]}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with two_machines() as (head, node, cable):
        made = Cluster(tmp_path, head, node, cable)
        try:
            yield made
        finally:
            cable.mend()
            made.end()


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def ended_at(record: dict[str, Any]) -> dict[str, Any]:
    """The shepherd's report on a worker."""
    made: dict[str, Any] = json.loads((Path(record["folder"]) / "exit.json").read_text())
    return made


def start_elsewhere(cluster: Cluster, app: str) -> dict[str, Any]:
    """Wait until a job of an app runs on the head; returns its record."""
    return eventually(
        lambda: next(
            (one for one in cluster.records(cluster.state / "launcher", f"{app}.") if one["pid"] is not None), None
        ),
        "it runs on the head",
    )


def nothing(_: Cluster) -> None:
    """The launcher runs on."""


def kill(cluster: Cluster) -> None:
    cluster.launcher.kill()


def stop(cluster: Cluster) -> None:
    cluster.launcher.send_signal(signal.SIGSTOP)


@pytest.mark.parametrize("befalls", [nothing, kill, stop])
def test_jobs_on_a_partitioned_node_end_before_they_start_elsewhere(
    cluster: Cluster, befalls: Callable[[Cluster], None]
) -> None:
    cluster.start()
    there, here = cluster.submit_two(" --plain" if befalls is kill else "")  # else it ends with its launcher's socket
    ((identity, pid),) = cluster.workers(cluster.folder / NODE).items()
    cluster.eunomia("cancel", here)  # the head's slot is free: only the lease keeps the job from starting there
    assert is_alive(pid)
    cluster.cable.cut()
    befalls(cluster)
    again = start_elsewhere(cluster, there)
    assert not is_alive(pid)
    (record,) = (one for one in cluster.records(cluster.folder / NODE) if one["container_id"] == identity)
    exit_ = ended_at(record)
    assert exit_["ended_at"] < again["status"]["started_at"]
    assert "signal" not in exit_, "it left in its grace"
    cluster.cable.mend()
    if befalls is not kill:
        cluster.launcher.send_signal(signal.SIGCONT)
        eventually(lambda: cluster.nodes()[NODE]["state"] == "up", "the node is back")
        assert is_alive(again["pid"])


def test_a_partition_shorter_than_the_lease_stops_no_worker(cluster: Cluster) -> None:
    cluster.start()
    cluster.submit_two()
    before = cluster.workers(cluster.folder / NODE)
    cluster.cable.cut()
    time.sleep(LEASE_SECONDS / 3.0)
    cluster.cable.mend()
    time.sleep(2.0 * LEASE_SECONDS)
    assert cluster.nodes()[NODE]["state"] == "up"
    assert cluster.workers(cluster.folder / NODE) == before
    assert all(is_alive(pid) for pid in before.values())


def test_workers_that_continue_alone_are_killed_once_their_node_is_back(cluster: Cluster) -> None:
    cluster.start("--when-alone", "go-on")
    there, here = cluster.submit_two()
    ((_, pid),) = cluster.workers(cluster.folder / NODE).items()
    cluster.eunomia("cancel", here)
    cluster.cable.cut()
    again = start_elsewhere(cluster, there)
    assert is_alive(pid), "it goes on when the lease has ended"
    cluster.cable.mend()
    eventually(lambda: cluster.nodes()[NODE]["state"] == "up", "the node is back")
    assert not is_alive(pid)
    assert is_alive(again["pid"])


def test_an_arbiter_that_shuts_down_grants_a_longer_lease_first(cluster: Cluster) -> None:
    cluster.start()
    cluster.submit_two()
    before = cluster.workers(cluster.folder / NODE)
    (serve, _) = cluster.processes
    serve.terminate()
    serve.wait(60)
    time.sleep(2.0 * LEASE_SECONDS)
    assert all(is_alive(pid) for pid in before.values())
