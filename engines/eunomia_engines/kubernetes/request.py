"""The request of ``eunomia kubernetes manifest``, checked against the rules of Kubernetes and of Eunomia."""

import re
from collections.abc import Sequence
from typing import Final

from eunomia.errors import InputError
from eunomia.model.shapes import value
from eunomia.units import format_duration
from eunomia_engines.kubernetes.names import Amount, Label, Taint, check_dns_label, check_object_name, label_of, quoted
from eunomia_engines.requests import nodes_range

ARBITER_PORT, METRICS_PORT, LAUNCHER_PORT = 7720, 7721, 7730
END_MARGIN_SECONDS: Final = 30.0
"""Seconds between the end of a launcher's containers and the SIGKILL of its pod."""
LONGEST_NAME, LONGEST_KIND = 30, 20
"""Maximum characters of the names of a cluster and of a kind, so that pod names fit into host names of 63."""
MOST_NODES: Final = 1000
_KIND: Final = re.compile(r"([^:@]*):([0-9]{1,3})(?:@(.+))?\Z")


@value
class NodeKind:
    """Nodes of one kind.

    Attributes:
        name: a DNS label.
        gpus: number of GPUs per node, all of which its launcher requests; 0: CPU slots.
        label: label of the nodes; None: any node with as many free GPUs.
    """

    name: str
    gpus: int
    label: Label | None = None


@value
class Storage:
    """Volumes of a cluster.

    Attributes:
        state_size: size of the journal's volume.
        state_class: storage class of the journal's volume; empty: the cluster's default class.
        shared_size: size of the volume with the apps' folders.
        shared_class: storage class of that volume, mountable on many nodes; empty: ``shared_claim`` exists already.
        shared_claim: name of an existing claim; empty: a claim is created.
    """

    state_size: Amount
    state_class: str
    shared_size: Amount
    shared_class: str
    shared_claim: str


@value
class KubernetesCluster:
    """An arbiter with its launchers, as manifests describe them.

    Attributes:
        name: common name of all objects, or its prefix.
        namespace: namespace of all objects, which must exist.
        image: image with Eunomia, the same for all pods.
        kinds: kinds of nodes.
        cpu_slots: number of CPU slots of a node without GPUs; 0: nodes have GPUs.
        taints: taints of GPU nodes.
        nodes: nodes of each kind, as an indexed Job; 0: a DaemonSet for each kind. With ``most``: the minimum number.
        queue: Kueue's LocalQueue that admits the Job; empty: none.
        cpus: number of CPUs per slot.
        memory: memory per slot.
        stop_seconds: seconds for workers to save once a launcher is ordered to end.
        storage: volumes of the cluster.
        tls_secret: Secret with the arbiter's certificate; empty: a certificate is created at the first start.
        policy: the arbiter's policy.
        settings: changes of the policy's values, each ``KEY=VALUE``.
        join_token: text of the join token; empty: the user creates the Secret.
        most: maximum number of nodes while jobs wait, each a Job created by a keeper; 0: the number is fixed.
        idle_seconds: seconds without leases after which a node above ``nodes`` is given back.
        wait_seconds: seconds for which jobs must have waited for slots before another node is requested.
    """

    name: str
    namespace: str
    image: str
    kinds: tuple[NodeKind, ...]
    cpu_slots: int
    taints: tuple[Taint, ...]
    nodes: int
    queue: str
    cpus: int
    memory: Amount
    stop_seconds: float
    storage: Storage
    tls_secret: str
    policy: str
    settings: tuple[str, ...] = ()
    join_token: str = ""
    most: int = 0
    idle_seconds: float = 600.0
    wait_seconds: float = 60.0

    @property
    def is_kept(self) -> bool:
        """Whether the number of nodes varies: a keeper creates and deletes their Jobs."""
        return self.most > 0

    @property
    def host(self) -> str:
        """The host name by which launchers reach the arbiter."""
        return f"{self.name}.{self.namespace}.svc"

    @property
    def shared_claim(self) -> str:
        """Name of the PersistentVolumeClaim with the apps' folders."""
        return self.storage.shared_claim or f"{self.name}-shared"

    @property
    def grace_seconds(self) -> int:
        """Seconds between the SIGTERM and the SIGKILL of a launcher's pod."""
        return int(self.stop_seconds + END_MARGIN_SECONDS)


