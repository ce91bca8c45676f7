"""Runs the arbiter and this machine's launcher until Ctrl-C or SIGTERM."""

import json
import os
import signal
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from eunomia_appmaster.commands.console import missing, missing_facts
from eunomia_appmaster.commands.serve_flags import ServeFlags
from eunomia_appmaster.node.kept_apart import keeps_apart
from eunomia_appmaster.node.process_logs import configure_logs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eunomia_appmaster.node.control_groups import ControlGroups
    from eunomia_appmaster.node.local_machine import LocalMachine
    from eunomia_appmaster.node.supervisor import Serving, Supervisor
    from eunomia_appmaster.protocol import arbiter_pb2 as pb
    from eunomia_appmaster.service.certificates import Certificates

INTERRUPTED = 130
ANSWER_SECONDS = 5.0
"""Seconds within which an arbiter that already serves the state folder must answer."""


KEPT_APART: Final = (
    "users with a login (eunomia users add --login) are kept apart: their jobs run under that account; those of "
    "others run under this one, and can read its files (docs/explanation/trust-model.md)"
)
NOT_KEPT_APART: Final = (
    "users are not kept apart: jobs run under this account and can read its files, the operator's token among them "
    "(docs/explanation/trust-model.md)"
)


def serve(flags: ServeFlags) -> int:
    """Run the arbiter and this machine's launcher; returns the exit code once all processes have ended."""
    from eunomia_appmaster.node import local_machine
    from eunomia_appmaster.node.control_groups import choose
    from eunomia_appmaster.node.engine_note import check_no_engine
    from eunomia_appmaster.node.patience import StopAskedError
    from eunomia_appmaster.node.supervisor import Supervisor

    configure_logs()
    if flags.accept_loss and (accepted := _accepted(flags.home)):
        typer.echo(f"accepted: {accepted}; the arbiter decides from now on")
        return 0
    check_no_engine(flags.home)
    serving = checked(flags)
    if flags.no_launcher:
        return _serve_alone(flags, serving)
    machine = local_machine.detect(flags.slots, use_gpus=not flags.cpu_only, slot_types=flags.slot_types)
    groups = choose(flags.home, flags.control_groups, paced=machine.is_paced)
    stop = _Stop(reloads=serving.certificates is not None)
    supervisor = Supervisor(flags.home, serving, stop_asked=stop.is_asked)
    try:
        with supervisor:
            facts, notes = _facts(supervisor, serving.policy, machine, groups)
            typer.echo(json.dumps(facts) if flags.as_json else "\n".join(_lines(machine.describe(), facts, notes)))
            stop.wait(supervisor)
    except StopAskedError:  # before it was ready; it has ended what it had started
        pass
    except KeyboardInterrupt:  # a second signal
        stop.ignore()
        supervisor.end_now()
    finally:
        groups.close()
    return stop.exit_code


def _serve_alone(flags: ServeFlags, serving: "Serving") -> int:
    """Run the arbiter without a launcher; returns the exit code once it has ended."""
    from eunomia_appmaster.node.supervisor import Supervisor

    stop, supervisor = _Stop(reloads=serving.certificates is not None), Supervisor(flags.home, serving)
    try:
        with supervisor:
            facts = {
                "schema": "eunomia/serve@1",
                "address": supervisor.address,
                "policy": serving.policy,
                "slots": 0,
                "state_dir": str(supervisor.state_dir),
                "token_file": str(supervisor.token_file),
                "launcher_token_file": str(supervisor.run_dir / "launcher.token"),
                "pid": os.getpid(),
            }
            join = f"eunomia launcher --arbiter {supervisor.address} --token-file {facts['launcher_token_file']}"
            machine = f"no slots here; a node joins with {join} --state {supervisor.state_dir}"
            notes = [_from_elsewhere(flags.address, supervisor.address, serving.certificates)]
            typer.echo(json.dumps(facts) if flags.as_json else "\n".join(_lines(machine, facts, notes)))
            stop.wait(supervisor)
    except KeyboardInterrupt:  # a second signal
        stop.ignore()
        supervisor.end_now()
    return stop.exit_code


def _from_elsewhere(served: str, here: str, certificates: "Certificates | None") -> str:
    """Return how another machine can join, as text; empty: it cannot, as the arbiter serves only loopback.

    Args:
        served: the address given by ``--address``.
        here: the address at which this machine's own processes reach the arbiter, host:port.
        certificates: certificates of the arbiter; None: no TLS, so it serves only loopback.
    """
    if certificates is None:
        return ""
    host = certificates.called_from_elsewhere(served.rpartition(":")[0])
    join = f"eunomia launcher --arbiter {host}:{here.rpartition(':')[2]} --join TOKEN --apps AT"
    return f"another machine joins with {join}; eunomia nodes token makes the token"


