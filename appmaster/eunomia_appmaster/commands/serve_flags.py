"""The flags of ``eunomia serve``."""

from pathlib import Path
from typing import Annotated

import typer
from pydantic import BaseModel, ConfigDict

from eunomia.errors import InputError
from eunomia.journal.files import DEFAULT_RETENTION, Keep, Retention
from eunomia.units import parse_duration
from eunomia_appmaster.commands.console import AsJson
from eunomia_appmaster.node.own_ends_limit import DEFAULT_LIMIT
from eunomia_appmaster.node.supervisor import ACCEPT_LOSS
from eunomia_appmaster.protocol.connecting import LOOPBACK, host_of
from eunomia_appmaster.service.reserve import DEFAULT_MIB
from eunomia_appmaster.service.settings import DEFAULT_ADDRESS, KEPT_APPS, default_state_dir

LEAST_LEASE_SECONDS, MOST_LEASE_SECONDS = 5.0, 7 * 86400.0
"""Bounds of ``--node-lease``: a shorter lease would end work at every pause of a launcher or an arbiter."""


def foreign_gpus_option(what: str) -> str:
    """Check the value of ``--foreign-gpus`` and return it.

    Raises:
        InputError: it is neither warn nor end.
    """
    if what not in ("warn", "end"):
        raise InputError("--foreign-gpus must be warn or end", value=what)
    return what


