"""The pods of a cluster: the arbiter's, and a launcher's."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from eunomia.words import exact_duration
from eunomia_engines.kubernetes.request import ARBITER_PORT, LAUNCHER_PORT, METRICS_PORT, KubernetesCluster, NodeKind

USER: Final = 10001
"""The account of all pods, which the Dockerfile makes."""
STATE: Final = "/var/lib/eunomia"
APPS: Final = f"{STATE}/apps"
WORK: Final = "/srv/eunomia"
"""Folder for what users submit, with one path in all pods."""
HOME: Final = "/home/eunomia"
TLS: Final = f"{STATE}/tls"
TLS_SECRET: Final = "/run/eunomia/tls"
JOIN: Final = "/run/eunomia/join"
NODE_DIR: Final = "/var/lib/eunomia-node"
CERTIFICATE_DAYS: Final = 3650
ARBITER_END_SECONDS: Final = 60
"""Of the arbiter's pod between SIGTERM and SIGKILL; its nodes go on by longer leases meanwhile."""
ARBITER_CPUS, ARBITER_MEMORY = "2", "4Gi"
ORDERED_END: Final = 143
"""Exit code of a Job's launcher that Kubernetes has ordered to end (128 + SIGTERM); 0 would complete its index."""
SUPERVISE: Final = (
    '"$@" & launcher=$!; trap "ordered=1; kill -TERM $launcher" TERM; wait $launcher; code=$?; '
    'test -z "$ordered" && exit $code; '
    f"while kill -0 $launcher 2>/dev/null; do wait $launcher; done; exit {ORDERED_END}"
)
"""Shell script that runs its arguments: their exit code, or ``ORDERED_END`` once they have ended after a SIGTERM."""


def labels_of(cluster: KubernetesCluster, component: str) -> dict[str, str]:
    """Return the labels by which a component's pods are found: ``arbiter`` or ``launcher``."""
    return {
        "app.kubernetes.io/name": "eunomia",
        "app.kubernetes.io/instance": cluster.name,
        "app.kubernetes.io/component": component,
    }


def arbiter_pod(cluster: KubernetesCluster) -> dict[str, Any]:
    """Return the arbiter's pod; the volume ``state`` comes from the StatefulSet."""
    volumes: list[dict[str, Any]] = [_claim(cluster), {"name": "tmp", "emptyDir": {}}]
    mounts = [{"name": "state", "mountPath": STATE}, *_shared_mounts(cluster), {"name": "tmp", "mountPath": "/tmp"}]
    if cluster.tls_secret:
        volumes.append({"name": "tls", "secret": {"secretName": cluster.tls_secret, "defaultMode": 0o440}})
        mounts.append({"name": "tls", "mountPath": TLS_SECRET, "readOnly": True})
    container = {
        "name": "arbiter",
        "image": cluster.image,
        "args": serve_command(cluster),
        "env": [_env("EUNOMIA_STATE_DIR", STATE), _env("HOME", "/tmp")],
        "ports": [
            {"name": "arbiter", "containerPort": ARBITER_PORT},
            {"name": "metrics", "containerPort": METRICS_PORT},
        ],
        # /health is 503 while no node answers, which is no reason to end the arbiter; /metrics is 200 from the start.
        "startupProbe": _probe("/metrics", period=10, failures=60),
        "livenessProbe": _probe("/metrics", period=30, failures=10),
        "readinessProbe": _probe("/health", period=10, failures=3),
        "resources": _resources({"cpu": ARBITER_CPUS, "memory": ARBITER_MEMORY}),
        "securityContext": _confined(),
        "volumeMounts": mounts,
    }
    pod = _pod(cluster, "arbiter", volumes, container, ARBITER_END_SECONDS)
    if not cluster.tls_secret:
        pod["initContainers"] = [
            {
                "name": "certificates",
                "image": cluster.image,
                "args": ["sh", "-c", _make_certificates(cluster)],
                "resources": _resources({"cpu": "1", "memory": "1Gi"}),
                "securityContext": _confined(),
                "volumeMounts": [{"name": "state", "mountPath": STATE}, {"name": "tmp", "mountPath": "/tmp"}],
            }
        ]
    return pod


