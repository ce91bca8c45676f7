"""``python -m eunomia_engines.ray.pilot STATE NODE ACTOR``: runs the launcher of a node, and restarts it when it dies.

The pilot detaches from the actor that starts it, since Ray ends the process group and the children of an actor. Later
actors find the pilot by the record on the node's disk; the pilot ends with its launcher.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Final

from eunomia.errors import EunomiaError
from eunomia_appmaster.commands.launcher import LauncherFlags
from eunomia_appmaster.launcher.joining import OwnJoin
from eunomia_appmaster.launcher.processes import identify
from eunomia_engines.head.files import TOKEN, head_address
from eunomia_engines.pilots.names import check_gpus, clear_locked, lock_name, private_folder
from eunomia_engines.pilots.records import CLEAN, ended_clean, write_end
from eunomia_engines.ray.launchers import NodeRecord, own_id, read_record, record_path, write_record
from eunomia_engines.ray.request import ENDS, FOLDER, RayRequest
from eunomia_engines.requests import mark_of

HELD: Final = 75
"""Exit code of a pilot whose node already has another pilot."""
FINAL: Final = frozenset({CLEAN, 2, 126, 127})
"""Exit codes of a launcher after which a restart would change nothing."""
SHORT_SECONDS: Final = 20.0
MOST_SHORT: Final = 5
"""Number of consecutive launchers, each of which ran for less than ``SHORT_SECONDS``, after which a node ends."""
PAUSE_SECONDS: Final = 2.0
LOOK_SECONDS: Final = 2.0
"""Seconds between two checks for the order that all nodes end."""
READY_SECONDS: Final = 5.0
"""Seconds from a launcher's start after which it handles a signal to end gracefully."""
NICENESS: Final = "RAY_worker_niceness"
"""Ray's setting of the niceness of its workers, 15 by default."""


class Pilot:
    """Runs the launcher of one node.

    Args:
        state: the arbiter's state folder.
        node: name of the arbiter's node.
        actor: Ray's id of the actor that watches it.
        env: environment of the launcher.
    """

    def __init__(self, state: Path, node: str, actor: str, env: Mapping[str, str]) -> None:
        self._state, self._node, self._actor, self._env = state, node, actor, env
        self._request = RayRequest.load(state)
        self._base = private_folder(self._request.node_dir, mark_of(state))
        self._child: subprocess.Popen[bytes] | None = None
        self._began, self._ends = 0.0, False

    def run(self) -> int:
        """Run launchers until one ends for good; returns its exit code; ``HELD``: the node has another pilot."""
        lock = lock_name(self._base, self._node)
        if lock is None:
            return HELD
        os.set_inheritable(lock, True)  # the launcher holds it, too: it may outlive its pilot
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        self._write(None)
        code = self._launch_all(lock)
        self._finish(code, lock)
        return code

    def _launch_all(self, lock: int) -> int:
        short = 0
        while True:
            try:
                command = self._command()
            except (EunomiaError, OSError) as error:
                sys.stderr.write(f"error: {error}\n")
                return error.exit_code if isinstance(error, EunomiaError) else 2
            self._began = time.monotonic()  # set before the launcher, which an order may come to find at any moment
            child = self._child = subprocess.Popen(command, env=self._env, pass_fds=[lock], stdin=subprocess.DEVNULL)
            self._write(child.pid)
            if self._ends:  # ordered before its start: it ends the containers that are left, and then itself
                self._end_child()
            code = self._wait(child)
            self._child = None
            short = short + 1 if time.monotonic() - self._began < SHORT_SECONDS else 0
            ended = self._ends and code != -signal.SIGTERM  # killed by the order before it handled signals: once more
            if code in FINAL or ended or short == MOST_SHORT:
                return code
            sys.stderr.write(f"the launcher has ended with code {code}\n")
            time.sleep(PAUSE_SECONDS)

    def _wait(self, child: subprocess.Popen[bytes]) -> int:
        """Wait until the launcher ends; returns its exit code. Order its end once all nodes are to end."""
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return child.wait(LOOK_SECONDS)
            if not self._ends and (self._state / FOLDER / ENDS).exists():
                self._ends = True
                self._end_child()

    def _command(self) -> list[str]:
        """Return the launcher's command line.

        Raises:
            InputError: the machine lacks the requested GPUs, or the head has not started.
        """
        request = self._request
        if request.python:
            return [request.python, str(self._state), self._node]
        if request.cpu_slots is None:
            check_gpus(" of Ray")
        flags = LauncherFlags(
            arbiter=head_address(self._state / FOLDER),
            state=self._state,
            join=str(self._state / FOLDER / TOKEN),
            node=self._node,
            node_dir=self._base / self._node,
            cpu_only=request.cpu_slots is not None,
            slots=request.cpu_slots,
            stop_seconds=f"{request.stop_seconds}s",
            control_groups="auto" if request.cpu_slots is None else "kill",
        )
        if ended_clean(self._state / FOLDER, self._node):  # the arbiter has let the node go, and its credential
            OwnJoin(self._base / self._node, self._node, flags.arbiter).forget()
        return flags.command

    def _write(self, launcher: int | None) -> None:
        before = read_record(self._base, self._node)
        watchers = before.actors if before is not None and before.pilot == own_id() else (self._actor,)
        found = None if launcher is None else identify(launcher)
        write_record(self._base, self._node, NodeRecord(pilot=own_id(), launcher=found, actors=watchers))

    def _finish(self, code: int, lock: int) -> None:
        """Record the exit code for all actors that watched this pilot; after a clean end, remove the node's files."""
        record = read_record(self._base, self._node)
        for actor in (self._actor,) if record is None else record.actors:
            write_end(self._state / FOLDER, actor, code)
        if code == CLEAN:
            record_path(self._base, self._node).unlink(missing_ok=True)
            clear_locked(self._base, self._node, lock)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        is_first, self._ends = not self._ends, True
        if is_first and self._child is not None:  # a second one could kill a launcher in the last moment of its end
            self._end_child()

    def _end_child(self) -> None:
        """Signal the launcher to end gracefully, once it handles signals: an earlier signal would kill it."""
        signal.signal(signal.SIGALRM, self._terminate)
        signal.setitimer(signal.ITIMER_REAL, max(0.001, self._began + READY_SECONDS - time.monotonic()))

    def _terminate(self, number: int, frame: FrameType | None) -> None:
        if self._child is not None:
            self._child.terminate()


def main() -> None:
    """Detach from the parent process, and run the launcher."""
    if os.fork() > 0:
        os._exit(0)
    os.setsid()
    state, node, actor = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    own = {"GRPC_VERBOSITY": "NONE", "EUNOMIA_LOG": "info"}
    if (niceness := os.nice(0)) > 0:
        sys.stderr.write(f"runs, and lets jobs run, at niceness {niceness} ({NICENESS}=0 at `ray start` changes it)\n")
    try:
        code = Pilot(state, node, actor, {**os.environ, **own}).run()
    except (EunomiaError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        write_end(state / FOLDER, actor, 2)
        sys.exit(2)
    sys.exit(max(0, code))


if __name__ == "__main__":
    main()