def kinds_of(texts: Sequence[str], *, cpu_slots: int, nodes: int) -> tuple[NodeKind, ...]:
    """Parse kinds of nodes, each ``NAME:GPUS`` or ``NAME:GPUS@LABEL=VALUE``.

    Args:
        texts: values of the options.
        cpu_slots: number of CPU slots of a node without GPUs; 0: nodes must have GPUs.
        nodes: number of nodes of each kind; 0: a DaemonSet, which runs on each node with the kind's label.

    Raises:
        InputError: a kind has another form, no GPUs, a name or label that another one has, or lacks a label.
    """
    made: list[NodeKind] = []
    for text in texts:
        kind = _kind(text, cpu_slots=cpu_slots)
        if nodes == 0 and kind.label is None:
            rule = (
                "a kind must name a label of its nodes (NAME:GPUS@LABEL=VALUE), since a DaemonSet runs on each of them"
            )
            raise InputError(rule, value=quoted(text), place="--kind")
        for before in made:
            if kind.name == before.name or (kind.label is not None and kind.label == before.label):
                rule = "kinds must differ in name and label, since each node has one launcher"
                raise InputError(rule, value=quoted(text), place="--kind")
        made.append(kind)
    if not made:
        raise InputError("a cluster must have a kind of nodes: --kind NAME:GPUS@LABEL=VALUE", value="none")
    return tuple(made)


def _kind(text: str, *, cpu_slots: int) -> NodeKind:
    found = _KIND.match(text)
    if found is None:
        rule = "a kind must be NAME:GPUS or NAME:GPUS@LABEL=VALUE"
        raise InputError(rule, value=quoted(text), place="--kind")
    name, gpus = check_dns_label(found[1], "--kind", longest=LONGEST_KIND), int(found[2])
    if (gpus == 0) is not (cpu_slots > 0):
        rule = "a kind must have at least 1 GPU, or 0 with --cpu-slots N"
        raise InputError(
            rule, value=quoted(text) + (f" and --cpu-slots {cpu_slots}" if cpu_slots else ""), place="--kind"
        )
    return NodeKind(name=name, gpus=gpus, label=None if found[3] is None else label_of(found[3], "--kind"))


def check_grace(seconds: float, suspend_seconds: float) -> float:
    """Check the seconds for workers to save, and return them.

    Args:
        seconds: value of ``--save``.
        suspend_seconds: the policy's ``suspend_grace``.

    Raises:
        InputError: ``seconds`` is less than the policy's grace for a suspended job.
    """
    if seconds < suspend_seconds:
        rule = f"the time to save must be at least the policy's suspend_grace, {format_duration(suspend_seconds)}"
        raise InputError(rule, value=format_duration(seconds) if seconds else "0s", place="--save")
    return seconds


def nodes_of_option(text: str | None) -> tuple[int, int]:
    """Parse ``--nodes`` to (nodes, most): ``4`` is a fixed number, (4, 0); ``2..8`` is a range, (2, 8).

    Raises:
        InputError: the text has another form, or a number is above ``MOST_NODES``.
    """
    if text is None:
        return 0, 0
    least, most = nodes_range(text)
    if most > MOST_NODES:
        raise InputError(f"--nodes must be at most {MOST_NODES}", value=quoted(text))
    return least, most if ".." in text else 0


def check_kept(kinds: Sequence[NodeKind], most: int, given: Sequence[str]) -> None:
    """Check the options for a variable number of nodes.

    Args:
        kinds: kinds of nodes.
        most: maximum number of nodes while jobs wait; 0: the number is fixed.
        given: given options that require a variable number of nodes.

    Raises:
        InputError: a variable number of nodes has several kinds, or a fixed number has such an option.
    """
    if most and len(kinds) > 1:
        names = ", ".join(kind.name for kind in kinds)
        raise InputError("nodes that come and go (--nodes A..B) must be of one kind", value=names, place="--kind")
    if not most and given:
        rule = "the option is for nodes that come and go: --nodes A..B must be given"
        raise InputError(rule, value="a fixed number", place=given[0])


def check_queue(queue: str, nodes: int) -> str:
    """Check the name of Kueue's queue, and return it.

    Raises:
        InputError: the name is not a DNS label, or there is no Job to admit since ``nodes`` is 0.
    """
    if queue:
        check_dns_label(queue, "--queue")
        if nodes == 0:
            rule = "a queue admits a Job, so --nodes N must be given (a DaemonSet waits in no queue)"
            raise InputError(rule, value=f'"{queue}" without --nodes', place="--queue")
    return queue


def check_storage(storage: Storage) -> Storage:
    """Check the volumes, and return them.

    Raises:
        InputError: a name is invalid, or not exactly one of shared class and shared claim is given.
    """
    for name, option in ((storage.state_class, "--state-class"), (storage.shared_class, "--shared-class")):
        if name:
            check_object_name(name, option)
    if storage.shared_claim:
        check_object_name(storage.shared_claim, "--shared-claim")
    if bool(storage.shared_class) is bool(storage.shared_claim):
        rule = (
            "all nodes must share the apps' folders, so a storage class whose volumes many nodes mount (ReadWriteMany) "
            "must be named by --shared-class, or a claim that is there by --shared-claim"
        )
        raise InputError(rule, value="both" if storage.shared_class else "neither")
    return storage
