"""A search on nodes that the keeper asks a test's API server for: real arbiter, keeper, client and launchers.

What stands for a kubelet runs a pod's command line on this host, under the pod's host name.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.engines.fake_kube_api import KubeServer, Object, kube_server
from tests.engines.kube_lab import WITHOUT_CLIENT

from engines.kube_clusters import cluster_of
from eunomia_appmaster.journal_check import check_folder
from eunomia_engines.kubernetes.manifests import keep_request
from eunomia_engines.kubernetes.pods import APPS, JOIN, KEEP, NODE_DIR

CAN_NAME = shutil.which("unshare") is not None and os.geteuid() == 0
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not CAN_NAME, reason="needs root and unshare: each pod has a host name of its own"),
]
WORKER = Path(__file__).parent.parent / "appmaster" / "tiny_worker.py"
SEARCH = """
[app]
name = "nets"
[tuner]
kind = "none"
metric = "val/accuracy"
mode = "max"
trials = 8
[space]
lr = { type = "float", low = 0.01, high = 0.6 }
[job]
command = "python train.py --lr {lr} --seconds 1.0 --every 5"
slots = 1
max_iterations = 30
checkpoint_every = "5s"
"""


class Kubelet:
    """Runs pods as processes of this host, tells the server how they end, and plays its controllers."""

    def __init__(self, server: KubeServer, folder: Path, arbiter: str) -> None:
        self.server, self.folder, self.arbiter = server, folder, arbiter
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.most = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        kube = self.server.kube
        while not self._stopped.wait(0.2):
            with kube.changed:
                kube.settle()
                for pod in list(kube.objects["pods"].values()):
                    self._step(pod)
                self.most = max(self.most, sum(one.poll() is None for one in self.processes.values()))

    def _step(self, pod: Object) -> None:
        kube, name, phase = self.server.kube, pod["metadata"]["name"], pod["status"]["phase"]
        process = self.processes.get(name)
        is_ending = bool(pod["metadata"].get("deletionTimestamp"))
        if phase == "Pending" and process is None and not is_ending:
            self.processes[name] = self._start(pod)
            kube.run_pod(pod, "this-machine")
        elif process is None and is_ending:
            kube.end_pod(pod, 143)
        elif process is not None and process.poll() is not None and phase == "Running":
            kube.end_pod(pod, process.returncode)
        elif process is not None and is_ending and not (self.folder / f"{name}.ended").exists():
            (self.folder / f"{name}.ended").touch()
            process.send_signal(signal.SIGTERM)

    def _start(self, pod: Object) -> "subprocess.Popen[bytes]":
        """Run a pod's command line; only paths, the network and the host name are of this host."""
        (container,) = pod["spec"]["containers"]
        name, job = pod["metadata"]["name"], pod["metadata"]["ownerReferences"][0]
        own = self.folder / name
        own.mkdir()
        values = {
            "EUNOMIA_POD_IP": "127.0.0.1",
            "EUNOMIA_MACHINE": "this-machine",
            "EUNOMIA_POD": name,
            "EUNOMIA_JOB": job["uid"],
        }
        paths = {APPS: self.folder / "state" / "apps", JOIN: self.folder, NODE_DIR: own, KEEP: self.folder / "keep"}
        words = []
        for word in container["args"]:
            word = re.sub(r"\$\((\w+)\)", lambda found: values[found[1]], word)
            for before, after in paths.items():
                word = word.replace(before, str(after))
            words.append(word)
        words[words.index("--arbiter") + 1] = self.arbiter
        words[words.index("--port-range") + 1] = "20000-29999"
        at = words.index("eunomia")
        words[at : at + 1] = [sys.executable, "-m", "eunomia.cli"]
        named = ["unshare", "--uts", "sh", "-c", 'hostname "$0"; exec "$@"', f"{job['name']}-0"]
        with (own / "log").open("wb") as log:
            return subprocess.Popen([*named, *words], stdout=log, stderr=log, cwd=own)

    def logs(self) -> str:
        """The end of each pod's log."""
        return "\n".join(f"{path}: {path.read_text()[-600:]}" for path in self.folder.glob("*/log"))

    def close(self) -> None:
        self._stopped.set()
        self._thread.join()
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.processes.values():
            process.wait(60)


