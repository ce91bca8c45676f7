"""A laboratory for training scripts: a process with torch imported that forks workers, and a launcher's socket.

Not a test. As a script it is the process that forks (one JSON request a line on stdin, one answer a line on stdout);
as a module it holds what tests start and speak to.
"""

import atexit
import functools
import json
import os
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
PATHS = os.pathsep.join(str(ROOT / name) for name in ("core", "appmaster"))
TIMEOUT_SECONDS = 60.0


class Lab:
    """Starts workers by forking, so that each takes milliseconds instead of an import of torch."""

    def __init__(self) -> None:
        environment = {**os.environ, "PYTHONPATH": PATHS, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self._zygote = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self._ask({"ping": True})
        atexit.register(self.close)

    @classmethod
    @functools.cache
    def shared(cls) -> "Lab":
        """The one of this process: several files of tests use it, and each import of torch takes seconds."""
        return cls()

    def start(self, script: Path, *args: str, env: Mapping[str, str], cwd: Path, output: Path) -> int:
        """Fork a worker; return its pid."""
        request = {"start": str(script), "args": args, "env": dict(env), "cwd": str(cwd), "output": str(output)}
        return int(self._ask(request))

    def wait(self, pid: int) -> int:
        """Return a worker's exit code, negative for a signal."""
        return int(self._ask({"wait": pid}))

    def close(self) -> None:
        self._zygote.kill()  # an interpreter with torch takes seconds to end of its own accord
        self._zygote.wait()
        self._zygote.stdin.close()
        self._zygote.stdout.close()

    def _ask(self, request: dict[str, Any]) -> Any:
        self._zygote.stdin.write(json.dumps(request) + "\n")
        self._zygote.stdin.flush()
        return json.loads(self._zygote.stdout.readline())


@dataclass
class Job:
    """One training job: incarnation after incarnation in one run folder."""

    lab: Lab
    script: Path
    run_dir: Path
    args: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    incarnation: int = 0
    messages: list[dict[str, Any]] = field(default_factory=list)

    def run(self, *, workers: int = 1, ordered: Callable[["Order"], None] | None = None, **env: object) -> list[int]:
        """Run one incarnation to its end; return the exit codes by rank.

        ``ordered`` is called before the workers start, to set the orders at each message.
        """
        self.incarnation += 1
        self.messages = []
        with orders(workers) as launcher:
            if ordered is not None:
                ordered(launcher)
            pids = [self._start(rank, workers, launcher, env) for rank in range(workers)]
            launcher.serve(pids)
            codes = [self.lab.wait(pid) for pid in pids]
            launcher.drain()
            self.messages = launcher.messages
        return codes

    def output(self, rank: int = 0) -> str:
        return (self.run_dir / f"output.{rank}").read_text()

    def said(self, kind: str) -> list[Any]:
        return [message[kind] for message in self.messages if kind in message]

    def _start(self, rank: int, workers: int, launcher: "Order", env: Mapping[str, object]) -> int:
        self.run_dir.mkdir(parents=True, exist_ok=True)
        variables = {
            "EUNOMIA_RUN_DIR": str(self.run_dir),
            "EUNOMIA_CONTAINER_DIR": str(launcher.folders[rank]),
            "EUNOMIA_INCARNATION": str(self.incarnation),
            "EUNOMIA_SEED": "7",
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(workers),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(launcher.port),
            **self.env,
            **{name: str(value) for name, value in env.items()},
        }
        output = self.run_dir / f"output.{rank}"
        return self.lab.start(self.script, *self.args, env=variables, cwd=self.run_dir, output=output)


class Order:
    """The launcher's end of the workers' sockets."""

    def __init__(self, workers: int, folder: Path) -> None:
        self.folders = [folder / str(rank) for rank in range(workers)]
        self.port = free_port()
        self.messages: list[dict[str, Any]] = []
        self.on_message: Callable[[dict[str, Any]], None] = lambda message: None
        self._at_hello: list[dict[str, Any]] = []
        self._listeners = [_listen(folder) for folder in self.folders]
        self._connections: list[tuple[socket.socket, bytearray]] = []

    def at_once(self, **order: object) -> None:
        """Give an order to every worker as it says hello."""
        self._at_hello.append(order)

    def give(self, **order: object) -> None:
        """Give an order to all connected workers."""
        for connection, _ in self._connections:
            _send(connection, order)

    def close_connections(self) -> None:
        """Do as a launcher that dies."""
        for connection, _ in self._connections:
            connection.close()
        self._connections = []
        for listener in self._listeners:
            listener.close()
        self._listeners = []

    def serve(self, pids: list[int]) -> None:
        """Listen until all these processes have gone."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while any(_lives(pid) for pid in pids):
            if time.monotonic() > deadline:
                for pid in pids:
                    os.kill(pid, signal.SIGKILL)
            self.drain(0.01)

    def drain(self, seconds: float = 0.0) -> None:
        """Take in what has come."""
        sockets = [*self._listeners, *(connection for connection, _ in self._connections)]
        while ready := select.select(sockets, [], [], seconds)[0]:
            for each in ready:
                if each.fileno() < 0:
                    continue
                if each in self._listeners:
                    connection, _ = each.accept()
                    self._connections.append((connection, bytearray()))
                    for order in self._at_hello:
                        _send(connection, order)
                else:
                    self._receive(each)
            sockets = [*self._listeners, *(connection for connection, _ in self._connections)]
            seconds = 0.0

    def close(self) -> None:
        for each in [*self._listeners, *(connection for connection, _ in self._connections)]:
            each.close()

    def _receive(self, connection: socket.socket) -> None:
        buffer = next(buffer for each, buffer in self._connections if each is connection)
        try:
            data = connection.recv(65536)
        except ConnectionResetError:
            # It left an order unread; what it said is still to be read.
            return
        if not data:
            self._connections = [pair for pair in self._connections if pair[0] is not connection]
            connection.close()
        buffer += data
        *lines, rest = bytes(buffer).split(b"\n")
        buffer[:] = rest
        for line in lines:
            message = json.loads(line)
            self.messages.append(message)
            self.on_message(message)


@contextmanager
def orders(workers: int) -> Iterator[Order]:
    folder = Path(tempfile.mkdtemp())
    launcher = Order(workers, folder)
    try:
        yield launcher
    finally:
        launcher.close()
        shutil.rmtree(folder)


def _send(connection: socket.socket, order: Mapping[str, object]) -> None:
    connection.sendall(json.dumps(order).encode() + b"\n")


def _listen(folder: Path) -> socket.socket:
    folder.mkdir()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(folder / "orders.sock"))
    listener.listen(8)
    return listener


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _lives(pid: int) -> bool:
    # The zygote has not waited for it yet, so a gone worker is a zombie.
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def _work(request: dict[str, Any]) -> None:
    """What a forked worker does: become the script."""
    code = 1
    try:
        output = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.environ.update(request["env"])
        os.chdir(request["cwd"])
        sys.argv = [request["start"], *request["args"]]
        runpy.run_path(request["start"], run_name="__main__")
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _main() -> None:
    import sklearn.datasets  # noqa: F401
    import torch._dynamo
    import torch.utils.tensorboard

    from eunomia_appmaster import training  # noqa: F401

    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            answer: Any = os.waitstatus_to_exitcode(os.waitpid(request["wait"], 0)[1])
        elif "start" in request:
            answer = os.fork()
            if answer == 0:
                _work(request)
        else:
            answer = torch.__version__
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _main()
