"""The launcher of a node of Ray without Ray: watched by one actor after another, and never started twice."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.engines.fake_ray import FakeRay, ray_node
from tests.engines.ray_lab import WAITING

from eunomia_engines.engine import EngineNode, NodeState
from eunomia_engines.head.arbiter import RecordedPilots
from eunomia_engines.pilots.names import private_folder
from eunomia_engines.pilots.records import PILOTS, Pilot, end_of, pilots, write_end, write_pilot
from eunomia_engines.ray import pilot
from eunomia_engines.ray.actor import LauncherWatch, launcher_env
from eunomia_engines.ray.engine import RayEngine
from eunomia_engines.ray.launchers import NodeRecord, is_held, living, read_record, record_path
from eunomia_engines.ray.request import FOLDER, RayRequest, namespace_of
from eunomia_engines.requests import mark_of


class Node:
    """A node with a script in the place of its launcher.

    Args:
        folder: new.
    """

    def __init__(self, folder: Path) -> None:
        self.state, self.pids = folder / "state", folder / "state" / "pids"
        for name in (PILOTS, "logs"):
            (self.state / FOLDER / name).mkdir(parents=True)
        script = folder / "launcher.sh"
        script.write_text(WAITING, encoding="utf-8")
        script.chmod(0o700)
        RayRequest(address="head:6379", python=str(script), node_dir=folder).save(self.state)
        self.base = private_folder(folder, mark_of(self.state))

    def watch(self, actor: str) -> LauncherWatch:
        """An actor's process."""
        return LauncherWatch(self.state, "gpu1", actor, os.environ)

    def record(self) -> NodeRecord:
        """Who runs the launcher."""
        found = read_record(self.base, "gpu1")
        assert found is not None
        return found

    def started(self) -> list[int]:
        """The pids of all launchers that ever began."""
        return [int(pid) for pid in self.pids.read_text().split()] if self.pids.exists() else []

    def until(self, done: Callable[[], bool], *watches: LauncherWatch) -> None:
        """Let actors look until something is true."""
        deadline = time.monotonic() + 60.0
        while not done():
            assert time.monotonic() < deadline
            for watch in watches:
                watch.look()
            time.sleep(0.05)

    def end(self) -> None:
        """Kill what is left."""
        for process in living(read_record(self.base, "gpu1")):
            process.signal(signal.SIGKILL)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    yield made
    made.end()


