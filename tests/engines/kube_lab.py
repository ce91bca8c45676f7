"""An engine of Kubernetes with the client of Kubernetes and an API server of a test behind it."""

import copy
from pathlib import Path
from typing import Any

import pytest
from tests.engines.fake_kube_api import FakeKube, KubeServer

from eunomia_engines.kubernetes.api import KEEPER_LABEL, KubeApi
from eunomia_engines.kubernetes.engine import KubernetesEngine, KubernetesKind
from eunomia_engines.kubernetes.keep_request import KeepRequest
from eunomia_engines.testing.conformance import Saying

WITHOUT_CLIENT = "needs the package kubernetes (the extra kubernetes); 37.0.2 was tried"


def client_of(server: KubeServer) -> Any:
    """A client of Kubernetes as ``connect`` makes it, without a kubeconfig on disk."""
    client = pytest.importorskip("kubernetes", reason=WITHOUT_CLIENT).client
    made = client.Configuration(host=f"http://127.0.0.1:{server.port}")
    made.retries, made.proxy = False, None
    return client.ApiClient(made)


def request_of(keeper: str, *, least: int = 1, most: int = 2, namespace: str = "team") -> KeepRequest:
    """A request for nodes in the name of a cluster."""
    labels = {KEEPER_LABEL: keeper, "app.kubernetes.io/instance": keeper}
    pod = {"containers": [{"name": "launcher", "image": "lab/eunomia:1"}], "restartPolicy": "Never"}
    spec = {"completions": 1, "parallelism": 1, "template": {"metadata": {"labels": labels}, "spec": pod}}
    meta = {"name": f"{keeper}-a100", "namespace": namespace, "labels": labels}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}
    return KeepRequest(least=least, most=most, job=job)


def engine_of(server: KubeServer, state: Path, request: KeepRequest) -> KubernetesEngine:
    """The engine of a state folder."""
    request.save(state)
    return KubernetesEngine(request, state, KubeApi(client_of(server), request.namespace, request.keeper))


class KubeLab:
    """A server whose Jobs a test moves."""

    sayings = frozenset(Saying)
    seconds = 0.0

    def __init__(self, folder: Path) -> None:
        self.server = KubeServer(FakeKube())
        self.kube = self.server.kube
        self.kind = KubernetesKind(lambda: client_of(self.server))
        self.states = (folder / "a", folder / "b")
        for state in self.states:
            request_of(state.name).save(state)

    def give(self, node: str) -> None:
        self.kube.settle()
        (pod,) = self.kube.pods_of(self.kube.job(node))
        self.kube.run_pod(pod, f"gpu{self.kube.version}")

    def end(self, node: str) -> None:
        for pod in self.kube.pods_of(self.kube.job(node)):
            self.kube.end_pod(pod, 0)
        self.kube.settle()

    def say(self, node: str, saying: Saying) -> None:
        job = self.kube.job(node)
        (pod,) = self.kube.pods_of(job)
        if saying is Saying.STRANGE_STATE:
            pod["status"]["phase"] = "Hibernating"
        elif saying is Saying.NO_TIMES:
            pod["status"]["startTime"], job["metadata"]["creationTimestamp"] = "yesterday", None
        elif saying is Saying.NOT_LISTED:
            self.kube.hidden.add(job["metadata"]["name"])
        else:
            other = copy.deepcopy(job)
            if saying is Saying.CONTRADICTION:
                other["metadata"]["deletionTimestamp"] = "2026-11-29T10:00:00Z"
            self.kube.repeated[job["metadata"]["name"]] = [other]

    def refuse(self) -> None:
        quota = 'jobs.batch "a" is forbidden: exceeded quota: gpus, requested: count/jobs.batch=1, used: 4, limited: 4'
        self.kube.refusal = (403, "Forbidden", quota)

    def silence(self) -> None:
        self.server.stop()

    def close(self) -> None:
        if not self.server.ended.is_set():
            self.server.stop()
