"""A Ray cluster of a test on this machine: a head without room at 127.0.0.2, and nodes at 127.0.0.3 and up.

Each has a folder of its own. GPUs are numbers that Ray is told; nothing of a test uses them. 127.0.0.1 is not used: a
cluster of several nodes there hangs.
"""

import contextlib
import importlib.util
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

HEAD = "127.0.0.2"
NODES = 3
GPUS = 2
START_SECONDS = 120.0
MEMORY_BYTES = 80_000_000
ENV = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled", "RAY_worker_niceness": "0"}
"""Ray takes a token by itself once a user has one (``~/.ray/auth_token``), and runs its workers at niceness 15."""

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="not installed: ray (eunomia[ray])")
WAITING = f"""#!{sys.executable} -IS
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
if len(sys.argv) > 1 and os.path.isdir(sys.argv[1]):
    with open(sys.argv[1] + "/pids", "a") as file:
        file.write(f"{{os.getpid()}}\\n")
time.sleep(600)
"""
"""A script in the place of a launcher: notes its pid in the state folder, waits, and ends in order on SIGTERM."""


class RayLab:
    """The cluster.

    Args:
        folder: of all its files; new. Ray's sockets allow about 60 signs of its path.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def address(self) -> str:
        """Of the cluster's head."""
        return f"{HEAD}:{self.port}"

    @property
    def env(self) -> dict[str, str]:
        """Environment of a command on a node of this cluster."""
        return {**os.environ, **ENV, "RAY_ADDRESS": self.address}

    def start(self, nodes: int = NODES, *, gpus: int = GPUS) -> None:
        """Start the head and nodes, and wait until they are listed."""
        self.start_head()
        for number in range(3, 3 + nodes):
            self.add(number, gpus=gpus)
        self.wait(nodes + 1)

    def start_head(self) -> None:
        """Start the head, which has no room for actors of nodes."""
        self._run(HEAD, "--head", f"--port={self.port}", "--num-cpus=0", "--num-gpus=0", "--include-dashboard=false")
        deadline = time.monotonic() + START_SECONDS
        while not self._listens():
            assert time.monotonic() < deadline, "Ray's head must listen"
            time.sleep(0.2)

    def add(self, number: int, *, gpus: int = GPUS) -> None:
        """Start the node 127.0.0.NUMBER."""
        self._run(f"127.0.0.{number}", f"--address={self.address}", "--num-cpus=4", f"--num-gpus={gpus}")

    def alive(self) -> Mapping[str, str]:
        """The nodes that live by Ray's word: their ids by address."""
        text = self.driver(
            "import json; print(json.dumps({n['NodeManagerAddress']: n['NodeID'] for n in ray.nodes() if n['Alive']}))"
        )
        return dict(json.loads(text.splitlines()[-1]))

    def wait(self, count: int) -> None:
        """Wait until so many nodes live."""
        deadline, listed = time.monotonic() + START_SECONDS, 0
        while listed != count:
            assert time.monotonic() < deadline, f"{listed} nodes, not {count}"
            time.sleep(0.5)
            with contextlib.suppress(AssertionError):  # a driver has but 5 s for the head, too few where much else runs
                listed = len(self.alive())

    def driver(self, code: str, *, namespace: str = "test") -> str:
        """Run a driver of Ray and return what it prints."""
        options = f"namespace='{namespace}', log_to_driver=False, logging_level='error'"
        begin = f"import ray; ray.init('{self.address}', {options})"
        made = subprocess.run(
            [sys.executable, "-c", f"{begin}\n{code}"],
            capture_output=True,
            text=True,
            check=False,
            env=self.env,
            timeout=90,
            cwd=self.folder,
        )
        assert made.returncode == 0, made.stderr[-2000:]
        return made.stdout

    def raylet(self, address: str) -> int:
        """The pid of a node's raylet."""
        return self._child(address, "raylet/raylet")

    def kill_raylet(self, address: str) -> None:
        """Kill a node's raylet; Ray's other processes there end by themselves."""
        os.kill(self.raylet(address), signal.SIGKILL)
        self._processes.pop(address)

    def kill_head(self) -> None:
        """Kill the head of Ray, with its table of nodes and actors."""
        process = self._processes.pop(HEAD)
        for pid in (self._child(HEAD, "gcs/gcs_server", process), self._child(HEAD, "raylet/raylet", process)):
            os.kill(pid, signal.SIGKILL)

    def stop(self) -> None:
        """End the cluster."""
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(15.0)
            process.kill()
        deadline = time.monotonic() + 15.0
        while (left := self.left()) and time.monotonic() < deadline:
            time.sleep(0.3)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def left(self) -> list[int]:
        """Processes of this cluster: those whose environment or command names its folder."""
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                pid = int(entry.name)
                text = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
                if f"{self.folder}/ray".encode() in text and pid != os.getpid():
                    found.append(pid)
        return found

    def _run(self, address: str, *arguments: str) -> None:
        folder = self.folder / "ray" / address.rpartition(".")[2]
        folder.mkdir(parents=True, exist_ok=True)
        begin = [str(Path(sys.executable).parent / "ray"), "start", "--block", f"--node-ip-address={address}"]
        more = [f"--object-store-memory={MEMORY_BYTES}", f"--temp-dir={folder}", "--disable-usage-stats"]
        with (folder / "out").open("ab") as out:
            self._processes[address] = subprocess.Popen(
                [*begin, *more, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                cwd=self.folder,
                env={**os.environ, **ENV, "TEST_RAY": f"{self.folder}/ray"},
            )

    def _child(self, address: str, name: str, process: subprocess.Popen[bytes] | None = None) -> int:
        """The pid of a daemon of a node."""
        own = process or self._processes[address]
        found = subprocess.run(["pgrep", "-P", str(own.pid), "-f", name], capture_output=True, text=True, check=True)
        return int(found.stdout.split()[0])

    def _listens(self) -> bool:
        with contextlib.suppress(OSError):
            socket.create_connection((HEAD, self.port), 1.0).close()
            return True
        return False


def free_port() -> int:
    """A port that is free now, of none of the ranges from which Ray's workers and the kernel take theirs."""
    while True:
        port = random.randrange(20_000, 30_000)
        with contextlib.suppress(OSError), socket.create_server(("", port)):
            return port


@contextlib.contextmanager
def ray_cluster(folder: Path, nodes: int = NODES) -> Iterator[RayLab]:
    """A Ray cluster for a test."""
    lab = RayLab(folder)
    try:
        lab.start(nodes)
        yield lab
    finally:
        lab.stop()
        shutil.rmtree(folder / "ray", ignore_errors=True)