class ServeFlags(BaseModel):
    """Flags of ``eunomia serve``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    policy: Annotated[
        str | None, typer.Option("--policy", metavar="P", help="Preset, profile file or plugin (default: default).")
    ] = None
    settings: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a value.")] = None
    slots: Annotated[int | None, typer.Option("--slots", metavar="N", min=1, help="CPU slots where no GPU is.")] = None
    slot_types: Annotated[
        str, typer.Option("--slot-types", metavar="TYPES", help="Paced CPU slots: '2x fast:1.0, 2x slow:0.5'.")
    ] = ""
    control_groups: Annotated[
        str,
        typer.Option("--control-groups", metavar="KIND", help="Groups that enforce slots: auto, v2, v1, kill or none."),
    ] = "auto"
    slot_processes: Annotated[
        int, typer.Option("--slot-processes", metavar="N", min=16, help="Processes and threads of one worker's group.")
    ] = 4096
    foreign_gpus: Annotated[
        str, typer.Option("--foreign-gpus", metavar="WHAT", help="About a worker on another slot's GPU: warn or end.")
    ] = "warn"
    log_mib: Annotated[
        int, typer.Option("--log-mib", metavar="N", min=0, help="MiB of a job's stdout, and of its stderr; 0: any.")
    ] = 64
    app_gib: Annotated[
        float, typer.Option("--app-gib", metavar="N", min=0.0, help="GiB of disk for each app's folder; 0: any.")
    ] = 0.0
    no_launcher: Annotated[
        bool, typer.Option("--no-launcher", help="No slots here: nodes join by eunomia launcher.")
    ] = False
    cpu_only: Annotated[bool, typer.Option("--cpu-only", help="CPU slots even where there are GPUs.")] = False
    address: Annotated[
        str, typer.Option("--address", metavar="HOST:PORT", help="Beyond loopback only with certificates.")
    ] = DEFAULT_ADDRESS
    announce: Annotated[
        str, typer.Option("--announce", metavar="HOST", help="Of this machine's slots, for nodes elsewhere.")
    ] = ""
    port_range: Annotated[
        str, typer.Option("--port-range", metavar="A-B", help="Ports of this machine's slots for app masters.")
    ] = ""
    tls_cert: Annotated[Path | None, typer.Option("--tls-cert", metavar="FILE", help="Certificate, PEM.")] = None
    tls_key: Annotated[Path | None, typer.Option("--tls-key", metavar="FILE", help="Its private key, PEM.")] = None
    tls_ca: Annotated[
        Path | None, typer.Option("--tls-ca", metavar="FILE", help="What clients check the certificate with, PEM.")
    ] = None
    make_certificates: Annotated[
        bool, typer.Option("--make-certificates", help="Make them, for testing, in the state folder, unless they are.")
    ] = False
    metrics: Annotated[
        str | None, typer.Option("--metrics", metavar="HOST:PORT", help="Metrics for Prometheus, and /health.")
    ] = None
    state_dir: Annotated[
        Path | None, typer.Option("--state-dir", metavar="DIR", help="Journal and apps; made if it is not there.")
    ] = None
    journal_keep: Annotated[
        Keep, typer.Option("--journal-keep", help="Old steps: compressed next to the journal, deleted, or left in it.")
    ] = DEFAULT_RETENTION.keep
    journal_segment_steps: Annotated[
        int, typer.Option("--journal-segment-steps", metavar="N", help="Steps that leave the journal at once.")
    ] = DEFAULT_RETENTION.segment_steps
    reserve_mib: Annotated[
        int, typer.Option("--reserve-mib", metavar="N", min=0, help="MiB of disk kept for the journal; 0: none.")
    ] = DEFAULT_MIB
    clean_older_than: Annotated[
        str | None, typer.Option("--clean-older-than", metavar="TIME", help="Remove folders of apps that ended so.")
    ] = None
    clean_keep: Annotated[
        str | None, typer.Option("--clean-keep", metavar="WHAT", help="best: files of the app, its best checkpoint.")
    ] = None
    keep_apps: Annotated[
        int, typer.Option("--keep-apps", metavar="N", min=0, help="Apps that are over and kept in memory.")
    ] = KEPT_APPS
    own_ends: Annotated[
        int, typer.Option("--own-ends", metavar="N", min=0, help="Of an app master before its app is suspended.")
    ] = DEFAULT_LIMIT.ends
    own_ends_within: Annotated[
        str, typer.Option("--own-ends-within", metavar="TIME", help="The time in which they are counted.")
    ] = "10m"
    app_master_silence: Annotated[
        str, typer.Option("--app-master-silence", metavar="TIME", help="Without a heartbeat, until one is replaced.")
    ] = "30s"
    node_lease: Annotated[
        str, typer.Option("--node-lease", metavar="TIME", help="Without an answer, until a node's work ends there.")
    ] = "90s"
    stop_lease: Annotated[
        str, typer.Option("--stop-lease", metavar="TIME", help="The same, as given when this command is stopped.")
    ] = "15m"
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Go on without steps that the journal has lost.")
    ] = False
    seed: Annotated[int, typer.Option("--seed", metavar="N")] = 0
    as_json: AsJson = False

    @property
    def home(self) -> Path:
        """The arbiter's state folder."""
        return self.state_dir or default_state_dir()

    @property
    def launcher_options(self) -> tuple[str, ...]:
        """Options that are passed on unchanged to the launcher's process.

        Raises:
            InputError: an invalid ``--foreign-gpus``; an announced address although the arbiter serves only loopback,
                or although there are no slots.
        """
        options = ["--control-groups", self.control_groups, "--foreign-gpus", foreign_gpus_option(self.foreign_gpus)]
        given = {"--slots": self.slots, "--slot-types": self.slot_types, "--cpu-only": self.cpu_only}
        if self.no_launcher and (named := [name for name, one in given.items() if one]):
            rule = "an arbiter without slots of its own (--no-launcher) must be given none"
            raise InputError(rule, value=", ".join(named))
        if self.announce and self.no_launcher:
            raise InputError("--announce must come with slots", value="--no-launcher", place="--announce")
        if self.announce and host_of(self.address) in LOOPBACK:
            rule = "slots can be announced where other machines reach the arbiter (--address)"
            raise InputError(rule, value=f"{self.announce} with {self.address}", place="--announce")
        options += ["--announce", self.announce] if self.announce else []
        return (*options, *(["--port-range", self.port_range] if self.port_range else []))

    @property
    def _job_limits(self) -> list[str]:
        """Options for the limits on jobs, which all nodes get from the arbiter."""
        seconds = parse_duration(self.own_ends_within, name="--own-ends-within")
        options = ["--own-ends", str(self.own_ends), "--own-ends-seconds", str(float(seconds))]
        options += ["--slot-processes", str(self.slot_processes)]
        return [*options, "--log-mib", str(self.log_mib), "--app-gib", str(self.app_gib)]

    @property
    def _clean_options(self) -> list[str]:
        if self.clean_keep not in (None, "best"):
            raise InputError("--clean-keep must be best", value=f'"{self.clean_keep}"')
        if self.clean_older_than is None:
            if self.clean_keep is not None:
                raise InputError("--clean-keep needs --clean-older-than", value="none")
            return []
        after = float(parse_duration(self.clean_older_than, name="--clean-older-than", zero=True))
        return ["--clean-older-than-seconds", str(after), *(["--clean-keep-best"] if self.clean_keep else [])]

    @property
    def arbiter_options(self) -> tuple[str, ...]:
        """Options that are passed on unchanged to the arbiter's process.

        Raises:
            InputError: a segment has no steps, a duration is malformed or out of range, or a cleaning rule is invalid.
        """
        silence = parse_duration(self.app_master_silence, name="--app-master-silence")
        retention = Retention(keep=self.journal_keep, segment_steps=self.journal_segment_steps)
        options = ["--journal-keep", retention.keep.value, "--journal-segment-steps", str(retention.segment_steps)]
        options += ["--keep-apps", str(self.keep_apps), "--app-master-silence-seconds", str(float(silence))]
        lease, stop = (
            str(float(parse_duration(given, name=name)))
            for given, name in ((self.node_lease, "--node-lease"), (self.stop_lease, "--stop-lease"))
        )
        if not LEAST_LEASE_SECONDS <= float(lease) <= MOST_LEASE_SECONDS:
            raise InputError("--node-lease must be from 5s to 7d", value=self.node_lease)
        options += ["--node-silence-seconds", lease, "--node-lease-seconds", lease, "--stop-lease-seconds", stop]
        options += ["--reserve-mib", str(self.reserve_mib), *self._clean_options, *self._job_limits]
        options += [ACCEPT_LOSS] if self.accept_loss else []
        return (*options, *(() if self.metrics is None else ("--metrics", self.metrics)))
