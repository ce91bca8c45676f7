"""``eunomia kubernetes``: an arbiter and its launchers as objects of Kubernetes, and the keeper of their nodes."""

import signal
import threading
from pathlib import Path
from typing import Annotated

import typer
from pydantic import BaseModel, ConfigDict

from eunomia.errors import InputError
from eunomia.platform.profiles import Profile
from eunomia.units import parse_duration
from eunomia_appmaster.commands.console import StateDir
from eunomia_appmaster.commands.model_flags import with_flags
from eunomia_appmaster.node.process_logs import configure_logs
from eunomia_appmaster.protocol.join_text import JoinText
from eunomia_appmaster.service.settings import default_state_dir
from eunomia_engines.kubernetes.keep_request import FOLDER, KeepRequest
from eunomia_engines.kubernetes.manifests import manifest
from eunomia_engines.kubernetes.names import amount_of, check_dns_label, check_image, check_object_name, taint_of
from eunomia_engines.kubernetes.request import (
    LONGEST_NAME,
    KubernetesCluster,
    Storage,
    check_grace,
    check_kept,
    check_queue,
    check_storage,
    kinds_of,
    nodes_of_option,
)

kubernetes = typer.Typer(
    add_completion=False, rich_markup_mode=None, help="Serve on Kubernetes: the manifest of a cluster, its keeper."
)


