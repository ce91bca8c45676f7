"""The objects of a cluster: what ``eunomia kubernetes manifest`` prints."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from eunomia_engines.kubernetes.api import KEEPER_LABEL, RIGHTS
from eunomia_engines.kubernetes.keep_request import KeepRequest
from eunomia_engines.kubernetes.pods import APPS, ORDERED_END, WORK, arbiter_pod, labels_of, launcher_pod
from eunomia_engines.kubernetes.request import ARBITER_PORT, LAUNCHER_PORT, METRICS_PORT, KubernetesCluster, NodeKind
from eunomia_engines.kubernetes.yaml_text import yaml_text
from eunomia_engines.requests import REQUEST

Document = dict[str, Any]
QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
CLIENT_LABEL: Final = "eunomia-client"
"""Pods of the namespace with this label, whose value is the cluster's name, may call the arbiter."""
KIND_LABEL: Final = "eunomia-kind"
MOST_FAILURES: Final = 50
"""Failures of a Job's node after which the node is not restarted; an end that Kubernetes ordered is not a failure."""
KEPT_FAILURES: Final = 5
"""Failures of a kept node after which its Job fails; the keeper then requests another node, after a pause."""
KEPT_SECONDS: Final = 3600
"""Seconds after which Kubernetes deletes the Job of an ended node; until then the node's log can be read."""


def manifest(cluster: KubernetesCluster) -> str:
    """Return the manifest of a cluster as YAML, with instructions in a comment."""
    return "".join(f"# {line}\n".replace("# \n", "#\n") for line in _notes(cluster)) + yaml_text(documents(cluster))


def documents(cluster: KubernetesCluster) -> Sequence[Document]:
    """Return the objects of a cluster, in an order in which they can be created."""
    return list(_documents(cluster))


def _documents(cluster: KubernetesCluster) -> Iterator[Document]:
    for component in ("arbiter", "launcher"):
        name = f"{cluster.name}-{component}"
        yield {**_head(cluster, "v1", "ServiceAccount", name), "automountServiceAccountToken": False}
    if not cluster.storage.shared_claim:
        spec = _claim_spec(cluster.storage.shared_class, str(cluster.storage.shared_size), "ReadWriteMany")
        yield {**_head(cluster, "v1", "PersistentVolumeClaim", cluster.shared_claim), "spec": spec}
    if cluster.join_token:
        secret = {"type": "Opaque", "stringData": {"token": cluster.join_token}}
        yield {**_head(cluster, "v1", "Secret", f"{cluster.name}-join"), **secret}
    if cluster.is_kept:
        yield from _keeping(cluster)
    yield _service(cluster)
    yield _arbiter_policy(cluster)
    yield _launcher_policy(cluster)
    yield _arbiter(cluster)
    for kind in () if cluster.is_kept else cluster.kinds:
        yield _job(cluster, kind) if cluster.nodes else _daemon_set(cluster, kind)


def _head(
    cluster: KubernetesCluster, version: str, kind: str, name: str, *, labels: Mapping[str, str] | None = None
) -> dict[str, Any]:
    own = {"app.kubernetes.io/name": "eunomia", "app.kubernetes.io/instance": cluster.name}
    meta = {"name": name, "namespace": cluster.namespace, "labels": own | dict(labels or {})}
    return {"apiVersion": version, "kind": kind, "metadata": meta}


def _service(cluster: KubernetesCluster) -> Document:
    """Return the arbiter's headless Service.

    The arbiter is not ready while no node answers, and nodes join through this Service, so the Service publishes the
    address of a pod that is not ready, too.
    """
    spec = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": labels_of(cluster, "arbiter"),
        "ports": [
            {"name": "arbiter", "port": ARBITER_PORT, "targetPort": "arbiter"},
            {"name": "metrics", "port": METRICS_PORT, "targetPort": "metrics"},
        ],
    }
    return {**_head(cluster, "v1", "Service", cluster.name), "spec": spec}