def checked(flags: ServeFlags) -> "Serving":
    """Check all settings before anything starts, and return them; raises ``InputError`` for an invalid one."""
    from eunomia.platform.profiles import Profile
    from eunomia_appmaster.node.supervisor import Serving
    from eunomia_appmaster.node.writable import check_writable
    from eunomia_appmaster.service.certificates import Certificates
    from eunomia_appmaster.service.ports import check_free
    from eunomia_appmaster.service.server import check_address

    check_writable(flags.home)
    certificates = Certificates.of(flags.tls_cert, flags.tls_key, flags.tls_ca)
    if flags.make_certificates:
        certificates = _made(flags.home / "tls", flags.address, given=certificates is not None)
    check_address(flags.address, certificates)
    if flags.metrics is not None:
        check_address(flags.metrics, certificates, place="--metrics")
    serving = Serving(
        policy=flags.policy or os.environ.get("EUNOMIA_POLICY") or "default",
        settings=flags.settings or (),
        slots=flags.slots,
        slot_types=flags.slot_types,
        cpu_only=flags.cpu_only,
        launcher=not flags.no_launcher,
        address=flags.address,
        seed=flags.seed,
        certificates=certificates,
        arbiter_options=flags.arbiter_options,
        launcher_options=flags.launcher_options,
    )
    Profile.load(serving.policy, settings=serving.settings)
    check_free(flags.home, flags.address, flags.metrics)
    return serving


def _facts(
    supervisor: "Supervisor", policy: str, machine: "LocalMachine", groups: "ControlGroups"
) -> tuple[dict[str, Any], list[str]]:
    """Return facts about the running service as a JSON object, and notes on missing slots and shared CPUs."""
    health, others = _health(supervisor), supervisor.shares_cpus_with
    gone = health.missing_slots
    facts = {
        "schema": "eunomia/serve@1",
        "address": supervisor.address,
        "policy": policy,
        "slots": len(machine.slots),
        "slot_types": dict(Counter(slot.gpu_type for slot in machine.slots)),
        "control_groups": {"kind": groups.kind, "controllers": sorted(groups.controllers), "text": groups.describe()},
        "state_dir": str(supervisor.state_dir),
        "token_file": str(supervisor.token_file),
        "pid": os.getpid(),
        "missing_slots": missing_facts(gone),
        "question": health.question,
        "users_kept_apart": keeps_apart(),
        "shares_cpus_with": [{"pid": other.pid, "state_dir": other.state_dir} for other in others],
    }
    notes = [health.question, groups.describe(), KEPT_APART if keeps_apart() else NOT_KEPT_APART, missing(gone)]
    return facts, [*notes, *(f"these CPUs are also used by the arbiter of {other.words()}" for other in others)]


def _made(folder: Path, address: str, *, given: bool) -> "Certificates":
    """Create certificates for testing at the first start, and return them."""
    from eunomia.errors import InputError
    from eunomia_appmaster.launcher.interfaces import own_addresses
    from eunomia_appmaster.service.certificates import ANY_HOST, Certificates, make

    if given:
        raise InputError("certificates must be given or made", value="both", place="--make-certificates")
    host = address.rpartition(":")[0].strip("[]")
    here = Certificates.inside(folder)
    if os.path.exists(here.cert):  # noqa: PTH110 - a name that no disk takes is none that is there
        return here
    return make(folder, own_addresses() if host in ANY_HOST else (host,) if host else ())


def _health(supervisor: "Supervisor") -> "pb.HealthResponse":
    """Return the arbiter's health, with journaled slots that this machine lacks and a question to the operator."""
    from eunomia_appmaster.client import Client

    with Client(supervisor.address, token_file=supervisor.token_file) as client:
        return client.health()


def _accepted(home: Path) -> str:
    """Answer the open question of a state folder's running arbiter; returns what was accepted, empty: no question."""
    from eunomia.errors import UnreachableError
    from eunomia_appmaster.client import Client
    from eunomia_appmaster.token_files import TokenError

    try:
        with Client(state_dir=home, timeout_seconds=ANSWER_SECONDS) as client:
            return client.accept_loss().accepted if client.health().question else ""
    except (UnreachableError, TokenError):  # none answers, or another folder's
        return ""


def _lines(machine: str, facts: dict[str, Any], notes: "Sequence[str]") -> list[str]:
    return [
        machine,
        *filter(None, notes),
        f"serving at {facts['address']} under policy {facts['policy']}; state in {facts['state_dir']}; Ctrl-C stops",
    ]


class _Stop:
    """Handles Ctrl-C and SIGTERM from its creation on, and SIGHUP if there are certificates to reload."""

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
            raise KeyboardInterrupt  # a second one ends workers without a grace period
        self.exit_code = INTERRUPTED if number == signal.SIGINT else 0
        self._heard.set()

    def is_asked(self) -> bool:
        """Return whether a first signal has come."""
        return self._heard.is_set()

    def ignore(self) -> None:
        """Ignore further signals, since an interrupted shutdown would leave workers running."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)

    def wait(self, supervisor: Any) -> None:
        """Wait for a signal, or for the end of a process that cannot be restarted."""
        while not self._heard.wait(0.2):
            supervisor.check()
            if self._anew.is_set():
                self._anew.clear()
                supervisor.reload()
