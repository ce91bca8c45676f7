"""``eunomia serve``: the arbiter and this machine's launcher, until Ctrl-C or SIGTERM."""

import json
import os
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eunomia.journal.files import DEFAULT_RETENTION, Keep, Retention
from eunomia.logs import configure_logs
from eunomia_appmaster.commands.console import AsJson, missing, missing_facts
from eunomia_appmaster.service.settings import DEFAULT_ADDRESS, KEPT_APPS, default_state_dir

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eunomia_appmaster.protocol import arbiter_pb2 as pb
    from eunomia_appmaster.service.certificates import Certificates
    from eunomia_appmaster.supervisor import Supervisor

INTERRUPTED = 130


def serve(
    policy: Annotated[
        str | None, typer.Option("--policy", metavar="P", help="Preset, profile file or plugin (default: default).")
    ] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a value.")] = None,
    slots: Annotated[int | None, typer.Option("--slots", metavar="N", min=1, help="CPU slots where no GPU is.")] = None,
    cpu_only: Annotated[bool, typer.Option("--cpu-only", help="CPU slots even where there are GPUs.")] = False,
    address: Annotated[
        str, typer.Option("--address", metavar="HOST:PORT", help="Beyond loopback only with certificates.")
    ] = DEFAULT_ADDRESS,
    tls_cert: Annotated[Path | None, typer.Option("--tls-cert", metavar="FILE", help="Certificate, PEM.")] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", metavar="FILE", help="Its private key, PEM.")] = None,
    tls_ca: Annotated[
        Path | None, typer.Option("--tls-ca", metavar="FILE", help="What clients check the certificate with, PEM.")
    ] = None,
    make_certificates: Annotated[
        bool, typer.Option("--make-certificates", help="Make them, for testing, in the state folder, unless they are.")
    ] = False,
    metrics: Annotated[
        str | None, typer.Option("--metrics", metavar="HOST:PORT", help="Metrics for Prometheus, and /health.")
    ] = None,
    state_dir: Annotated[
        Path | None, typer.Option("--state-dir", metavar="DIR", help="Journal and apps; made if it is not there.")
    ] = None,
    journal_keep: Annotated[
        Keep, typer.Option("--journal-keep", help="Old steps: compressed beside the journal, deleted, or left in it.")
    ] = DEFAULT_RETENTION.keep,
    journal_segment_steps: Annotated[
        int, typer.Option("--journal-segment-steps", metavar="N", help="Steps that leave the journal at once.")
    ] = DEFAULT_RETENTION.segment_steps,
    keep_apps: Annotated[
        int, typer.Option("--keep-apps", metavar="N", min=0, help="Apps that are over and kept in memory.")
    ] = KEPT_APPS,
    seed: Annotated[int, typer.Option("--seed", metavar="N")] = 0,
    as_json: AsJson = False,
) -> int:
    """Run the arbiter and this machine's launcher."""
    from eunomia.platform.profiles import Profile
    from eunomia_appmaster import local_machine
    from eunomia_appmaster.service.certificates import Certificates
    from eunomia_appmaster.service.ports import check_free
    from eunomia_appmaster.service.server import check_address
    from eunomia_appmaster.supervisor import Supervisor

    configure_logs()
    chosen = policy or os.environ.get("EUNOMIA_POLICY") or "default"
    # Everything that can be wrong with what was asked for is said before anything starts.
    home = state_dir or default_state_dir()
    certificates = Certificates.of(tls_cert, tls_key, tls_ca)
    if make_certificates:
        certificates = _made(home / "tls", address, given=certificates is not None)
    check_address(address, certificates)
    if metrics is not None:
        check_address(metrics, certificates, place="--metrics")
    Profile.load(chosen, settings=settings or ())
    retention = Retention(keep=journal_keep, segment_steps=journal_segment_steps)
    check_free(home, address, metrics)
    machine = local_machine.detect(slots, use_gpus=not cpu_only)
    stop = _Stop(reloads=certificates is not None)
    supervisor = Supervisor(
        home,
        policy=chosen,
        settings=settings or (),
        slots=slots,
        cpu_only=cpu_only,
        address=address,
        seed=seed,
        certificates=certificates,
        arbiter_options=(*_arbiter_options(metrics, retention), "--keep-apps", str(keep_apps)),
    )
    with supervisor:
        facts: dict[str, Any] = {
            "schema": "eunomia/serve@1",
            "address": supervisor.address,
            "policy": chosen,
            "slots": len(machine.slots),
            "state_dir": str(supervisor.state_dir),
            "token_file": str(supervisor.token_file),
            "pid": os.getpid(),
        }
        said = _missing(supervisor)
        facts["missing_slots"] = missing_facts(said)
        others = supervisor.shares_cpus_with
        facts["shares_cpus_with"] = [{"pid": other.pid, "state_dir": other.state_dir} for other in others]
        notes = [missing(said), *(f"these CPUs are also used by the arbiter of {other.words()}" for other in others)]
        typer.echo(json.dumps(facts) if as_json else "\n".join(_lines(machine.describe(), facts, notes)))
        stop.wait(supervisor)
    return stop.exit_code


def _arbiter_options(metrics: str | None, retention: Retention) -> tuple[str, ...]:
    """What is handed on to the arbiter as it is."""
    kept = ("--journal-keep", retention.keep.value, "--journal-segment-steps", str(retention.segment_steps))
    return kept if metrics is None else (*kept, "--metrics", metrics)


def _made(folder: Path, address: str, *, given: bool) -> "Certificates":
    """Certificates for testing, made at the first start."""
    from eunomia.errors import InputError
    from eunomia_appmaster.service.certificates import ANY_HOST, Certificates, make

    if given:
        raise InputError("certificates must be given or made", value="both", place="--make-certificates")
    host = address.rpartition(":")[0].strip("[]")
    here = Certificates.inside(folder)
    if os.path.exists(here.cert):  # noqa: PTH110 - a name that no disk takes is none that is there
        return here
    return make(folder, () if host in ANY_HOST or not host else (host,))


def _missing(supervisor: "Supervisor") -> "Sequence[pb.MissingSlot]":
    """Slots that the journal knows and this machine does not have now."""
    from eunomia_appmaster.client import Client

    with Client(supervisor.address, token_file=supervisor.token_file) as client:
        return client.health().missing_slots


def _lines(machine: str, facts: dict[str, Any], notes: "Sequence[str]") -> list[str]:
    return [
        machine,
        *filter(None, notes),
        f"serving at {facts['address']} under policy {facts['policy']}; state in {facts['state_dir']}; Ctrl-C stops",
    ]


class _Stop:
    """Handles Ctrl-C and SIGTERM from its creation on, and SIGHUP if there are certificates to read again."""

    def __init__(self, *, reloads: bool) -> None:
        self.exit_code = 0
        self._heard = threading.Event()
        self._anew = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._hear)
        if reloads:
            signal.signal(signal.SIGHUP, lambda *_: self._anew.set())

    def _hear(self, number: int, _: object) -> None:
        if self._heard.is_set():
            raise KeyboardInterrupt  # a second one does not wait for a clean end
        self.exit_code = INTERRUPTED if number == signal.SIGINT else 0
        self._heard.set()

    def wait(self, supervisor: Any) -> None:
        """Wait for a signal, or for a process that cannot be kept running."""
        while not self._heard.wait(0.2):
            supervisor.check()
            if self._anew.is_set():
                self._anew.clear()
                supervisor.reload()