def _arbiter_policy(cluster: KubernetesCluster) -> Document:
    """Return the NetworkPolicy by which only launchers, app masters and labelled clients reach the arbiter."""
    clients = [_pods({CLIENT_LABEL: cluster.name})]
    calls = {"from": [_pods(labels_of(cluster, "launcher")), *clients], "ports": [_port(ARBITER_PORT)]}
    return _network_policy(cluster, "arbiter", [calls, {"from": clients, "ports": [_port(METRICS_PORT)]}])


def _launcher_policy(cluster: KubernetesCluster) -> Document:
    """Return the NetworkPolicy that the arbiter reaches launchers, and launchers, app masters and gangs each other."""
    calls_back = {"from": [_pods(labels_of(cluster, "arbiter"))], "ports": [_port(LAUNCHER_PORT)]}
    return _network_policy(cluster, "launcher", [calls_back, {"from": [_pods(labels_of(cluster, "launcher"))]}])


def _network_policy(cluster: KubernetesCluster, component: str, ingress: Sequence[Mapping[str, Any]]) -> Document:
    spec = {
        "podSelector": {"matchLabels": labels_of(cluster, component)},
        "policyTypes": ["Ingress"],
        "ingress": list(ingress),
    }
    return {**_head(cluster, "networking.k8s.io/v1", "NetworkPolicy", f"{cluster.name}-{component}"), "spec": spec}


def _arbiter(cluster: KubernetesCluster) -> Document:
    """Return the arbiter: one pod at a time, as a journal has one writer."""
    labels = labels_of(cluster, "arbiter")
    claim = {
        "metadata": {"name": "state"},
        "spec": _claim_spec(cluster.storage.state_class, str(cluster.storage.state_size), "ReadWriteOnce"),
    }
    # kubectl logs and exec then select the arbiter, if the keeper is beside it.
    main = {"annotations": {"kubectl.kubernetes.io/default-container": "arbiter"}} if cluster.is_kept else {}
    spec = {
        "serviceName": cluster.name,
        "replicas": 1,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels, **main}, "spec": arbiter_pod(cluster)},
        "volumeClaimTemplates": [claim],
    }
    return {**_head(cluster, "apps/v1", "StatefulSet", cluster.name), "spec": spec}


def _daemon_set(cluster: KubernetesCluster, kind: NodeKind) -> Document:
    """Return the launchers of a kind: one on each of its nodes, under the node's name."""
    labels = {**labels_of(cluster, "launcher"), KIND_LABEL: kind.name}
    template = {"metadata": {"labels": labels}, "spec": launcher_pod(cluster, kind)}
    spec = {
        "selector": {"matchLabels": labels},
        # The next launcher of a node starts once the previous one has ended; one node at a time.
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
        "template": template,
    }
    return {**_head(cluster, "apps/v1", "DaemonSet", f"{cluster.name}-{kind.name}"), "spec": spec}


