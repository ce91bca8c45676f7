"""The pods of a cluster: the arbiter's, and a launcher's."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from eunomia.words import exact_duration
from eunomia_engines.kubernetes.request import ARBITER_PORT, LAUNCHER_PORT, METRICS_PORT, KubernetesCluster, NodeKind
from eunomia_engines.kubernetes.states import CONTROLLER_LABEL
from eunomia_engines.pilots.records import PILOTS
from eunomia_engines.requests import REQUEST

USER: Final = 10001
"""User id of all pods, whose account the Dockerfile creates."""
STATE: Final = "/var/lib/eunomia"
APPS: Final = f"{STATE}/apps"
WORK: Final = "/srv/eunomia"
"""Folder for the files of users' jobs, at the same path in all pods."""
HOME: Final = "/home/eunomia"
TLS: Final = f"{STATE}/tls"
TLS_SECRET: Final = "/run/eunomia/tls"
JOIN: Final = "/run/eunomia/join"
NODE_DIR: Final = "/var/lib/eunomia-node"
JOB_UID: Final = f"metadata.labels['{CONTROLLER_LABEL}']"
"""Field path from which a pod reads the uid of its Job."""
CERTIFICATE_DAYS: Final = 3650
ARBITER_END_SECONDS: Final = 60
"""Seconds between SIGTERM and SIGKILL of the arbiter's pod; its nodes' leases are longer, so nodes keep running."""
ARBITER_CPUS, ARBITER_MEMORY = "2", "4Gi"
ORDERED_END: Final = 143
"""Exit code of a Job's launcher that Kubernetes has ordered to end (128 + SIGTERM); code 0 would complete its index."""
SUPERVISE: Final = (
    '"$@" & launcher=$!; trap "ordered=1; kill -TERM $launcher" TERM; wait $launcher; code=$?; '
    'test -z "$ordered" && exit $code; '
    f"while kill -0 $launcher 2>/dev/null; do wait $launcher; done; exit {ORDERED_END}"
)
"""Shell script that runs its arguments as a command; exits with its code, but after a SIGTERM with ``ORDERED_END``."""
KEEP: Final = "/var/lib/eunomia-keep"
RECORDS: Final = f"{KEEP}/{PILOTS}"
"""Folder of the records of pilots, shared by keeper and nodes."""
KEEP_REQUEST: Final = "/run/eunomia/keep"
API_ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Folder in which the client looks for the account's token; only the keeper's container has a token."""
RECORD_SUPERVISE: Final = (
    'r=$0; pod=$1; machine=$2; shift 2; rm -f "$r.end"; '
    'printf \'{"job":"%s","node":"%s","host":"%s","pod":"%s","began_at":%s}\\n\' '
    '"${r##*/}" "`uname -n`" "$machine" "$pod" "`date +%s`" > "$r.$pod" && mv "$r.$pod" "$r.json"; '
    '"$@" & launcher=$!; trap "ordered=1; kill -TERM $launcher" TERM; wait $launcher; code=$?; '
    "while kill -0 $launcher 2>/dev/null; do wait $launcher; code=$?; done; "
    'grep -qs "\\"$pod\\"" "$r.json" && echo $code > "$r.$pod" && mv "$r.$pod" "$r.end"; '
    f'test -z "$ordered" && exit $code; exit {ORDERED_END}'
)
"""Shell script as ``SUPERVISE`` that also writes the pilot's record, and the launcher's exit code after its end.

Its arguments are the record's path without a suffix, the pod, the machine, and the command. A pod that was cut off from
the network writes no exit code once the Job's next pod has started.
"""


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
        # /health is 503 while no node answers, which must not end the arbiter; /metrics is 200 from the start.
        "startupProbe": _probe("/metrics", period=10, failures=60),
        "livenessProbe": _probe("/metrics", period=30, failures=10),
        "readinessProbe": _probe("/health", period=10, failures=3),
        "resources": _resources({"cpu": ARBITER_CPUS, "memory": ARBITER_MEMORY}),
        "securityContext": _confined(),
        "volumeMounts": mounts,
    }
    pod = _pod(cluster, "arbiter", volumes, container, ARBITER_END_SECONDS)
    if cluster.is_kept:
        pod["containers"].append(_keeper(cluster))
        pod["volumes"] += _keeper_volumes(cluster)
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


def _keeper(cluster: KubernetesCluster) -> dict[str, Any]:
    """Return the keeper's container, the only one with a token for the API server."""
    return {
        "name": "keeper",
        "image": cluster.image,
        "args": keep_command(),
        "env": [_env("EUNOMIA_STATE_DIR", STATE), _env("HOME", "/tmp")],
        "resources": _resources({"cpu": "1", "memory": "1Gi"}),
        "securityContext": _confined(),
        "volumeMounts": [
            {"name": "state", "mountPath": STATE},
            {"name": "shared", "mountPath": RECORDS, "subPath": f"{cluster.name}/{PILOTS}"},
            {"name": "tmp", "mountPath": "/tmp"},
            {"name": "keep", "mountPath": KEEP_REQUEST, "readOnly": True},
            {"name": "account", "mountPath": API_ACCOUNT, "readOnly": True},
        ],
    }


