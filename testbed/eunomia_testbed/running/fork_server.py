"""A process that imports a simulation's modules once, and forks workers: ``python -m ...running.fork_server FD``.

It reads from a socket, its only argument: first the packed plan and the folder, then one-byte commands.

- ``FORK`` is sent with ends of two pipes and a worker's call page. The answer is the worker's process id, or
  ``REFUSED`` if another thread runs here: a forked process has none of its parent's threads, but all of their locks.
- ``WORK`` is sent with the same descriptors, and turns this process into the worker.
- ``WAIT`` is followed by the process id of an ending worker. The answer is that worker's exit code.

When the socket closes or the process is killed, all workers end.
"""

import contextlib
import ctypes
import gc
import os
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import Final, NoReturn

from eunomia_testbed.running import worker

FORK: Final = b"f"
WORK: Final = b"b"
WAIT: Final = b"w"
REFUSED: Final = 0
IDLE_THREADS: Final = frozenset({"polars-ooc-clea"})
"""Names of threads that do not prevent a fork. The thread that polars starts on import holds no lock until memory is
spilled to disk; a worker exits without the exit handlers that would wait for this thread."""
_CLOSED_ON_EXEC: Final = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
_PR_SET_PDEATHSIG: Final = 1
_TASKS: Final = Path("/proc/self/task")


def main() -> None:
    """Serve commands from the socket whose descriptor is the process's argument."""
    os.dup2(2, 1)  # output of plugins on import goes to stderr
    control = socket.socket(fileno=int(sys.argv[1]))
    with control.makefile("rb", buffering=0) as stream:
        given = worker.received(stream)
    if given is None:
        return  # the command was interrupted before it had written the plan
    gc.collect()
    gc.freeze()  # so that workers' garbage collectors leave shared objects untouched
    _Server(control, given).serve()


def threads() -> list[str] | None:
    """Return the names of this process's threads except the first; None: they cannot be determined."""
    try:
        others = [task for task in _TASKS.iterdir() if task.name != str(os.getpid())]
        return sorted((task / "comm").read_text().rstrip("\n") for task in others)
    except OSError:
        return None


def may_fork() -> bool:
    """Return whether a fork is safe now: no other thread runs here that could hold a lock."""
    found = threads()
    return found is not None and IDLE_THREADS.issuperset(found)


class _Server:
    def __init__(self, control: socket.socket, given: worker.Given) -> None:
        self._control, self._given = control, given
        self._workers: set[int] = set()

    def serve(self) -> None:
        while True:
            command, files, _, _ = socket.recv_fds(self._control, 1, 3, _CLOSED_ON_EXEC)
            if not command:
                break
            if command == WAIT:
                self._answer(self._wait(int.from_bytes(self._control.recv(8, socket.MSG_WAITALL), "big")))
            elif command == WORK:
                self._become(files)
            elif may_fork():
                self._answer(self._fork(files))
            else:
                self._close(files)
                self._answer(REFUSED)
        for process in self._workers:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)  # so that its CPU time counts as that of the command

    def _fork(self, files: list[int]) -> int:
        process = os.fork()
        if not process:
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            self._become(files)
        self._workers.add(process)
        self._close(files)
        return process

    def _become(self, files: list[int]) -> NoReturn:
        """Run cells until there are no more requests, and exit without the exit handlers of the parent process."""
        code = 1
        try:
            self._control.close()
            worker.work(self._given, *files)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.flush()
            os._exit(code)

    def _wait(self, process: int) -> int:
        _, status = os.waitpid(process, 0)
        self._workers.discard(process)
        return os.waitstatus_to_exitcode(status)

    def _answer(self, number: int) -> None:
        self._control.sendall(number.to_bytes(8, "big", signed=True))

    def _close(self, files: list[int]) -> None:
        for each in files:
            os.close(each)


if __name__ == "__main__":
    main()