def _keeping(cluster: KubernetesCluster) -> Iterator[Document]:
    """Yield the objects for a keeper: its rights, limited to this namespace, and its request."""
    name, rights = f"{cluster.name}-keeper", list[dict[str, Any]]()
    for verb, group, resource in RIGHTS:
        rule = {"apiGroups": [group], "resources": [resource], "verbs": [verb]}
        before = next((one for one in rights if one["resources"] == [resource]), None)
        if before is None:
            rights.append(rule)
        else:
            before["verbs"].append(verb)
    account = {"kind": "ServiceAccount", "name": f"{cluster.name}-arbiter", "namespace": cluster.namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    yield {**_head(cluster, "rbac.authorization.k8s.io/v1", "Role", name), "rules": rights}
    head = _head(cluster, "rbac.authorization.k8s.io/v1", "RoleBinding", name)
    yield {**head, "subjects": [account], "roleRef": role}
    yield {**_head(cluster, "v1", "ConfigMap", f"{cluster.name}-keep"), "data": {REQUEST: keep_request(cluster).text()}}


def keep_request(cluster: KubernetesCluster) -> KeepRequest:
    """Return the keeper's request for a cluster with a variable number of nodes."""
    return KeepRequest(
        least=cluster.nodes,
        most=cluster.most,
        idle_seconds=cluster.idle_seconds,
        wait_seconds=cluster.wait_seconds,
        end_seconds=float(cluster.grace_seconds),
        job=_job(cluster, cluster.kinds[0]),
    )


def _job(cluster: KubernetesCluster, kind: NodeKind) -> Document:
    """Return the launchers of a kind as an indexed Job, whose pods have the host names ``NAME-KIND-0`` and so on.

    In a cluster with a keeper, it is the template for the Job of one node; the keeper adds a suffix to the name.

    A pod is replaced once it has ended, not while it ends. A pod that Kubernetes ends (its machine is drained, Kueue
    suspends the Job) counts neither as completed nor as failed. The launcher of a node that the operator removed exits
    with code 0, which completes the pod's index.
    """
    kept = {KEEPER_LABEL: cluster.name} if cluster.is_kept else {}
    labels = {**labels_of(cluster, "launcher"), KIND_LABEL: kind.name, **kept}
    pod = launcher_pod(cluster, kind) | {"restartPolicy": "Never"}
    nodes = 1 if cluster.is_kept else cluster.nodes
    ordered = {"containerName": "launcher", "operator": "In", "values": [ORDERED_END]}
    spec = {
        "completionMode": "Indexed",
        "completions": nodes,
        "parallelism": nodes,
        "backoffLimitPerIndex": KEPT_FAILURES if cluster.is_kept else MOST_FAILURES,
        **({"ttlSecondsAfterFinished": KEPT_SECONDS} if cluster.is_kept else {}),
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {
            "rules": [
                {"action": "Ignore", "onExitCodes": ordered},
                {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            ]
        },
        **({"suspend": True} if cluster.queue else {}),  # Kueue ends the suspension once it admits the Job
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    queue = {QUEUE_LABEL: cluster.queue} if cluster.queue else {}
    return {**_head(cluster, "batch/v1", "Job", f"{cluster.name}-{kind.name}", labels={**kept, **queue}), "spec": spec}


def _pods(labels: Mapping[str, str]) -> dict[str, Any]:
    return {"podSelector": {"matchLabels": dict(labels)}}


def _port(number: int) -> dict[str, Any]:
    return {"protocol": "TCP", "port": number}


def _claim_spec(storage_class: str, size: str, mode: str) -> dict[str, Any]:
    named = {"storageClassName": storage_class} if storage_class else {}
    return {"accessModes": [mode], **named, "resources": {"requests": {"storage": size}}}


def _notes(cluster: KubernetesCluster) -> Sequence[str]:
    """Return the lines of the manifest's comment: instructions and notes."""
    exec_ = f"kubectl -n {cluster.namespace} exec {cluster.name}-0 --"
    token = (
        [f"The join token is in the Secret {cluster.name}-join below: keep this text as you keep a password."]
        if cluster.join_token
        else [
            f"Launchers wait for the Secret {cluster.name}-join. Once the arbiter's pod runs, make it:",
            f"  {exec_} eunomia nodes token --reusable --ends 365d > token",
            f"  kubectl -n {cluster.namespace} create secret generic {cluster.name}-join --from-file=token",
        ]
    )
    kept = (
        []
        if cluster.storage.shared_claim
        else [f"`kubectl delete -f` of this file deletes the claim {cluster.shared_claim}, and so all checkpoints."]
    )
    rights = ["nothing here needs a right at the API server."]
    if cluster.is_kept:
        what = f"It makes and deletes Jobs with the label {KEEPER_LABEL}={cluster.name}, and looks at their pods."
        rights = ["only the keeper of its nodes calls the API server.", what]
    return [
        "Made by `eunomia kubernetes manifest`, which has never run against a real API server.",
        f"The namespace {cluster.namespace} must be there; {rights[0]}",
        *rights[1:],
        *token,
        *kept,
        f"{WORK} in all pods is for what you submit, {APPS} for the apps' folders:",
        f"  {exec_} eunomia submit {WORK}/app.toml",
        "",
    ]