def _keeper_volumes(cluster: KubernetesCluster) -> list[dict[str, Any]]:
    """Return the volumes with the keeper's request, and with the token that Kubernetes mounts for an account."""
    account = [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
    ]
    return [
        {"name": "keep", "configMap": {"name": f"{cluster.name}-keep"}},
        {"name": "account", "projected": {"sources": account, "defaultMode": 0o440}},
    ]


def keep_command() -> list[str]:
    """Return the keeper's command line."""
    return [
        *("eunomia", "kubernetes", "keep", "--request", f"{KEEP_REQUEST}/{REQUEST}", "--records", KEEP),
        *("--state-dir", STATE),
    ]


def launcher_pod(cluster: KubernetesCluster, kind: NodeKind) -> dict[str, Any]:
    """Return a launcher's pod, which requests all GPUs of its node.

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
    env = {"EUNOMIA_POD_IP": "status.podIP"}
    if cluster.is_kept:
        env |= {"EUNOMIA_MACHINE": "spec.nodeName", "EUNOMIA_POD": "metadata.name", "EUNOMIA_JOB": JOB_UID}
    elif not cluster.nodes:
        env = {"EUNOMIA_MACHINE": "spec.nodeName", **env}
    records = {"name": "shared", "mountPath": RECORDS, "subPath": f"{cluster.name}/{PILOTS}"}
    container = {
        "name": "launcher",
        "image": cluster.image,
        "args": [*_supervise(cluster), *launcher_command(cluster, kind)],
        "env": [
            *({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in env.items()),
            _env("HOME", HOME),
        ],
        "ports": [{"name": "launcher", "containerPort": LAUNCHER_PORT}],
        # A launcher listens once it has joined. No livenessProbe: the arbiter detects a launcher that hangs.
        "readinessProbe": {"tcpSocket": {"port": "launcher"}, "periodSeconds": 10},
        "resources": _resources(amounts),
        "securityContext": _confined(),
        "volumeMounts": [
            *_shared_mounts(cluster),
            *([records] if cluster.is_kept else []),
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


def _supervise(cluster: KubernetesCluster) -> list[str]:
    """Return the prefix of a launcher's command line: empty in a DaemonSet, a supervising shell in a Job."""
    if cluster.is_kept:
        return ["sh", "-c", RECORD_SUPERVISE, f"{RECORDS}/$(EUNOMIA_JOB)", "$(EUNOMIA_POD)", "$(EUNOMIA_MACHINE)"]
    return ["sh", "-c", SUPERVISE, "sh"] if cluster.nodes else []


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
    """Return a launcher's command line, in which Kubernetes replaces ``$(NAME)`` by values."""
    name = [] if cluster.nodes else ["--node", "$(EUNOMIA_MACHINE)"]
    slots = [] if kind.gpus else ["--cpu-only", "--slots", str(cluster.cpu_slots)]
    return [
        *("eunomia", "launcher", "--arbiter", f"{cluster.host}:{ARBITER_PORT}", "--join", f"{JOIN}/token"),
        *("--apps", APPS, *name, "--node-dir", f"{NODE_DIR}/node", "--announce", "$(EUNOMIA_POD_IP)"),
        *("--port-range", f"{LAUNCHER_PORT}-{LAUNCHER_PORT}", *slots),
        *("--stop-seconds", exact_duration(cluster.stop_seconds)),
    ]


def _make_certificates(cluster: KubernetesCluster) -> str:
    """Return the shell command that creates the certificates atomically at the first start."""
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
        "timeoutSeconds": 12,  # the answer may wait up to 10 s for the end of a step
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