class ManifestFlags(BaseModel):
    """Flags of ``eunomia kubernetes manifest``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    image: Annotated[str, typer.Option("--image", metavar="IMAGE", help="With Eunomia; a tag that stays, or a digest.")]
    kind: Annotated[
        list[str] | None,
        typer.Option("--kind", metavar="NAME:GPUS[@LABEL=VALUE]", help="Of nodes, and how to find them; repeatable."),
    ] = None
    nodes: Annotated[
        str | None,
        typer.Option(
            "--nodes", metavar="N|A..B", help="Of a kind, as a Job; A..B: more while jobs wait; default: a DaemonSet."
        ),
    ] = None
    idle: Annotated[
        str | None,
        typer.Option("--idle", metavar="TIME", help="After it, an idle node above A is given back; default: 10m."),
    ] = None
    wait: Annotated[
        str | None,
        typer.Option("--wait", metavar="TIME", help="For which jobs must wait before a node more; default: 1m."),
    ] = None
    queue: Annotated[str, typer.Option("--queue", metavar="Q", help="Kueue's LocalQueue that admits the Job.")] = ""
    taint: Annotated[
        list[str] | None,
        typer.Option("--taint", metavar="TAINT", help="Of GPU nodes: KEY[=VALUE][:EFFECT]; default: nvidia.com/gpu."),
    ] = None
    cpu_slots: Annotated[
        int, typer.Option("--cpu-slots", metavar="N", min=0, max=512, help="CPU slots of a node without GPUs.")
    ] = 0
    cpus: Annotated[int, typer.Option("--cpus-per-slot", metavar="N", min=1, max=512, help="Of a GPU or CPU slot.")] = 4
    memory: Annotated[str, typer.Option("--mem-per-slot", metavar="AMOUNT", help="Of a GPU or CPU slot.")] = "16Gi"
    save: Annotated[
        str | None,
        typer.Option("--save", metavar="TIME", help="To save when a node ends; default: the policy's suspend_grace."),
    ] = None
    state_class: Annotated[
        str,
        typer.Option("--state-class", metavar="CLASS", help="Storage class of the journal; default: the cluster's."),
    ] = ""
    state_size: Annotated[str, typer.Option("--state-size", metavar="AMOUNT", help="Of the journal's volume.")] = "20Gi"
    shared_class: Annotated[
        str,
        typer.Option(
            "--shared-class", metavar="CLASS", help="Storage class of the apps' folders: many nodes mount it."
        ),
    ] = ""
    shared_claim: Annotated[
        str, typer.Option("--shared-claim", metavar="CLAIM", help="A claim for them that is there already.")
    ] = ""
    shared_size: Annotated[str, typer.Option("--shared-size", metavar="AMOUNT", help="Of their volume.")] = "100Gi"
    tls_secret: Annotated[
        str, typer.Option("--tls-secret", metavar="SECRET", help="With tls.crt, tls.key and ca.crt; default: made.")
    ] = ""
    join: Annotated[
        Path | None, typer.Option("--join", metavar="FILE", help="Join token; default: its Secret is made by hand.")
    ] = None
    policy: Annotated[str, typer.Option("--policy", metavar="P", help="Preset or plugin of the image.")] = "default"
    settings: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a value.")] = None
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="Of all objects.")] = "eunomia"
    namespace: Annotated[str, typer.Option("--namespace", metavar="NS", help="Of all objects; not made.")] = "eunomia"

    def cluster(self) -> KubernetesCluster:
        """Return the cluster.

        Raises:
            InputError: a value breaks a rule of Kubernetes or of Eunomia.
        """
        nodes, most = nodes_of_option(self.nodes)
        kinds = kinds_of(self.kind or (), cpu_slots=self.cpu_slots, nodes=nodes)
        kept = {"--idle": self.idle, "--wait": self.wait}
        check_kept(kinds, most, [name for name, given in kept.items() if given is not None])
        return KubernetesCluster(
            name=check_dns_label(self.name, "--name", longest=LONGEST_NAME),
            namespace=check_dns_label(self.namespace, "--namespace"),
            image=check_image(self.image),
            kinds=kinds,
            cpu_slots=self.cpu_slots,
            taints=tuple(taint_of(text) for text in self.taint or ("nvidia.com/gpu",)),
            nodes=nodes,
            queue=check_queue(self.queue, nodes),
            cpus=self.cpus,
            memory=amount_of(self.memory, "--mem-per-slot"),
            stop_seconds=self._stop_seconds(),
            storage=check_storage(
                Storage(
                    state_size=amount_of(self.state_size, "--state-size"),
                    state_class=self.state_class,
                    shared_size=amount_of(self.shared_size, "--shared-size"),
                    shared_class=self.shared_class,
                    shared_claim=self.shared_claim,
                )
            ),
            tls_secret=check_object_name(self.tls_secret, "--tls-secret") if self.tls_secret else "",
            policy=self.policy,
            settings=tuple(self.settings or ()),
            join_token="" if self.join is None else JoinText.read(str(self.join)).text(),
            most=most,
            idle_seconds=float(parse_duration(self.idle or "10m", name="--idle", zero=True)),
            wait_seconds=float(parse_duration(self.wait or "1m", name="--wait", zero=True)),
        )

    def _stop_seconds(self) -> float:
        """Return the seconds for workers to save, after checking that the image can resolve the policy."""
        if Path(self.policy).suffix or "/" in self.policy:
            rule = "a policy must be a preset or a plugin of the image, which has none of your files (--set changes it)"
            raise InputError(rule, value=f'"{self.policy}"', place="--policy")
        grace = float(Profile.load(self.policy, settings=self.settings or ()).rounds.suspend_grace)
        if self.save is None:
            return grace
        return check_grace(float(parse_duration(self.save, name="--save", zero=True)), grace)


@kubernetes.callback()
def _kubernetes() -> None:
    """Print the manifest of an arbiter and its launchers on Kubernetes, or keep its nodes."""


@kubernetes.command("manifest")
@with_flags(ManifestFlags)
def print_manifest(flags: ManifestFlags) -> int:
    """Print the objects of an arbiter and its launchers as YAML, for kubectl apply; nothing is called or changed."""
    typer.echo(manifest(flags.cluster()), nl=False)
    return 0


@kubernetes.command("keep")
def keep_nodes(
    request: Annotated[Path, typer.Option("--request", metavar="FILE", help="Which the manifest has made.")],
    records: Annotated[
        Path | None,
        typer.Option(
            "--records", metavar="DIR", help="With records of nodes, which all see; default: in the state folder."
        ),
    ] = None,
    state_dir: StateDir = None,
) -> None:
    """Ask Kubernetes for nodes while jobs wait, and give idle ones back, beside `eunomia serve`; ends on SIGTERM."""
    from eunomia_engines.kubernetes.keep import keep

    configure_logs(level="info")
    state, stopped = (state_dir or default_state_dir()).resolve(), threading.Event()
    asked = KeepRequest.read(request)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    keep(asked, state, (records or state / FOLDER).resolve(), stopped)