def launcher_pod(cluster: KubernetesCluster, kind: NodeKind) -> dict[str, Any]:
    """Return a launcher's pod, which holds all GPUs of its node.

    In a Job, the arbiter's node has the pod's host name, ``NAME-KIND-INDEX``; in a DaemonSet, the machine's name.
    """
    slots = kind.gpus or cluster.cpu_slots
    amounts = {"cpu": str(cluster.cpus * slots), "memory": str(cluster.memory.times(slots))}
    if kind.gpus:
        amounts["nvidia.com/gpu"] = str(kind.gpus)
    volumes: list[dict[str, Any]] = [
        _claim(cluster),
        {"name": "join", "secret": {"secretName": f"{cluster.name}-join", "defaultMode": 0o440}},
        *({"name": name, "emptyDir": {}} for name in ("node", "tmp", "home")),
        {"name": "shm", "emptyDir": {"medium": "Memory"}},
    ]
    machine = {"name": "EUNOMIA_MACHINE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    container = {
        "name": "launcher",
        "image": cluster.image,
        "args": [*(("sh", "-c", SUPERVISE, "sh") if cluster.nodes else ()), *launcher_command(cluster, kind)],
        "env": [
            *([] if cluster.nodes else [machine]),
            {"name": "EUNOMIA_POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            _env("HOME", HOME),
        ],
        "ports": [{"name": "launcher", "containerPort": LAUNCHER_PORT}],
        # It listens once it has a place in the cluster. No livenessProbe: the arbiter sees a launcher that hangs.
        "readinessProbe": {"tcpSocket": {"port": "launcher"}, "periodSeconds": 10},
        "resources": _resources(amounts),
        "securityContext": _confined(),
        "volumeMounts": [
            *_shared_mounts(cluster),
            {"name": "join", "mountPath": JOIN, "readOnly": True},
            {"name": "node", "mountPath": NODE_DIR},
            {"name": "tmp", "mountPath": "/tmp"},
            {"name": "home", "mountPath": HOME},
            {"name": "shm", "mountPath": "/dev/shm"},
        ],
    }
    pod = _pod(cluster, "launcher", volumes, container, cluster.grace_seconds)
    if kind.label is not None:
        pod["nodeSelector"] = {kind.label.key: kind.label.value}
    if kind.gpus:
        pod["tolerations"] = [
            {"key": taint.key, "effect": taint.effect}
            | ({"operator": "Equal", "value": taint.value} if taint.value else {"operator": "Exists"})
            for taint in cluster.taints
        ]
    return pod


def serve_command(cluster: KubernetesCluster) -> list[str]:
    """Return the arbiter's command line."""
    cert, key, ca = (
        (f"{TLS_SECRET}/tls.crt", f"{TLS_SECRET}/tls.key", f"{TLS_SECRET}/ca.crt")
        if cluster.tls_secret
        else (f"{TLS}/cert.pem", f"{TLS}/key.pem", f"{TLS}/ca.pem")
    )
    # Kubernetes replaces $(NAME) in arguments, and $$ by $.
    settings = [word for text in cluster.settings for word in ("--set", text.replace("$", "$$"))]
    return [
        *("eunomia", "serve", "--no-launcher", "--policy", cluster.policy, *settings),
        *("--address", f"0.0.0.0:{ARBITER_PORT}", "--metrics", f"0.0.0.0:{METRICS_PORT}"),
        *("--tls-cert", cert, "--tls-key", key, "--tls-ca", ca, "--state-dir", STATE),
    ]


def launcher_command(cluster: KubernetesCluster, kind: NodeKind) -> list[str]:
    """Return a launcher's command line; Kubernetes puts the values of ``$(NAME)`` in."""
    name = [] if cluster.nodes else ["--node", "$(EUNOMIA_MACHINE)"]
    slots = [] if kind.gpus else ["--cpu-only", "--slots", str(cluster.cpu_slots)]
    return [
        *("eunomia", "launcher", "--arbiter", f"{cluster.host}:{ARBITER_PORT}", "--join", f"{JOIN}/token"),
        *("--apps", APPS, *name, "--node-dir", f"{NODE_DIR}/node", "--announce", "$(EUNOMIA_POD_IP)"),
        *("--port-range", f"{LAUNCHER_PORT}-{LAUNCHER_PORT}", *slots),
        *("--stop-seconds", exact_duration(cluster.stop_seconds)),
    ]


def _make_certificates(cluster: KubernetesCluster) -> str:
    """Return the shell command that makes the certificate at the first start, whole or not at all."""
    names = " ".join(f"--name {name}" for name in (cluster.host, f"{cluster.host}.cluster.local"))
    made = f"eunomia certificates {TLS}.new {names} --days {CERTIFICATE_DAYS}"
    return f"test -d {TLS} || {{ rm -rf {TLS}.new && {made} && mv {TLS}.new {TLS}; }}"


def _pod(
    cluster: KubernetesCluster,
    component: str,
    volumes: Sequence[Mapping[str, Any]],
    container: Mapping[str, Any],
    end: int,
) -> dict[str, Any]:
    return {
        "serviceAccountName": f"{cluster.name}-{component}",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,  # else a Service's name sets variables such as EUNOMIA_PORT
        "terminationGracePeriodSeconds": end,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "fsGroupChangePolicy": "OnRootMismatch",  # else each start opens the token's file to the group
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [dict(container)],
        "volumes": list(volumes),
    }


def _claim(cluster: KubernetesCluster) -> dict[str, Any]:
    return {"name": "shared", "persistentVolumeClaim": {"claimName": cluster.shared_claim}}


def _shared_mounts(cluster: KubernetesCluster) -> list[dict[str, Any]]:
    folders = ((APPS, "apps"), (WORK, "work"))
    return [{"name": "shared", "mountPath": at, "subPath": f"{cluster.name}/{folder}"} for at, folder in folders]


def _env(name: str, text: str) -> dict[str, Any]:
    return {"name": name, "value": text}


def _probe(path: str, *, period: int, failures: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": path, "port": "metrics", "scheme": "HTTPS"},
        "periodSeconds": period,
        "timeoutSeconds": 12,  # an answer waits for the end of a step, at most 10 s
        "failureThreshold": failures,
    }


def _resources(amounts: Mapping[str, str]) -> dict[str, Any]:
    return {"requests": dict(amounts), "limits": dict(amounts)}


def _confined() -> dict[str, Any]:
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
