"""Partitions between an arbiter, two nodes and a node's storage, while two searches run over both nodes.

Each search has its app master on another node and workers on both, so in each scene one has its master on the cut-off
side, and one has not. Afterwards a log of writes by fence shows that no writer changed another's file, and that each
job went on from the newest writer's state; records of containers and the journal show that no slot was given twice.
"""

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.appmaster import serving_lab, written
from tests.appmaster.cluster_lab import HAS_BINDFS, Cluster, Node, cluster, wait
from tests.appmaster.namespaces_lab import needs_namespaces

from eunomia.journal.journal import read_journal
from eunomia_appmaster.journal_check import check_folder

_floors = serving_lab.floors
pytestmark = [needs_namespaces, pytest.mark.slow, pytest.mark.timeout(1200)]
LEASE_SECONDS = 10.0
END_SECONDS = 600.0
STEPS = 5000
EVERY = 40
"""Steps between two checkpoints of a job."""
DIGITS = Path(__file__).with_name("training_digits.py")
GANG_EPOCHS = 40
needs_bindfs = pytest.mark.skipif(not HAS_BINDFS, reason="stopped storage needs bindfs")


class Scene:
    """The cluster, of which node ``one`` is going to be cut off."""

    def __init__(self, made: Cluster) -> None:
        self.cluster = made
        self.one: Node
        self.two: Node

    def begin(self, *, lease: float = LEASE_SECONDS, mounts: bool = False) -> None:
        """Start all, until the searches run on both nodes with a master on each."""
        self.cluster.start_arbiter("--node-lease", f"{lease}s", "--set", "rounds.lease=15s")
        self.one = self.cluster.join("one", mounts=mounts)
        self.two = self.cluster.join("two", mounts=mounts)
        for name in ("ana", "ben"):
            self.cluster.submit_search(name, iterations=STEPS, every=EVERY)
        wait(lambda: len(self.workers("ana")) == 2, "ana runs on both nodes")
        masters = [self.apps_of(node.running(masters=True)) for node in (self.one, self.two)]
        assert masters == [{"ana"}, {"ben"}], "each has its master on a node of its own"
        wait(lambda: list(self.cluster.state.glob("apps/ana/*/checkpoints/*/*.json")), "it has saved")

    def workers(self, app: str) -> list[str]:
        """The nodes on which workers of an app run."""
        return [node.name for node in (self.one, self.two) if app in self.apps_of(node.running())]

    @staticmethod
    def apps_of(containers: dict[str, int]) -> set[str]:
        return {name.removeprefix("appmaster:").replace(":", ".").split(".")[0] for name in containers}

    def befall(self, what: str) -> None:
        """Let the launcher of the cut-off node be killed or stopped."""
        assert self.one.launcher is not None
        if what == "killed":
            self.one.launcher.kill()
        elif what == "stopped":
            self.one.launcher.send_signal(signal.SIGSTOP)

    def recover(self) -> None:
        """Let all be reached again; a launcher that was killed is started again, as by a service manager."""
        self.cluster.net.mend()
        if self.one.storage is not None:
            self.one.storage.send_signal(signal.SIGCONT)
        assert self.one.launcher is not None
        if self.one.launcher.poll() is not None:
            self.cluster.start_launcher(self.one)
        else:
            self.one.launcher.send_signal(signal.SIGCONT)

    def ends(self) -> None:
        """Wait until both searches have finished."""
        wait(lambda: self.cluster.states() == {"one": "up", "two": "up"}, "both nodes are up")
        self.cluster.hurry()
        states = {"ana": "finished", "ben": "finished"}
        wait(lambda: self.cluster.app_states() == states, "both finish", END_SECONDS)

    def check(self, *, moved: bool = True, jobs: bool = True) -> None:
        """Judge what was written, where workers lived, and the journal.

        Args:
            moved: whether jobs must have gone on elsewhere from a checkpoint.
            jobs: whether no job may have had two incarnations at once.
        """
        made = written.changes(self.cluster.recorder / "log")
        links = [one for one in made if one.what == "os.link" and "/checkpoints/" in one.paths[-1]]
        assert links or not moved, "a job went on elsewhere"
        assert written.breaches(made) == []
        apps = self.cluster.state / "apps"
        assert written.overlaps(apps, made, jobs=jobs) == []
        self.cluster.close()
        assert [str(finding) for finding in check_folder(self.cluster.state, over=True).findings] == []


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with cluster(tmp_path, nodes=2) as made:
        yield Scene(made)