class Site:
    """An arbiter, its keeper, and what stands for a cluster."""

    def __init__(self, server: KubeServer, folder: Path) -> None:
        self.server, self.folder, self.state = server, folder, folder / "state"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        (folder / "keep" / "pilots").mkdir(parents=True)
        (folder / "token").touch(mode=0o600)
        (folder / "config").write_text(server.kubeconfig("eunomia"))
        server.kube.namespaces = ("eunomia",)
        cluster = cluster_of("cpu_job", nodes="1..2", cpu_slots=2, wait="1s", idle="5s")
        (folder / "request.json").write_text(keep_request(cluster).text())
        shutil.copy(WORKER, folder / "train.py")
        self.serving = self.start("serve", "--no-launcher", "--address", self.address)
        wait(lambda: (self.state / "run" / "token").exists(), "the arbiter serves", 60.0)
        wait(lambda: self.try_token(folder / "token"), "a token is made", 60.0)
        self.kubelet = Kubelet(server, folder, self.address)
        self.keeping = self.keep()

    def keep(self) -> "subprocess.Popen[bytes]":
        request, records = str(self.folder / "request.json"), str(self.folder / "keep")
        return self.start("kubernetes", "keep", "--request", request, "--records", records)

    def start(self, *words: str) -> "subprocess.Popen[bytes]":
        env = {**os.environ, "KUBECONFIG": str(self.folder / "config")}
        env.pop("KUBERNETES_SERVICE_HOST", None)
        with (self.folder / f"{words[0]}.log").open("ab") as log:
            command = [sys.executable, "-m", "eunomia.cli", *words, "--state-dir", str(self.state)]
            return subprocess.Popen(command, stdout=log, stderr=log, env=env)

    def eunomia(self, *words: str) -> str:
        command = [sys.executable, "-m", "eunomia.cli", *words, "--state-dir", str(self.state)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"{words}: {done.stderr}\n{self.said()}"
        return done.stdout

    def try_token(self, path: Path) -> bool:
        words = ["nodes", "token", "--reusable", "--state-dir", str(self.state)]
        done = subprocess.run([sys.executable, "-m", "eunomia.cli", *words], capture_output=True, text=True, timeout=60)
        path.write_text(done.stdout)
        return done.returncode == 0

    def app(self) -> dict[str, Any]:
        (app,) = json.loads(self.eunomia("apps", "--all", "--json"))["apps"]
        return dict(app)

    def living(self) -> int:
        """Jobs that are neither over nor being deleted."""
        with self.server.kube.changed:
            return sum(
                not job["metadata"].get("deletionTimestamp") and not job["status"].get("conditions")
                for job in self.server.kube.objects["jobs"].values()
            )

    def said(self) -> str:
        logs = [self.folder / "serve.log", self.folder / "kubernetes.log"]
        return "\n".join(path.read_text()[-2000:] for path in logs if path.exists()) + self.kubelet.logs()

    def close(self) -> None:
        for process in (self.keeping, self.serving):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            process.wait(90)
        self.kubelet.close()


def wait(done: Callable[[], bool], what: str, seconds: float) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, what
        time.sleep(0.5)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    pytest.importorskip("kubernetes", reason=WITHOUT_CLIENT)
    with kube_server() as server:
        made = Site(server, tmp_path)
        try:
            yield made
        finally:
            made.close()


def test_a_search_finishes_on_jobs_that_are_asked_for_evicted_and_given_back(site: Site) -> None:
    kube = site.server.kube
    wait(lambda: '"up"' in site.eunomia("nodes", "--json"), "a first node joins", 120.0)
    (site.folder / "app.toml").write_text(SEARCH)
    site.eunomia("submit", str(site.folder / "app.toml"))
    wait(lambda: site.kubelet.most == 2, "a second node is asked for while trials wait", 180.0)

    with kube.changed:  # Kubernetes evicts the first one
        first = next(pod for pod in kube.objects["pods"].values() if pod["status"]["phase"] == "Running")
        kube.delete_pod(first)
    wait(lambda: len(site.kubelet.processes) == 3, f"its Job makes another pod {site.said()}", 120.0)
    site.keeping.kill()  # the keeper is killed, and its container begins again
    site.keeping.wait(30)
    site.server.stop()  # the API server starts again, too
    site.keeping = site.keep()
    time.sleep(2.0)
    site.server.start(forgets=True)

    wait(lambda: site.app()["state"] == "finished", f"the search finishes {site.said()}", 400.0)
    wait(lambda: site.living() == 1, f"the idle node is given back {site.said()}", 200.0)
    assert len(kube.created) == 2, "the evicted pod was replaced by its own Job"
    assert [str(finding) for finding in check_folder(site.state, over=True).findings] == []
    site.close()
    assert all(process.poll() is not None for process in site.kubelet.processes.values())
