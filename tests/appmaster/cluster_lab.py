"""A cluster of machines with an address each: an arbiter without slots on the first, a launcher on each of the others.

Not a test. Every change of a file below the apps' folders is recorded with its writer (``written``). A machine's
storage can be a pass-through file system of its own (bindfs), which can be stopped like a network file system whose
server has gone: what calls it sleeps.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from tests.appmaster.launcher_lab import alive
from tests.appmaster.namespaces_lab import Cable, Machine, Network, network
from tests.appmaster.serving_lab import FLOORS, ROOT, tiny_app

from eunomia_appmaster.service.certificates import make

RECORDER = Path(__file__).with_name("recorder")
HURRY = "hurry"
"""A file in the folder of a cluster; once it is there, the steps of all its jobs take next to no time."""
PATIENCE_SECONDS = 300.0
HAS_BINDFS = shutil.which("bindfs") is not None


T = TypeVar("T")


def wait(look: Callable[[], T], what: str, seconds: float = PATIENCE_SECONDS) -> T:
    """Look again and again until there is something to see; a failure after ``seconds``."""
    deadline = time.monotonic() + seconds
    while not (seen := look()):
        assert time.monotonic() < deadline, f"never came true: {what}"
        time.sleep(0.3)
    return seen


class Node:
    """A machine with a launcher, and what it sees of the apps' folders."""

    def __init__(self, name: str, machine: Machine, folder: Path, apps: Path) -> None:
        self.name, self.machine, self.folder, self.apps = name, machine, folder, apps
        self.launcher: subprocess.Popen[bytes] | None = None
        self.storage: subprocess.Popen[bytes] | None = None

    def mount(self) -> None:
        """See the apps' folders through a pass-through file system of its own."""
        real, self.apps = self.apps, self.folder.with_name(f"apps-of-{self.name}")
        self.apps.mkdir()
        # -f: in the foreground, so that its process is known; names and attributes are not kept by the kernel
        words = ["bindfs", "-f", "-o", "attr_timeout=0,entry_timeout=0,negative_timeout=0", str(real), str(self.apps)]
        self.storage = subprocess.Popen(words)
        wait(lambda: os.path.ismount(self.apps), "it is mounted")

    def unmount(self) -> None:
        if self.storage is not None:
            self.storage.send_signal(signal.SIGCONT)
            subprocess.run(["umount", "-l", str(self.apps)], check=False)
            self.storage.terminate()
            self.storage.wait(10)

    def records(self, app: str = "", *, masters: bool = False) -> list[dict[str, Any]]:
        """The records of workers, or of app masters, that the launcher remembers, of one app or all."""
        found = []
        for link in (self.folder / "live").glob(f"{app}*"):
            with contextlib.suppress(OSError, ValueError):
                found.append(json.loads((real_folder(link) / "container.json").read_text()))
        return [record for record in found if (record["slot"] == -1) is masters]

    def running(self, *, masters: bool = False) -> dict[str, int]:
        """Pids of the workers, or app masters, that live, by container; a launcher may not have noted their ends."""
        records = self.records(masters=masters)
        known = {one["container_id"]: one["pid"] for one in records if one["state"] != "COMPLETED" and one["pid"]}
        return {container: pid for container, pid in known.items() if alive(pid)}


def processes_of(machine: Machine) -> list[int]:
    """Pids of all processes on a machine."""
    made = subprocess.run(["ip", "netns", "pids", machine.name], capture_output=True, text=True, check=True)
    return [int(pid) for pid in made.stdout.split()]


def real_folder(link: Path) -> Path:
    """Where a container's folder stands in the arbiter's state folder, as the storage of its node may be stopped."""
    there = str(link.readlink())
    before, mark, after = there.partition("/apps-of-")
    return Path(f"{before}/state/apps/{after.partition('/')[2]}") if mark else Path(there)


