"""A user of a test's Ray cluster: a state folder that all nodes see, searches, and what is left of them."""

import contextlib
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.engines.ray_lab import RayLab

from eunomia_appmaster.app.trials_file import read_trials_file
from eunomia_appmaster.launcher.processes import ProcessId
from eunomia_engines.pilots.names import private_folder
from eunomia_engines.ray.launchers import NodeRecord, read_record
from eunomia_engines.requests import mark_of

WORKER = Path(__file__).parent.parent / "appmaster" / "tiny_worker.py"
SPACE = '[space]\nlr = { type = "float", low = 0.01, high = 0.6 }\n'
TUNERS = {
    "halving": 'kind = "successive_halving"\ntrials = 9',
    "bands": 'kind = "hyperband"\nmin_iterations = 25\ntrials = 8',
    "all": 'kind = "none"\ntrials = 5',
}
"""Tuners whose choices depend on what trials reach, and not on when."""


def app_file(name: str, *, iterations: int, seconds: float) -> str:
    """An app file with one of ``TUNERS``, or of a single job."""
    tuner = f'[tuner]\n{TUNERS[name]}\nmetric = "val/accuracy"\nseed = 3\n{SPACE}' if name in TUNERS else ""
    lr = "--lr {lr} " if tuner else ""
    job = f'command = "python train.py {lr}--seconds {seconds} --every 20"\nslots = 1\nmax_iterations = {iterations}\n'
    return f'[app]\nname = "{name}"\n{tuner}[job]\n{job}checkpoint_every = "5s"\n'


class RaySite:
    """A state folder on a cluster.

    Args:
        lab: the cluster.
        folder: of all files.
    """

    def __init__(self, lab: RayLab, folder: Path) -> None:
        self.lab, self.folder = lab, folder
        self.state, self.node_dir = folder / "state", folder / "local"
        self.node_dir.mkdir()
        shutil.copy(WORKER, folder / "train.py")

    def eunomia(self, *words: str, fails: bool = False) -> str:
        """Run a command and return its output."""
        command = [sys.executable, "-m", "eunomia.cli", *words, "--state-dir", str(self.state)]
        made = subprocess.run(command, capture_output=True, text=True, check=False, timeout=400, env=self.lab.env)
        assert (made.returncode != 0) == fails, f"{words}: {made.stdout} {made.stderr} {self.head_log()}"
        return made.stdout + made.stderr

    def up(self, *more: str, slots: int = 2) -> None:
        """Begin, with two slots a node."""
        self.eunomia("ray", "up", "--cpu-slots", str(slots), "--node-dir", str(self.node_dir), *more)

    def submit(self, name: str, *, iterations: int = 200, seconds: float = 0.02) -> None:
        """Submit an app of ``app_file``."""
        path = self.folder / f"{name}.toml"
        path.write_text(app_file(name, iterations=iterations, seconds=seconds), encoding="utf-8")
        self.eunomia("submit", str(path))

    def nodes(self) -> list[dict[str, Any]]:
        """The actors, with the nodes whose launchers they watch."""
        return list(json.loads(self.eunomia("ray", "status", "--json"))["nodes"])

    def up_nodes(self) -> list[str]:
        """Names of the arbiter's nodes that are up."""
        return sorted(
            row["node"] for row in json.loads(self.eunomia("nodes", "--json"))["nodes"] if row["state"] == "up"
        )

    def apps(self) -> dict[str, str]:
        """The states of all apps."""
        return {app["app"]: app["state"] for app in json.loads(self.eunomia("apps", "--all", "--json"))["apps"]}

    def held(self) -> int:
        """The slots that apps hold."""
        return sum(app["slots"] for app in json.loads(self.eunomia("apps", "--all", "--json"))["apps"])

    def record(self, node: str) -> NodeRecord:
        """Who runs a node's launcher."""
        found = read_record(private_folder(self.node_dir, mark_of(self.state)), node)
        assert found is not None, node
        return found

    def launcher(self, node: str) -> ProcessId:
        """The launcher of a node."""
        found = self.record(node).launcher
        assert found is not None, node
        return found

    def launchers(self) -> set[int]:
        """Pids of all launchers of this cluster's nodes, whoever knows of them."""
        found = set()
        for pid in self.lab.left():
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"eunomia: launcher"):
                    found.add(pid)
        return found

    def actor_pid(self, node: str) -> int:
        """The pid of a node's actor."""
        code = f"print(ray.get(ray.get_actor('eunomia-launcher-{node}').pid.remote(), timeout=60))"
        return int(self.lab.driver(code, namespace=f"eunomia-{mark_of(self.state)}").split()[-1])

    def head_log(self) -> str:
        """The last lines of the head."""
        path = self.state / "engine" / "ray" / "head.log"
        return "\n".join(path.read_text().splitlines()[-30:]) if path.exists() else "no head"

    def left(self) -> list[str]:
        """What is left of an arbiter that is down: processes, files on nodes."""
        processes = subprocess.run(["pgrep", "-af", str(self.state)], capture_output=True, text=True, check=False)
        return [*processes.stdout.splitlines(), *map(str, self.launchers()), *map(str, self.node_dir.rglob("*"))]


def results(state: Path) -> Mapping[str, tuple[str, str]]:
    """State and iterations of each trial of all apps, which are the results that a user compares."""
    rows = [row for folder in sorted((state / "apps").iterdir()) for row in read_trials_file(folder)]
    return {row["job"]: (row["state"], row["iterations"]) for row in rows}


def wait(done: Callable[[], bool], what: str, seconds: float = 300.0) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, what
        time.sleep(1.0)
