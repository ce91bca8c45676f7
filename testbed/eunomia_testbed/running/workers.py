"""Starts worker processes by forking them from a prepared process, and stops them."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from eunomia_testbed.calls.page import CallPage, shared_file
from eunomia_testbed.running.fork_server import FORK, REFUSED, WAIT, WORK
from eunomia_testbed.running.worker import hand_over

_ONE_THREAD: Final = {"POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1"}
_ALLOCATOR: Final = "_RJEM_MALLOC_CONF"
"""The environment variable that configures polars' allocator; polars sets it for itself and its child processes."""


class ServerDiedError(Exception):
    """The server process that starts workers has ended; ``code`` is its exit code."""

    def __init__(self, process: int, code: int) -> None:
        super().__init__(f"process {process} ended with {code}")
        self.process, self.code = process, code


class Worker:
    """A worker process, which runs cells.

    Attributes:
        process: process id of the worker.
        requests: file for the numbers of cells, one per line; the worker exits when it is closed.
        answers: file with the worker's lines of JSON.
        page: shared page with the worker's current plugin call.
    """

    def __init__(self, server: "_Server", process: int, requests: BinaryIO, answers: BinaryIO, page: CallPage) -> None:
        self._server, self.process, self.requests, self.answers = server, process, requests, answers
        self.page = page
        self._code: int | None = None

    def kill(self) -> None:
        """Kill the worker's process, unless it has ended."""
        if self._code is None and self._server.lives():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process, signal.SIGKILL)

    def exit_code(self) -> int:
        """Wait for the end of the process and return its exit code; a negative code is the signal that killed it."""
        if self._code is None:
            self._code = self._server.exit_code(self.process)
        return self._code


class Workers:
    """A context manager that starts a plan's workers, all of which are killed at its exit.

    A server process imports a simulation's modules, reads the plan and forks the workers. If it cannot fork, for
    example because a plugin starts a thread on import, each worker is a new process that imports and reads by itself.

    Args:
        plan: the packed plan.
        folder: folder of the results.
    """

    def __init__(self, plan: bytes, folder: Path) -> None:
        self._plan, self._folder = plan, folder
        self._servers: list[_Server] = []
        self._started: list[Worker] = []
        self._forks = True

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._started:
            worker.kill()
        for server in self._servers:
            server.close()

    def start(self) -> Worker:
        """Start a worker.

        Raises:
            ServerDiedError: the server process has ended.
        """
        if not self._servers or not self._forks:
            self._servers.append(_Server(self._plan, self._folder))
        worker = self._servers[-1].forked() if self._forks else self._servers[-1].itself()
        if worker is None:
            self._forks = False
            return self.start()
        self._started.append(worker)
        return worker


class _Server:
    """A process that runs ``fork_server``, in a session of its own, so that Ctrl-C reaches only the parent process."""

    def __init__(self, plan: bytes, folder: Path) -> None:
        self._control, there = socket.socketpair()
        with there:
            self._made = subprocess.Popen(
                [sys.executable, "-m", "eunomia_testbed.running.fork_server", str(there.fileno())],
                stdin=subprocess.DEVNULL,
                env=_environment(),
                pass_fds=[there.fileno()],
                start_new_session=True,
            )
        with self._asking():
            hand_over(self._control, plan, folder)

    def forked(self) -> Worker | None:
        """Return a newly forked worker; None: the process cannot fork."""
        requests, answers, page = self._send(FORK)
        process = self._answer()
        if process != REFUSED:
            return Worker(self, process, requests, answers, page)
        requests.close()
        answers.close()
        return None

    def itself(self) -> Worker:
        """Turn the server process itself into a worker, and return that worker."""
        return Worker(self, self._made.pid, *self._send(WORK))

    def exit_code(self, process: int) -> int:
        """Wait for the end of a worker and return its exit code."""
        if process == self._made.pid:
            return self._made.wait()
        with self._asking():
            self._control.sendall(WAIT + process.to_bytes(8, "big"))
        return self._answer()

    def lives(self) -> bool:
        """Return whether the server process runs; as long as it runs, process ids of its workers are not reused."""
        return self._made.poll() is None

    def close(self) -> None:
        """Stop the server process and its workers."""
        self._control.close()
        self._made.wait()

    def _send(self, command: bytes) -> tuple[BinaryIO, BinaryIO, CallPage]:
        """Send a command with two pipes and a page; return this process's ends of the pipes, and the page."""
        read_requests, requests = os.pipe()
        answers, write_answers = os.pipe()
        calls = shared_file()
        ours = os.fdopen(requests, "wb"), os.fdopen(answers, "rb"), CallPage(calls)
        try:
            with self._asking():
                socket.send_fds(self._control, [command], [read_requests, write_answers, calls])
        finally:
            for each in (read_requests, write_answers, calls):
                os.close(each)
        return ours

    def _answer(self) -> int:
        with self._asking():
            answer = self._control.recv(8, socket.MSG_WAITALL)
            if len(answer) < 8:
                raise ConnectionError
        return int.from_bytes(answer, "big", signed=True)

    @contextlib.contextmanager
    def _asking(self) -> Iterator[None]:
        try:
            yield
        except ConnectionError as error:  # BrokenPipeError is one
            raise ServerDiedError(self._made.pid, self._made.wait()) from error


def _environment() -> dict[str, str]:
    """Return an environment in which a simulation's imports start no threads, so that a process can fork."""
    paths = os.pathsep.join(path for path in sys.path if path)
    allocator = ",".join(filter(None, (os.environ.get(_ALLOCATOR), "background_thread:false")))
    return os.environ | _ONE_THREAD | {"PYTHONPATH": paths, _ALLOCATOR: allocator}