class Cluster:
    """The arbiter, its nodes, and the network between them."""

    def __init__(self, folder: Path, net: Network) -> None:
        self.folder, self.net = folder, net
        self.head, *self.free = net.machines
        self.state, self.recorder = folder / "state", folder / "recorder"
        self.address = f"{self.head.address}:7720"
        self.nodes: dict[str, Node] = {}
        self.serve: subprocess.Popen[bytes] | None = None
        shutil.copytree(RECORDER, self.recorder, ignore=shutil.ignore_patterns("__pycache__"))
        paths = (self.recorder, *(ROOT / floor for floor in FLOORS))
        self._env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), "EUNOMIA_LOG": "info"}

    # -- begin and end

    def start_arbiter(self, *options: str) -> None:
        """Start the arbiter; the command runs until ``close``."""
        tls = make(self.folder / "tls", [self.head.address])
        files = ("--tls-cert", str(tls.cert), "--tls-key", str(tls.key), "--tls-ca", str(tls.ca))
        words = ("serve", "--state-dir", str(self.state), "--address", self.address, "--no-launcher")
        with (self.folder / "serve.log").open("ab") as log:
            argv = (sys.executable, "-m", "eunomia.cli", *words, *options, *files)
            self.serve = self.head.start(*argv, log=log, env=self._env)
        token = wait(self._token, "the arbiter answers")
        (self.folder / "join").write_text(token)
        (self.folder / "join").chmod(0o600)

    def _token(self) -> str:
        with contextlib.suppress(AssertionError):
            return str(self.asked("nodes", "token", "--reusable")["token"])
        return ""

    def kill_arbiter(self) -> None:
        """Kill the arbiter's process; ``serve`` starts another at once."""
        (pid,) = self.arbiters()
        os.kill(pid, signal.SIGKILL)
        wait(lambda: self.arbiters() not in ([], [pid]), "another arbiter")

    def arbiters(self) -> list[int]:
        """Pids of the arbiter's process."""
        return [pid for pid in processes_of(self.head) if _command_line(pid).startswith(b"eunomia: arbiter")]

    def join(self, name: str, *options: str, slots: int = 2, mounts: bool = False) -> Node:
        """Start the launcher of a node on the next free machine, and wait until it has joined."""
        node = Node(name, self.free.pop(0), self.folder / name, self.state / "apps")
        self.nodes[name] = node
        if mounts:
            node.mount()
        self.start_launcher(node, *options, slots=slots)
        wait(lambda: self.states().get(name) == "up", f"{name} joined")
        return node

    def start_launcher(self, node: Node, *options: str, slots: int = 2) -> None:
        """Start the launcher of a node, the first one or another."""
        words = ["--arbiter", self.address, "--apps", str(node.apps), "--node", node.name, "--cpu-only"]
        words += ["--node-dir", str(node.folder), "--join", str(self.folder / "join"), "--stop-seconds", "2"]
        words += [] if "--slot-types" in options else ["--slots", str(slots), "--control-groups", "none"]
        with (self.folder / f"{node.name}.log").open("ab") as log:
            argv = (sys.executable, "-m", "eunomia.cli", "launcher", *words, *options)
            # not `ip netns exec`, which hides the machine's control groups
            there = ("nsenter", f"--net=/run/netns/{node.machine.name}", *argv)
            node.launcher = subprocess.Popen(there, stdout=log, stderr=log, env=self._env)

    def power_off(self, node: Node) -> None:
        """End all processes of a machine at one moment, as a loss of power does."""
        while pids := processes_of(node.machine):
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        if node.launcher is not None:
            node.launcher.wait(10)

    def close(self) -> None:
        """End all."""
        self.net.mend()
        for node in self.nodes.values():
            for process in (node.storage, node.launcher):
                if process is not None and process.poll() is None:
                    process.send_signal(signal.SIGCONT)
        ending = [node.launcher for node in self.nodes.values()] + [self.serve]
        for process in ending:
            if process is not None and process.poll() is None:
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(60)
        for node in self.nodes.values():
            self.power_off(node)
            node.unmount()

    # -- ask

    def eunomia(self, *words: str) -> str:
        """Run a command on the arbiter's machine."""
        argv = (sys.executable, "-m", "eunomia.cli", *words, "--state-dir", str(self.state))
        made = subprocess.run(
            self.head.command(*argv), capture_output=True, text=True, check=False, timeout=300, env=self._env
        )
        assert made.returncode == 0, f"{words}: {made.stdout} {made.stderr}"
        return made.stdout

    def asked(self, *words: str) -> dict[str, Any]:
        """The answer of a command as JSON."""
        made: dict[str, Any] = json.loads(self.eunomia(*words, "--json"))
        return made

    def states(self) -> dict[str, str]:
        """The state of each node as ``eunomia nodes`` shows it; empty: the arbiter has none, or does not answer."""
        with contextlib.suppress(AssertionError):
            return {node["node"]: node["state"] for node in self.asked("nodes")["nodes"]}
        return {}

    def explained(self, app: str) -> list[dict[str, Any]]:
        """What ``eunomia explain`` says of an app's jobs, an object each."""
        return [json.loads(line) for line in self.eunomia("explain", app, "--json").splitlines()]

    def app_states(self) -> dict[str, str]:
        """The state of each app; empty: the arbiter does not answer."""
        with contextlib.suppress(AssertionError):
            return {app["app"]: app["state"] for app in self.asked("apps", "--all")["apps"]}
        return {}

    def submit_search(self, name: str, *, iterations: int, every: int) -> None:
        """Submit a search of six trials, which saves each ``every`` steps; a step takes 0.05 s until ``hurry``."""
        more = f" --every {every} --hurries-after {HURRY}"
        app = tiny_app(self.folder, name, iterations=iterations, seconds=0.05, more=more, searches=True)
        self.eunomia("submit", str(app))

    def hurry(self) -> None:
        """Let all jobs end soon."""
        (self.folder / HURRY).touch()

    def cable(self, one: Node, other: Node | None = None) -> Cable:
        """The connection of a node with another one, or with the arbiter's machine."""
        return self.net.between(one.machine, self.head if other is None else other.machine)


@contextlib.contextmanager
def cluster(folder: Path, nodes: int) -> Iterator[Cluster]:
    """Make a network for an arbiter and a number of nodes; all is ended and gone afterwards."""
    with network(nodes + 1) as net:
        made = Cluster(folder, net)
        try:
            yield made
        finally:
            made.close()


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
