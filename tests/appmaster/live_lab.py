"""A laboratory for live changes: a coordinator that speaks the app master's words to real workers, and a real store.

Not a test, and no arbiter: the coordinator numbers generations, starts newcomers, waits until they are ready, orders
the change, and repairs an order whose members are gone. Workers are forked from a process that has imported torch, or
are fresh processes.
"""

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.appmaster.repairing import repaired
from tests.appmaster.training_lab import PATHS, Lab

from eunomia_appmaster.launcher import live_words
from eunomia_appmaster.node.pulse import Pulse, read_pulse
from eunomia_appmaster.protocol import launcher_pb2 as pb
from eunomia_appmaster.training.changes import Membership

STORE = Path(__file__).with_name("live_store.py")
TIMEOUT_SECONDS = 60.0
LEFT = 75


@dataclass
class Worker:
    """One process of a job, with the launcher's end of its socket."""

    name: str
    pid: int
    listener: socket.socket
    connection: socket.socket | None = None
    buffer: bytearray = field(default_factory=bytearray)
    ready: bool = False
    code: int | None = None
    said: list[dict[str, Any]] = field(default_factory=list)
    kind: str = "forked"
    process: "subprocess.Popen[bytes] | None" = None


class LiveJob:
    """A job whose gang changes while it runs.

    Args:
        lab: forks workers.
        script: of the job.
        folder: of the job.
        args: of the script.
        fresh: whether newcomers are fresh processes, which import torch themselves.
    """

    def __init__(self, lab: Lab, script: Path, folder: Path, *args: str, fresh: bool = False) -> None:
        self.lab, self.script, self.folder, self.args, self.fresh = lab, script, folder, args, fresh
        self.env: dict[str, str] = {}
        self.workers: dict[str, Worker] = {}
        self.orders: list[Membership] = []
        self.confirmed: list[dict[str, Any]] = []
        self.broken_in: set[int] = set()
        self.holders: list[str] = []
        self.ordered_at: dict[int, float] = {}
        self.repairs = True
        self.lost: list[str] = []
        self.on_message: Callable[[Worker, dict[str, Any]], None] = lambda worker, message: None
        self._unsent: Membership | None = None
        self._numbers = iter(range(1_000_000))
        self._sockets = Path(tempfile.mkdtemp())
        self.folder.mkdir(parents=True, exist_ok=True)
        output = self._sockets / "store"
        self.store = lab.start(STORE, env={}, cwd=self._sockets, output=output)
        while not (text := output.read_text() if output.exists() else ""):
            time.sleep(0.005)
        self.port = int(text)

    # -- what a test orders

    def start(self, workers: int) -> None:
        """Start generation 0."""
        members = tuple(f"c{next(self._numbers)}" for _ in range(workers))
        self.orders.append(Membership(0, members))
        for name in members:
            self._start(name, self.orders[0], fresh=False)

    def order(self, size: int, *, without: str = "") -> Membership:
        """Order a change to a number of workers: the first ones stay, except ``without``; newcomers are started."""
        living = [name for name in self.orders[-1].members if self.workers[name].code is None and name != without]
        members = living[:size] + [f"c{next(self._numbers)}" for _ in range(size - len(living))]
        return self._order(tuple(members))

    def settle(self, seconds: float = TIMEOUT_SECONDS) -> dict[str, Any]:
        """Wait until the newest order's generation makes steps; returns what its rank 0 has said of it."""
        return self.until(lambda: self._settled(), seconds, "the change was not made")

    def run_for(self, seconds: float) -> None:
        """Let the job run for a time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.pump(0.02)

    def finish(self, seconds: float = TIMEOUT_SECONDS) -> dict[str, int | None]:
        """Wait until all workers have ended; returns their exit codes."""
        self.until(lambda: all(each.code is not None for each in self.workers.values()), seconds, "it did not end")
        return {name: each.code for name, each in self.workers.items()}

    def until(self, done: Callable[[], Any], seconds: float, otherwise: str) -> Any:
        end = time.monotonic() + seconds
        while not (found := done()):
            if time.monotonic() > end:
                raise TimeoutError(f"{otherwise}: {self.state()}\n{self.output()}")
            self.pump(0.02)
        return found

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        os.kill(self.workers[name].pid, number)

    def pulse(self, name: str) -> Pulse | None:
        """The signs of life of a worker."""
        return read_pulse(self._sockets / name)

    def kill_store(self) -> None:
        os.kill(self.store, signal.SIGKILL)

    def close(self) -> None:
        """End all processes that are left."""
        for worker in self.workers.values():
            if worker.code is None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker.pid, signal.SIGKILL)
                self._wait(worker)
            worker.listener.close()
            if worker.connection is not None:
                worker.connection.close()
        with contextlib.suppress(ProcessLookupError):
            self.kill_store()
        self.lab.wait(self.store)
        shutil.rmtree(self._sockets)

    # -- what it looks like

    @property
    def newest(self) -> Membership:
        return self.orders[-1]

    def said(self, kind: str) -> list[Any]:
        return [message[kind] for worker in self.workers.values() for message in worker.said if kind in message]

    def state(self) -> str:
        rows = [
            f"{each.name} {each.code} {[next(iter(message)) for message in each.said][-4:]}"
            for each in self.workers.values()
        ]
        return f"{self.orders[-1]} {rows}"

    def output(self) -> str:
        return "\n".join(f"--- {name}\n{(self.folder / f'output.{name}').read_text()[-3000:]}" for name in self.workers)

    # -- the coordinator

    def pump(self, seconds: float) -> None:
        """Take in what has come, and send what is due."""
        listening: dict[socket.socket, tuple[Worker, bool]] = {}
        for worker in self.workers.values():
            if worker.connection is not None:
                listening[worker.connection] = (worker, False)
            elif worker.code is None:
                listening[worker.listener] = (worker, True)
        for each in select.select(list(listening), [], [], seconds)[0]:
            worker, accepts = listening[each]
            if accepts:
                worker.connection = worker.listener.accept()[0]
                if self.ordered_at and self._unsent is None and self.newest.generation:
                    self._send(worker, self.newest)
            else:
                self._receive(worker)
        self._reap()
        self._act()

    def _act(self) -> None:
        newest = self._unsent or self.orders[-1]
        if self._unsent is not None and all(
            self.workers[name].ready or self.workers[name].code is not None
            for name in newest.members
            if name not in self.holders
        ):
            self._unsent = None
            self.ordered_at[newest.generation] = time.monotonic()
            for worker in self.workers.values():
                self._send(worker, newest)
        living = [name for name, each in self.workers.items() if each.code is None]
        if self.confirmed and self.repairs and living:
            broken = newest.generation in self.broken_in
            members = repaired(newest, living=living, holders=self.holders, broken=broken)
            if members and not self._ends(living):
                self._order(members)

    def _ends(self, living: list[str]) -> bool:
        """Whether the job is at its end: a worker has ended with 0."""
        return any(each.code == 0 for each in self.workers.values())

    def _order(self, members: tuple[str, ...]) -> Membership:
        change = Membership(self.orders[-1].generation + 1, members)
        self.orders.append(change)
        self._unsent = change
        for name in members:
            if name not in self.workers:
                self._start(name, change, fresh=self.fresh)
        self._act()
        return change

    def _settled(self) -> dict[str, Any] | None:
        generation = self.orders[-1].generation
        return next((each for each in self.confirmed if each["generation"] == generation), None)

    def _start(self, name: str, change: Membership, *, fresh: bool) -> None:
        folder = self._sockets / name
        folder.mkdir()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(folder / "orders.sock"))
        listener.listen(8)
        variables = {
            "EUNOMIA_RUN_DIR": str(self.folder),
            "EUNOMIA_CONTAINER_DIR": str(folder),
            "EUNOMIA_INCARNATION": "1",
            "EUNOMIA_SEED": "7",
            "EUNOMIA_ELASTIC": "live",
            "EUNOMIA_CONTAINER_ID": f"{name}@0a1b",
            "EUNOMIA_STORE": f"127.0.0.1:{self.port}",
            "EUNOMIA_GENERATION": str(change.generation),
            "EUNOMIA_MEMBERS": json.dumps(change.members),
            "RANK": str(change.members.index(name)),
            "WORLD_SIZE": str(len(change.members)),
            "OMP_NUM_THREADS": "1",
            **self.env,
        }
        output = self.folder / f"output.{name}"
        worker = Worker(name, 0, listener)
        if fresh:
            environment: Mapping[str, str] = {
                **os.environ,
                "PYTHONPATH": PATHS,
                "OPENBLAS_NUM_THREADS": "1",
                **variables,
            }
            with output.open("wb") as written:
                command = [sys.executable, str(self.script), *self.args]
                worker.process = subprocess.Popen(
                    command, env=environment, cwd=self.folder, stdout=written, stderr=written
                )
            worker.pid = worker.process.pid
        else:
            worker.pid = self.lab.start(self.script, *self.args, env=variables, cwd=self.folder, output=output)
        self.workers[name] = worker

    def _send(self, worker: Worker, change: Membership) -> None:
        if worker.connection is None or worker.code is not None:
            return
        content = {"generation": change.generation, "members": change.members, "timeout_seconds": 30.0}
        content["lost"] = self.lost
        with contextlib.suppress(OSError):
            worker.connection.sendall(json.dumps({"change": content}).encode() + b"\n")

    def _receive(self, worker: Worker) -> None:
        connection = worker.connection
        if connection is None:
            return
        try:
            data = connection.recv(65536)
        except ConnectionResetError:
            data = b""
        if not data:
            connection.close()
            worker.connection = None
            if worker.code is None and not self._lives(worker):
                worker.listener.close()
            return
        worker.buffer += data
        *lines, rest = bytes(worker.buffer).split(b"\n")
        worker.buffer[:] = rest
        for line in lines:
            self._take(worker, json.loads(line))

    def _take(self, worker: Worker, message: dict[str, Any]) -> None:
        worker.said.append(message)
        for kind in live_words.SAID:
            if kind in message:  # a launcher refuses what is malformed
                live_words.hear(pb.LiveStatus(), kind, message[kind])
        if "ready" in message:
            worker.ready = True
        if "resized" in message:
            self.confirmed.append(message["resized"])
            members = next(each for each in self.orders if each.generation == message["resized"]["generation"]).members
            self.holders = list(dict.fromkeys([*self.holders, *members]))
        if "broken" in message:
            self.broken_in.add(message["broken"]["generation"])
        self.on_message(worker, message)

    def _reap(self) -> None:
        for worker in self.workers.values():
            if worker.code is None and not self._lives(worker):
                while worker.connection is not None:
                    self._receive(worker)
                self._wait(worker)

    def _lives(self, worker: Worker) -> bool:
        try:
            state = Path(f"/proc/{worker.pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            return False
        return state != "Z"

    def _wait(self, worker: Worker) -> None:
        worker.code = self.lab.wait(worker.pid) if worker.process is None else worker.process.wait()


@contextlib.contextmanager
def live_job(lab: Lab, script: Path, folder: Path, *args: str, fresh: bool = False) -> Iterator[LiveJob]:
    job = LiveJob(lab, script, folder, *args, fresh=fresh)
    try:
        yield job
    finally:
        job.close()
