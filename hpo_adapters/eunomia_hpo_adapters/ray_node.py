"""The Ray node of a slot: ``python -m eunomia_hpo_adapters.ray_node``, run as a trial of an app.

It runs ``ray start`` and writes the node's state to a file. On SIGTERM it reports that the node leaves; Ray then starts
no more work on the node, and the process exits once the node's trials are paused. It also exits when its search has
ended, or the search program is gone.
"""

import argparse
import contextlib
import ipaddress
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import structlog

from eunomia.errors import InputError
from eunomia_appmaster.node.parent_death import with_death_signal
from eunomia_hpo_adapters.ray_slots import (
    BEAT_SECONDS,
    DRIVER_SILENT_SECONDS,
    DriverBeat,
    Pulse,
    SlotBeat,
    driver_file,
    slot_file,
    token_variables,
)

log = structlog.get_logger()

DRAIN_SECONDS = 3600
"""Seconds for which Ray waits for running work on a node that drains; the launcher kills the node long before."""
LEFT = 75
"""Exit code of a node that was ordered to leave."""
STARTED = b"Ray runtime started"
QUIET_SECONDS = 1.0
"""Seconds without a busy worker after which a leaving node exits. Ray itself would keep the node longer for a trial
that was about to start there."""
END_SECONDS = 5.0
"""Seconds from SIGTERM to SIGKILL of Ray's processes."""
FIRST_LOOPBACK = 10
"""Nodes of a Ray cluster on loopback have the addresses from 127.0.0.11 on, since Ray hangs if they share 127.0.0.1."""


def command(head: str, number: int, *, cpus: float, gpus: float, folder: str) -> list[str]:
    """Return the command that starts the Ray node of a slot.

    Args:
        head: address of Ray's head, host:port.
        number: number of the slot's trial, from 1.
        cpus: CPUs that Ray may assign to trials.
        gpus: GPUs that Ray may assign to trials.
        folder: folder of the node's files; its path must be short, as the length of socket paths is limited.

    Raises:
        InputError: the program ``ray`` is not in the folder of this Python interpreter.
    """
    ray = Path(sys.executable).with_name("ray")
    if not ray.exists():
        raise InputError(
            "the Python of a slot must have ray beside it: pip install 'eunomia[ray-tune]'", value=str(ray)
        )
    words = [str(ray), "start", f"--address={head}", "--block", "--disable-usage-stats", f"--temp-dir={folder}"]
    words += [f"--num-cpus={cpus:g}", f"--num-gpus={gpus:g}"]
    words += ["--min-worker-port=0", "--max-worker-port=0"]  # else nodes of one host use the same ports
    if _is_here(head):
        words.append(f"--node-ip-address=127.0.0.{FIRST_LOOPBACK + number}")
    return words


def _is_here(head: str) -> bool:
    """Return whether Ray's head listens on loopback, so that all its nodes are on this host."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(head.rpartition(":")[0]).is_loopback
    return head.startswith("localhost:")


def below(pid: int) -> list[int]:
    """Return the ids of all descendants of a process."""
    parents: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):  # noqa: PTH208 - names alone
        if entry.isdecimal():
            with contextlib.suppress(OSError, ValueError, IndexError):
                parent = int(Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()[1])
                parents.setdefault(parent, []).append(int(entry))
    found, todo = list[int](), [pid]
    while todo:
        children = parents.get(todo.pop(), [])
        found += children
        todo += children
    return found


def is_busy(pid: int) -> bool:
    """Return whether a process is a Ray worker that runs a task or an actor."""
    with contextlib.suppress(OSError):
        title = Path("/proc", str(pid), "cmdline").read_bytes()
        return title.startswith(b"ray::") and not title.startswith(b"ray::IDLE")
    return False


class RayNode:
    """The Ray node of a slot, started as a child process, with its heartbeat file.

    Args:
        words: the command that starts the node.
        files: folder of the search's files.
        number: number of the slot's trial, from 1.
    """

    def __init__(self, words: Sequence[str], files: Path, number: int) -> None:
        self._file = slot_file(files, number)
        self._driver, self._pulse = driver_file(files), Pulse()
        self._beat = 0
        self._up = threading.Event()
        self._process = subprocess.Popen(
            with_death_signal(words, signal.SIGTERM),
            env={**os.environ, **token_variables(files), "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": str(DRAIN_SECONDS)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # SIGTERM is for this process only: Ray stays until its trials are paused
        )
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        """Copy Ray's output to standard output, and set an event once the node is up."""
        if self._process.stdout is not None:
            for line in self._process.stdout:
                sys.stdout.buffer.write(line)
                sys.stdout.flush()
                if STARTED in line:
                    self._up.set()

    def run(self, leave: threading.Event) -> int:
        """Run the node until it has left, its search has ended or died, or Ray exits; return the exit code."""
        leaving, busy_at = False, 0.0
        while self._process.poll() is None:
            processes, now = below(os.getpid()), time.monotonic()
            if leave.is_set() and not leaving:
                leaving, busy_at = True, now
                self._process.terminate()  # Ray drains the node
            self._say("leaving" if leaving else "up" if self._up.is_set() else "starting", processes)
            if any(map(is_busy, processes)):
                busy_at = now
            if leaving and now - busy_at > QUIET_SECONDS:
                return LEFT
            driver = DriverBeat.read(self._driver)
            if (driver is not None and driver.over) or self._pulse.silent_seconds(driver) > DRIVER_SILENT_SECONDS:
                log.info("node.ends", why="its search is over, or the program that searches is gone")
                return 0
            time.sleep(BEAT_SECONDS)
        return LEFT if leaving else self._process.returncode or 1

    def _say(self, state: Literal["starting", "up", "leaving"], processes: Sequence[int]) -> None:
        self._beat += 1
        beat = SlotBeat(
            process=os.getpid(), beat=self._beat, state=state, host=platform.node(), processes=tuple(processes)
        )
        with contextlib.suppress(OSError):  # a full disk, or the search has removed its folder
            beat.write(self._file)

    def end(self) -> None:
        """End all processes of the node."""
        self._file.unlink(missing_ok=True)
        for number in (signal.SIGTERM, signal.SIGKILL):
            for pid in below(os.getpid()):
                with contextlib.suppress(OSError):
                    os.kill(pid, number)
            deadline = time.monotonic() + END_SECONDS
            while below(os.getpid()) and time.monotonic() < deadline:
                self._process.poll()
                time.sleep(0.05)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the node of a slot, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m eunomia_hpo_adapters.ray_node", description=__doc__)
    parser.add_argument("--head", required=True)
    parser.add_argument("--files", type=Path, required=True)
    parser.add_argument("--number", type=int, required=True)
    parser.add_argument("--cpus", type=float, default=1.0)
    parser.add_argument("--gpus", type=float, default=0.0)
    given = parser.parse_args(arguments)
    leave = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: leave.set())
    folder = tempfile.mkdtemp(prefix="eunomia-ray-", dir="/tmp")  # TMPDIR may be too long for sockets
    try:
        words = command(given.head, given.number, cpus=given.cpus, gpus=given.gpus, folder=folder)
        node = RayNode(words, given.files, given.number)
        try:
            return node.run(leave)
        finally:
            node.end()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
