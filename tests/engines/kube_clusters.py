"""Clusters of the tests, as a user writes them, and their golden files; run it to write these again."""

from pathlib import Path
from typing import Any

from eunomia_engines.commands.kubernetes import ManifestFlags
from eunomia_engines.kubernetes.manifests import manifest
from eunomia_engines.kubernetes.request import KubernetesCluster

GOLDEN = Path(__file__).parent / "golden"
IMAGE = "registry.example:5000/lab/eunomia:1.0"
BASE: dict[str, Any] = {"image": IMAGE, "shared_class": "nfs-client"}
CLUSTERS: dict[str, dict[str, Any]] = {
    "daemon_sets": {
        **BASE,
        "namespace": "ml",
        "policy": "themis",
        "settings": ["rounds.lease=10m"],
        "kind": ["a100:4@nvidia.com/gpu.product=NVIDIA-A100-SXM4-40GB", "t4:1@nvidia.com/gpu.product=Tesla-T4"],
        "taint": ["nvidia.com/gpu", "lab.example/owner=ml:NoExecute"],
        "memory": "48Gi",
        "cpus": 8,
        "save": "2m",
        "state_class": "local-ssd",
    },
    "queued_job": {
        "image": "lab/eunomia@sha256:" + "0123456789abcdef" * 4,
        "name": "search",
        "namespace": "team-vision",
        "kind": ["h100:8"],
        "nodes": "3",
        "queue": "team-vision-queue",
        "shared_claim": "team-files",
        "tls_secret": "search-tls",
    },
    "cpu_job": {**BASE, "kind": ["cpu:0"], "cpu_slots": 4, "nodes": "2", "cpus": 1, "memory": "2Gi"},
    "kept_jobs": {
        **BASE,
        "namespace": "ml",
        "kind": ["a100:4@nvidia.com/gpu.product=NVIDIA-A100-SXM4-40GB"],
        "nodes": "2..8",
        "queue": "team",
        "idle": "15m",
    },
}


def cluster_of(name: str, /, **more: Any) -> KubernetesCluster:
    """A cluster, with other flags."""
    return ManifestFlags(**(CLUSTERS[name] | more)).cluster()


def text_of(name: str, /, **more: Any) -> str:
    """The manifest of a cluster."""
    return manifest(cluster_of(name, **more))


if __name__ == "__main__":
    for each in CLUSTERS:
        (GOLDEN / f"{each}.yaml").write_text(text_of(each))