def test_actors_find_the_launcher_that_lives_and_its_end_is_noted_for_each(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eunomia_engines.ray.actor.AGAIN_SECONDS", 0.0)  # the lock alone keeps a second one away
    first = node.watch("a1")
    node.until(lambda: len(node.started()) == 1, first)
    again, later = node.watch("a1"), node.watch("a2")  # started again by Ray; of another raylet on the host
    node.until(lambda: node.record().actors == ("a1", "a2"), again, later)
    assert {actor: pilot.node for actor, pilot in pilots(node.state / FOLDER).items()} == {"a1": "gpu1", "a2": "gpu1"}
    assert len(node.started()) == 1

    node.record().pilot.signal(signal.SIGKILL)  # the launcher lives on, and holds the name
    node.until(lambda: not node.record().pilot.alive)
    for _ in range(3):
        assert not later.look()
    assert len(node.started()) == 1 and is_held(node.base, "gpu1")

    (launcher,) = living(node.record())
    launcher.signal(signal.SIGKILL)
    node.until(lambda: len(node.started()) == 2 and node.record().pilot.alive, later)

    later.ends = True
    node.until(lambda: later.look(), later)
    assert end_of(node.state / FOLDER, "a2") == 0
    assert not node.base.exists() and len(node.started()) == 2


class Launcher:
    """A launcher's process in the pilot's own process.

    Args:
        code: exit code with which it ends at once; None: it ends once it is terminated.
        ends_with: exit code of that end.
    """

    pid = os.getpid()

    def __init__(self, code: int | None, ends_with: int = 0) -> None:
        self.code, self.ends_with = code, ends_with
        self.began = time.monotonic()
        self.lived: float | None = None
        """Seconds until it was terminated."""

    def wait(self, timeout: float) -> int:
        time.sleep(0.01)
        if self.code is None:
            raise subprocess.TimeoutExpired("launcher", timeout)
        return self.code

    def terminate(self) -> None:
        if self.code is None:
            self.code, self.lived = self.ends_with, time.monotonic() - self.began


class OrderedPilot(pilot.Pilot):
    """A pilot that gets an order to end as soon as it has its nth launcher."""

    launchers = 0
    nth = 1

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        if name == "_child" and value is not None:
            self.launchers += 1
            if self.launchers == self.nth:
                os.kill(os.getpid(), signal.SIGTERM)

    def _write(self, launcher: int | None) -> None:
        super()._write(launcher)
        time.sleep(0.02)


@pytest.fixture
def handlers(node: Node, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Short times; afterwards the handlers of before, and no record that names this process."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGALRM)
    before = [signal.getsignal(number) for number in numbers]
    monkeypatch.setattr(pilot, "READY_SECONDS", 0.2)
    monkeypatch.setattr(pilot, "PAUSE_SECONDS", 0.3)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    record_path(node.base, "gpu1").unlink(missing_ok=True)
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
def test_an_order_in_the_moment_of_a_launchers_restart_waits_until_the_launcher_handles_signals(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Launcher] = []

    def start(*_: object, **__: object) -> Launcher:
        made.append(Launcher(None if made else 1))
        return made[-1]

    monkeypatch.setattr(subprocess, "Popen", start)
    ordered = OrderedPilot(node.state, "gpu1", "a1", os.environ)
    ordered.nth = 2
    assert ordered.run() == 0
    (_, second) = made
    assert second.lived is not None and second.lived >= 0.19


@pytest.mark.usefixtures("handlers")
def test_a_launcher_that_an_order_kills_before_it_handles_signals_is_started_again_to_end_the_rest(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Launcher] = []

    def start(*_: object, **__: object) -> Launcher:
        made.append(Launcher(None, ends_with=0 if made else -signal.SIGTERM))
        return made[-1]

    monkeypatch.setattr(subprocess, "Popen", start)
    assert OrderedPilot(node.state, "gpu1", "a1", os.environ).run() == 0
    assert [one.ends_with for one in made] == [-signal.SIGTERM, 0]


def test_a_launcher_has_the_environment_of_its_actor_without_what_ray_has_set() -> None:
    env = {"RAY_JOB_ID": "1", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "0,1", "PATH": "/bin"}
    plain = RayRequest(address="head:6379")
    assert launcher_env(env, plain) == {"CUDA_VISIBLE_DEVICES": "0,1", "PATH": "/bin"}
    given = plain.model_copy(update={"runtime_env": {"env_vars": {"OMP_NUM_THREADS": "1"}}})
    assert launcher_env(env, given)["OMP_NUM_THREADS"] == "1"


def test_a_node_whose_launcher_failed_is_one_that_failed_and_a_clean_end_is_known_after_its_record(
    tmp_path: Path,
) -> None:
    folder = tmp_path / FOLDER
    (folder / PILOTS).mkdir(parents=True)
    cluster = FakeRay(machines=[ray_node(number) for number in (1, 2)], namespace=namespace_of(tmp_path))
    engine = RayEngine(RayRequest(address="10.0.0.1:6379"), tmp_path, cluster)
    for actor, code in zip(engine.ask(2), (2, 0), strict=True):
        cluster.change(actor, state="DEAD", began_at=1.0)
        write_pilot(folder, Pilot(job=actor, node=f"n-{actor}", host="h", began_at=1.0))
        write_end(folder, actor, code)
    records = RecordedPilots(folder)
    failed, clean = records.lives(engine)
    assert (failed.has_failed, failed.is_clean, clean.has_failed, clean.is_clean) == (True, False, False, True)
    records.forget(clean.id)
    (known,) = [life for life in records.lives(engine) if life.id == clean.id]
    assert (known.name, known.is_clean) == ("", True)
    cluster.table.clear()
    assert [life.id for life in records.lives(engine)] == [failed.id]
    assert isinstance(failed.node, EngineNode) and failed.node.state is NodeState.ENDED
    assert end_of(folder, clean.id) is None, "the note of an end goes once Ray does not list the actor"