def both_ways(scene: Scene) -> None:
    scene.cluster.cable(scene.one).cut()


def nothing_from_the_node(scene: Scene) -> None:
    scene.cluster.cable(scene.one).lose(scene.one.machine)


def nothing_to_the_node(scene: Scene) -> None:
    scene.cluster.cable(scene.one).lose(scene.cluster.head)


def from_all(scene: Scene) -> None:
    scene.cluster.cable(scene.one).cut()
    scene.cluster.cable(scene.one, scene.two).cut()


def between_nodes(scene: Scene) -> None:
    scene.cluster.cable(scene.one, scene.two).cut()


def is_doomed(pid: int) -> bool:
    """Whether a process sleeps in a call of its storage that no signal ends, and will be killed when it returns."""
    try:
        status = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return True
    pending = [int(line.split()[1], 16) for line in status if line.startswith(("SigPnd", "ShdPnd"))]
    return any(signals >> (signal.SIGKILL - 1) & 1 for signals in pending)


BEFALLS = ("nothing", "killed", "stopped")
FROM_THE_ARBITER = (both_ways, nothing_from_the_node, nothing_to_the_node, from_all)


def cut_off(scene: Scene, cut: Callable[[Scene], None], befalls: str, seconds: float) -> None:
    """Cut a node off from the arbiter for more than a lease; its work, and its app master, go on elsewhere."""
    cut(scene)
    begun = time.monotonic()
    scene.befall(befalls)
    wait(lambda: "appmaster:ana:2" in scene.two.running(masters=True), "ana's master moved")
    assert scene.cluster.states()["one"] == "down"
    time.sleep(max(0.0, begun + seconds - time.monotonic()))
    awake = {name: pid for name, pid in scene.one.running().items() if not is_doomed(pid)}
    assert awake == {}, "nothing runs on the cut-off side"
    scene.recover()
    scene.ends()
    scene.check(jobs=scene.one.storage is None)


@pytest.mark.parametrize("befalls", BEFALLS)
@pytest.mark.parametrize("cut", FROM_THE_ARBITER)
def test_two_searches_finish_although_a_node_loses_the_arbiter_for_three_leases(
    scene: Scene, cut: Callable[[Scene], None], befalls: str
) -> None:
    scene.begin()
    cut_off(scene, cut, befalls, 3.0 * LEASE_SECONDS)


@pytest.mark.parametrize("befalls", BEFALLS)
def test_two_searches_finish_although_an_app_master_and_a_node_lose_contact(scene: Scene, befalls: str) -> None:
    scene.begin()
    between_nodes(scene)
    scene.befall(befalls)
    time.sleep(3.0 * LEASE_SECONDS)
    scene.recover()
    scene.ends()
    scene.check(moved=befalls != "nothing")


def stop_storage(scene: Scene) -> None:
    assert scene.one.storage is not None
    scene.one.storage.send_signal(signal.SIGSTOP)


def stop_storage_within_a_save(scene: Scene) -> None:
    """Stop it when a worker of the node has renamed the data of a checkpoint, and is about to rename its record."""
    recorder = scene.cluster.recorder
    (recorder / "hold").write_text("one")
    wait((recorder / "held").exists, "a worker saves")
    stop_storage(scene)
    (recorder / "go").touch()


@needs_bindfs
@pytest.mark.parametrize("befalls", BEFALLS)
@pytest.mark.parametrize("cut", [stop_storage, stop_storage_within_a_save])
def test_two_searches_finish_although_the_storage_of_a_node_hangs_for_three_leases(
    scene: Scene, cut: Callable[[Scene], None], befalls: str
) -> None:
    scene.begin(mounts=True)
    cut_off(scene, cut, befalls, 3.0 * LEASE_SECONDS)


