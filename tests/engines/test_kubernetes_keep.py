"""The keeper on Kubernetes: random histories over HTTP with the real client, watches that wake it, and bad input."""

import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from tests.engines.engine_world import Truth, World, WorldArbiter, WorldPilots
from tests.engines.fake_kube_api import FakeKube, KubeServer, Object, chosen, kube_server
from tests.engines.kube_lab import WITHOUT_CLIENT, client_of, engine_of, request_of
from tests.engines.test_keeper import TIMES, disturb, history_is_wrong, look

from eunomia import extras
from eunomia.cli import run
from eunomia.errors import InputError
from eunomia_appmaster.node.engine_note import check_no_engine, read_note
from eunomia_engines.engine import EngineNode, NodeState
from eunomia_engines.keeper.demand import Demand
from eunomia_engines.keeper.keeper import Keeper
from eunomia_engines.keeper.plan import Life, Member
from eunomia_engines.kubernetes import engine as engine_module
from eunomia_engines.kubernetes import keep as keep_module
from eunomia_engines.kubernetes import watching
from eunomia_engines.kubernetes.api import KubeApi
from eunomia_engines.kubernetes.engine import KubernetesKind
from eunomia_engines.kubernetes.keep import JobPilots, keep, note_asked, only_one
from eunomia_engines.kubernetes.keep_request import FOLDER
from eunomia_engines.kubernetes.watching import Alarm
from eunomia_engines.pilots.records import PILOTS, Pilot, pilots, write_pilot
from eunomia_engines.testing.fake import FakeCluster, FakeEngine

pytest.importorskip("kubernetes", reason=WITHOUT_CLIENT)
LOOKS = 10
FAULTS = ("cut", "lose", "late", "busy", "broken", "conflict", "text")