@pytest.mark.parametrize("cut", [both_ways, between_nodes, pytest.param(stop_storage, marks=needs_bindfs)])
def test_a_partition_of_ninety_seconds_moves_nothing_with_the_default_lease(
    scene: Scene, cut: Callable[[Scene], None]
) -> None:
    """The node's work is ordered to leave 72 s after the last answer, and the node is lost 95 s after it, if ever."""
    scene.begin(lease=90.0, mounts=cut is stop_storage)
    cut(scene)
    time.sleep(90.0)
    scene.recover()
    scene.ends()
    scene.check(moved=False, jobs=cut is not stop_storage)


@pytest.mark.parametrize("befalls", BEFALLS)
def test_two_searches_finish_although_a_node_loses_the_arbiter_for_three_default_leases(
    scene: Scene, befalls: str
) -> None:
    scene.begin(lease=90.0)
    cut_off(scene, both_ways, befalls, 270.0)


def test_the_history_shows_when_workers_ended_while_no_arbiter_ran(scene: Scene) -> None:
    scene.begin()
    made, (arbiter,) = scene.cluster, scene.cluster.arbiters()
    assert made.serve is not None
    made.serve.send_signal(signal.SIGSTOP)  # it would start another
    away = time.time()
    os.kill(arbiter, signal.SIGKILL)
    wait(lambda: not scene.one.running() and not scene.two.running(), "the leases of both nodes have ended")
    ended = time.time()
    time.sleep(2.0 * LEASE_SECONDS)
    back = time.time()
    made.serve.send_signal(signal.SIGCONT)
    wait(lambda: len(scene.workers("ana")) == 2, "they start again")
    scene.ends()
    with read_journal(made.state / "journal.sqlite") as journal:
        first = next(iter(journal.steps()))
    zero = first.at - float(first.now)
    said = [line for app in ("ana", "ben") for line in made.eunomia("explain", app, "--history", "--json").splitlines()]
    gaps = [spell for spell in map(json.loads, said) if spell["state"] == "interrupted"]
    long = [gap for gap in gaps if gap["end_seconds"] - gap["start_seconds"] > LEASE_SECONDS]
    assert long, said
    for gap in long:
        assert away - zero - 1.0 <= gap["start_seconds"] <= ended - zero + 1.0, gap
        assert gap["end_seconds"] >= back - zero - 1.0, gap
        assert "lease" in gap["text"], gap
    scene.check(moved=False)


GANG = """
[app]
name = "wide"
[job]
command = "{python} train.py --epochs {epochs} --final wide.pt"
slots = 2
checkpoint_every = "2s"
retries = 3
"""


@pytest.fixture
def gang(scene: Scene) -> Scene:
    """Two nodes of one slot, and an app whose only job is a gang over both; it is not submitted yet."""
    made = scene.cluster
    made.start_arbiter("--node-lease", f"{LEASE_SECONDS}s")
    scene.one, scene.two = made.join("one", slots=1), made.join("two", slots=1)
    shutil.copy(DIGITS, made.folder / "train.py")
    (made.folder / "wide.toml").write_text(GANG.format(python=sys.executable, epochs=GANG_EPOCHS))
    return scene


@pytest.mark.parametrize("befalls", BEFALLS)
@pytest.mark.parametrize("trains", [False, True], ids=["before-it-forms", "while-it-trains"])
def test_a_gang_finishes_although_its_two_nodes_cannot_reach_each_other_for_a_while(
    gang: Scene, trains: bool, befalls: str
) -> None:
    made = gang.cluster
    if not trains:
        between_nodes(gang)
    made.eunomia("submit", str(made.folder / "wide.toml"))
    if trains:
        wait(lambda: list(made.state.glob("apps/wide/1/checkpoints/*/*.json")), "the gang has saved")
        between_nodes(gang)
    gang.befall(befalls)
    time.sleep(45.0)  # a gang that makes no step is ended as hung after 30 s
    gang.recover()
    wait(lambda: made.app_states() == {"wide": "finished"}, "it finishes", END_SECONDS)
    gang.check(moved=False)