class KubeWorld(FakeKube):
    """An API server that lists what a world says of its nodes, and makes and ends nodes there."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world

    def create(self, namespace: str, body: Object) -> Object:
        job = super().create(namespace, body)
        uid = job["metadata"]["uid"]
        self.world.nodes[uid] = self.world.new_node(uid, "")
        return job

    def delete(self, job: Object, body: Object) -> Object:
        done = super().delete(job, body)
        if (node := self.world.nodes.get(job["metadata"]["uid"])) is not None:
            self.world.give_back(node)
        else:
            self.world.wrong.append(f"{job['metadata']['name']} is deleted, which is no keeper's")
        return done

    def listed(self, namespace: str, kind: str, query: Mapping[str, str]) -> Object:
        lines = [line for node in self.world.truths for line in self.lines(node, kind)]
        own = [job for job in self.objects[kind].values() if job["metadata"]["uid"] not in self.world.nodes]
        items = [item for item in (*lines, *own) if chosen(item, namespace, query)]
        return {"metadata": {"resourceVersion": str(self.version)}, "items": items}

    def lines(self, node: Truth, kind: str) -> list[Object]:
        """What is said of a node, as Jobs or as pods."""
        job = self.job(node.id)
        meta = {key: job["metadata"][key] for key in ("name", "uid", "namespace", "labels")}
        meta["creationTimestamp"] = at(node.asked_at)
        found: list[Object] = []
        for said in node.said:
            over = [{"type": "Complete", "status": "True"}] if said is NodeState.ENDED else []
            if kind == "jobs":
                spec = {"activeDeadlineSeconds": int(self.world.length)}
                ends = {"deletionTimestamp": at(self.world.now)} if said is NodeState.ENDS else {}
                found.append({"metadata": {**meta, **ends}, "spec": spec, "status": {"conditions": over}})
            elif said in (NodeState.RUNS, NodeState.ENDS, NodeState.UNKNOWN):
                owner = {"kind": "Job", "name": meta["name"], "uid": node.id}
                ends = {"deletionTimestamp": at(self.world.now)} if said is NodeState.ENDS else {}
                own = {"name": f"{meta['name']}-0-x", "labels": meta["labels"], "ownerReferences": [owner], **ends}
                phase = "Unknown" if said is NodeState.UNKNOWN else "Running"
                status = {"phase": phase, "startTime": at(node.began_at)}
                found.append({"metadata": own, "spec": {"nodeName": node.host}, "status": status})
        return found


def at(seconds: float) -> str:
    return datetime.fromtimestamp(int(seconds), UTC).isoformat()


def count(world: World, most: int) -> None:
    """Note in the world that more nodes were asked for than are wanted and were lost.

    A Job and a pod that both say that the node is over do not contradict each other.
    """
    over = (NodeState.ENDS, NodeState.ENDED)
    world.lost |= {node.id for node in world.truths if all(said in over for said in node.said)}
    history_is_wrong(world, most)


def history(seed: int, folder: Path) -> list[str]:
    """What went wrong in a random history, in which the server is late, repeats, loses and contradicts itself."""
    chance = random.Random(seed)
    world = World(chance=chance, length=chance.choice([400.0, 1200.0, 3600.0]))
    kube = KubeWorld(world)
    other = {"metadata": {"name": "training", "namespace": "team", "labels": {}}, "spec": {}, "status": {}}
    kube.make("jobs", other)
    server = KubeServer(kube)
    least = chance.randint(1, 3)
    most = least + chance.randint(0, 2)
    request = request_of("search", least=least, most=most)

    def keeper() -> Keeper:
        engine = engine_of(server, folder, request)
        demand = Demand(least, most, 60.0)
        return Keeper(engine, WorldArbiter(world), WorldPilots(world), demand, TIMES, clock=lambda: world.now)

    kept = keeper()
    try:
        for _ in range(LOOKS):
            for node in world.truths:
                disturb(world, node)
            drawn = chance.choice([*[""] * 12, *FAULTS])
            kube.fault = lambda verb, path, drawn=drawn: drawn if chance.random() < 0.5 else ""  # type: ignore[misc]
            kube.refusal = chance.choice([None] * 9 + [(403, "Forbidden", "exceeded quota")])
            world.usable = chance.choice([0, 4, 12, 40])
            look(world, kept, chance.choice([5.0, 30.0, 300.0]))
            if chance.random() < 0.3:
                kube.arrive()
            if chance.random() < 0.1:
                server.stop()
                server.start(forgets=chance.random() < 0.5)
            if chance.random() < 0.1:
                kept = keeper()  # its process has ended, and begins again with the same state folder
            count(world, most)
        kube.arrive()
        count(world, most)
    finally:
        server.stop()
    return [f"history {seed}: {wrong}" for wrong in world.wrong]


@pytest.mark.parametrize("histories", [12, pytest.param(3000, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])])
def test_no_node_is_asked_for_twice_or_freed_while_it_lives_in_random_histories(histories: int, tmp_path: Path) -> None:
    with capture_logs():
        wrong = [each for seed in range(histories) for each in history(seed, tmp_path / str(seed))]
    assert wrong == []


# --- watches


@pytest.fixture
def server() -> Iterator[KubeServer]:
    with kube_server() as made:
        yield made


class Woken:
    """How often an alarm has ended a pause, counted by a thread that does nothing else."""

    def __init__(self, server: KubeServer) -> None:
        self.stopped, self.count = threading.Event(), 0
        api = KubeApi(client_of(server), "team", "search")
        self.alarm = Alarm(api, self.stopped)
        self.alarm.start()
        self._thread = threading.Thread(target=self._pause, daemon=True)
        self._thread.start()

    def _pause(self) -> None:
        while not self.stopped.is_set():
            self.alarm.pause(30.0)
            self.count += 1

    def once_more(self, change: Callable[[], object]) -> None:
        """Make a change, and wait until it has ended a pause."""
        before, deadline = self.count, time.monotonic() + 20.0
        change()
        while self.count == before:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def close(self) -> None:
        self.stopped.set()
        self._thread.join()


@pytest.fixture
def woken(server: KubeServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Woken]:
    monkeypatch.setattr(watching, "LEAST_SECONDS", 0.0)
    monkeypatch.setattr(watching, "FIRST_PAUSE_SECONDS", 0.05)
    made = Woken(server)
    yield made
    made.close()


def settled(server: KubeServer, woken: Woken) -> None:
    """Wait until Jobs and pods are watched, and nothing wakes the keeper."""
    deadline = time.monotonic() + 20.0
    while server.kube.watching < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(0.1)


def test_a_change_of_a_job_or_a_pod_ends_a_pause(server: KubeServer, woken: Woken) -> None:
    settled(server, woken)
    kube, labels = server.kube, dict(request_of("search").job["metadata"]["labels"])
    item = {"metadata": {"name": "j", "namespace": "team", "labels": labels}, "spec": {}, "status": {}}
    woken.once_more(lambda: kube.make("jobs", item))
    settled(server, woken)
    pod = {"metadata": {"name": "p", "namespace": "team", "labels": labels}, "spec": {}, "status": {}}
    woken.once_more(lambda: kube.make("pods", pod))
    settled(server, woken)
    count = woken.count
    kube.make("jobs", {"metadata": {"name": "o", "namespace": "team", "labels": {}}, "spec": {}, "status": {}})
    time.sleep(0.3)
    assert woken.count == count, "a Job of others"


@pytest.mark.parametrize("forgets", [False, True], ids=["from its version", "after 410"])
def test_a_watch_goes_on_after_the_server_starts_again(forgets: bool, server: KubeServer, woken: Woken) -> None:
    settled(server, woken)
    server.stop()
    server.start(forgets=forgets)
    settled(server, woken)
    labels = dict(request_of("search").job["metadata"]["labels"])
    item = {"metadata": {"name": "j", "namespace": "team", "labels": labels}, "spec": {}, "status": {}}
    woken.once_more(lambda: server.kube.make("jobs", item))


def test_a_watch_that_is_forbidden_is_tried_again_with_pauses_that_grow(
    server: KubeServer, woken: Woken, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled(server, woken)
    server.kube.fault = lambda verb, path: "broken" if verb == "WATCH" or path.endswith("/pods") else ""
    server.stop()
    server.start()
    calls = len(server.kube.calls)
    time.sleep(0.5)
    assert len(server.kube.calls) - calls < 30


# --- the keeper's process


def test_a_keeper_begins_with_its_rights_and_alone(server: KubeServer, tmp_path: Path) -> None:
    request, stopped = request_of("search"), threading.Event()
    server.kube.forbidden = {"create jobs", "list pods"}
    with pytest.raises(InputError, match=r"right to create jobs, list pods: the Role .*\(namespace team\)"):
        keep(request, tmp_path, tmp_path, stopped, client=lambda: client_of(server))
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"
    server.kube.forbidden = set()
    with only_one(tmp_path), pytest.raises(InputError, match="must have one keeper, but got another is at work"):
        keep(request, tmp_path, tmp_path, stopped, client=lambda: client_of(server))
    assert server.kube.created == []


def test_a_keeper_waits_for_its_arbiter_and_a_server_that_is_silent(
    server: KubeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keep_module, "ARBITER_SECONDS", 0.05)
    server.stop()
    stopped, request = threading.Event(), request_of("search")
    with capture_logs() as logs:
        thread = threading.Thread(
            target=keep, args=(request, tmp_path, tmp_path, stopped), kwargs={"client": lambda: client_of(server)}
        )
        thread.start()
        deadline = time.monotonic() + 20.0
        while len(logs) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
        stopped.set()
        thread.join(20.0)
    assert not thread.is_alive()
    assert {line["event"] for line in logs} == {"keeper.waits"} and server.kube.created == []


@pytest.mark.parametrize(
    ("lacking", "said"),
    [
        ("request", "the request for nodes must be one that `eunomia kubernetes manifest --nodes A..B` has made"),
        ("kubeconfig", "Kubernetes must be named by a kubeconfig (KUBECONFIG or ~/.kube/config)"),
    ],
)
def test_the_command_names_what_is_missing(
    lacking: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    file, state = tmp_path / "request.json", tmp_path / "state"
    if lacking != "request":
        file.write_text(request_of("search").text())
    code = run(["kubernetes", "keep", "--request", str(file), "--state-dir", str(state)])
    assert (code, state.exists()) == (2, False)
    assert said in " ".join(capsys.readouterr().err.split())


def test_a_record_is_dropped_once_neither_kubernetes_nor_the_arbiter_has_the_node(tmp_path: Path) -> None:
    cluster = FakeCluster()
    engine = FakeEngine(cluster)
    (tmp_path / PILOTS).mkdir()
    for job in ("n0", "n1", "n2"):
        write_pilot(tmp_path, Pilot(job=job, node=f"{job}-0", host="gpu-7", began_at=1.0))
    engine.ask(1)
    found = JobPilots(tmp_path, lambda: {"n1-0": Member(state="down")}).lives(engine)
    assert [(life.id, life.name) for life in found] == [("n0", "n0-0"), ("n1", "n1-0")]
    assert set(pilots(tmp_path)) == {"n0", "n1"}


def test_serve_may_serve_a_folder_with_a_keeper_beside_it(tmp_path: Path) -> None:
    waits = EngineNode(id="u", state=NodeState.ASKED, why="Unschedulable")
    note_asked(tmp_path, [Life(id="u", node=waits)], {"u": "search-a100-12"})
    note = read_note(tmp_path)
    assert note is not None
    assert note.lines == ["1 asked of kubernetes: job search-a100-12, pending: Unschedulable"]
    check_no_engine(tmp_path)


def test_a_request_is_kept_for_the_engine_of_a_later_process(tmp_path: Path) -> None:
    request_of("search").save(tmp_path)
    assert (tmp_path / FOLDER / "request.json").stat().st_mode & 0o077 == 0


def test_the_client_is_imported_only_where_it_is_used_and_its_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    modules = "sys, eunomia_engines.commands.kubernetes, eunomia_engines.kubernetes.keep"
    code = f"import {modules}; sys.exit('kubernetes' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
    monkeypatch.setattr(extras, "is_installed", lambda module: module != "kubernetes")
    monkeypatch.setattr(engine_module, "is_installed", lambda module: module != "kubernetes")
    (found,) = KubernetesKind().check()
    assert not found.is_good and found.text.endswith("pip install 'eunomia[kubernetes]'")
    file = tmp_path / "request.json"
    file.write_text(request_of("search").text())
    assert run(["kubernetes", "keep", "--request", str(file), "--state-dir", str(tmp_path / "state")]) == 2
    assert 'needs the extra "kubernetes": pip install' in capsys.readouterr().err
    assert not (tmp_path / "state").exists()
