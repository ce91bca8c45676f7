"""``eunomia serve --on slurm``: an arbiter whose nodes are those of the allocation in whose shell the command runs."""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import typer

from eunomia.errors import InputError
from eunomia.platform.profiles import Profile
from eunomia_appmaster.commands.serve_flags import ServeFlags
from eunomia_appmaster.node.engine_note import drop_note
from eunomia_appmaster.node.process_logs import configure_logs
from eunomia_appmaster.service.settings import DEFAULT_ADDRESS
from eunomia_engines.head.head import HeadParts, serve
from eunomia_engines.head.seats import Seat
from eunomia_engines.head.starting import check_may_begin
from eunomia_engines.keeper.demand import Demand
from eunomia_engines.keeper.plan import Times
from eunomia_engines.slurm.programs import SlurmPrograms
from eunomia_engines.slurm.request import FOLDER, LEAST_SECONDS, NAMES, Request
from eunomia_engines.slurm.steps import AllocationEngine, others, running_allocation

LONGEST_SECONDS: Final = 30 * 86400.0
"""Assumed time in seconds of an allocation whose end Slurm does not print."""
NODE_DIR: Final = Path("/var/tmp")
INTERRUPTED: Final = 130
REFUSED: Final = ("no_launcher", "slot_types", "cpu_only", "announce", "port_range", "tls_cert", "tls_key", "tls_ca")
"""Rejected flags of ``serve``: about this machine's own slots, or certificates that nodes would not trust."""


class AllocationSeat(Seat):
    """The seat of a head in the foreground, whose nodes are those of an allocation.

    Args:
        folder: the engine's folder, below the state folder.
        state: the arbiter's state folder.
        flags: flags of ``serve``.
        engine: provides the nodes.
    """

    def __init__(self, folder: Path, state: Path, flags: ServeFlags, engine: AllocationEngine) -> None:
        super().__init__(folder, state)
        self._given, self._engine = flags, engine

    def is_taken(self) -> bool:
        """Return whether the allocation has ended, and all nodes with it."""
        return self._engine.is_over

    def flags(self) -> ServeFlags:
        """Return the flags of the arbiter: those of the command, without slots of this machine."""
        return self._given.model_copy(
            update={
                "no_launcher": True,
                "slots": None,
                "address": "0.0.0.0:0" if self._given.address == DEFAULT_ADDRESS else self._given.address,
                "make_certificates": True,
                "state_dir": self.state,
            }
        )


def serve_allocation(flags: ServeFlags, env: Mapping[str, str], programs: SlurmPrograms) -> int:
    """Serve on the nodes of this shell's allocation until Ctrl-C, SIGTERM or its end; returns the exit code.

    Raises:
        InputError: the shell has no running allocation; another arbiter has nodes in it; a flag has no meaning there.
    """
    Profile.load(flags.policy or env.get("EUNOMIA_POLICY") or "default", settings=flags.settings or ())
    request, hosts = _request(flags, env, programs)
    state = flags.home.resolve()
    if found := others(programs.steps(request.allocation), state):
        rule = "an allocation must have one arbiter; the other's steps are"
        raise InputError(rule, value=", ".join(f"{step.id} ({step.name})" for step in found))
    check_may_begin(NAMES, state)
    request.save(state)
    engine, stopped, code = AllocationEngine(request, state, programs), threading.Event(), 0

    def stop(number: int, _: object) -> None:
        nonlocal code
        code = INTERRUPTED if number == signal.SIGINT else 0
        stopped.set()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)
    configure_logs(level="warning")
    parts = HeadParts(
        engine=engine,
        demand=Demand(len(hosts), len(hosts), request.wait_seconds),
        times=Times(drain=request.drain_seconds, margin=float(request.signal_seconds), idle=LONGEST_SECONDS),
        gives_back=True,
        serves=lambda address, policy: _say(request, hosts, address, policy, state, as_json=flags.as_json),
    )
    serve(NAMES, parts, AllocationSeat(state / FOLDER, state, flags, engine), stopped)
    drop_note(state)
    return code


def _request(flags: ServeFlags, env: Mapping[str, str], programs: SlurmPrograms) -> tuple[Request, tuple[str, ...]]:
    """Return the request, and the hosts of the allocation.

    Raises:
        InputError: see ``serve_allocation``.
    """
    for name in REFUSED:
        if getattr(flags, name):
            rule = f"--{name.replace('_', '-')} must not come with --on slurm, whose nodes are the allocation's"
            raise InputError(rule, value=str(getattr(flags, name)))
    job = env.get("SLURM_JOB_ID", "")
    if not job.isdecimal():
        rule = "serve --on slurm must be typed within an allocation (salloc, or a batch job)"
        raise InputError(rule, value=f'SLURM_JOB_ID="{job}"')
    allocation = running_allocation(job, programs)
    left = LONGEST_SECONDS if allocation.ends_at is None else allocation.ends_at - time.time()
    if left < LEAST_SECONDS:
        rule = f"an allocation must last at least {LEAST_SECONDS:g} s more"
        raise InputError(rule, value=f"job {job} ends in {max(0.0, left):.0f} s")
    hosts = tuple(programs.hosts(allocation.host))
    request = Request(
        least=len(hosts),
        most=len(hosts),
        seconds=min(left, LONGEST_SECONDS),
        cpu_slots=flags.slots,
        python=sys.executable,
        node_dir=NODE_DIR,
        allocation=job,
    )
    return request, hosts


def _say(request: Request, hosts: tuple[str, ...], address: str, policy: str, state: Path, *, as_json: bool) -> None:
    """Print the arbiter's address and its nodes."""
    facts = {
        "schema": "eunomia/serve@1",
        "address": address,
        "policy": policy,
        "job": request.allocation,
        "hosts": list(hosts),
        "state_dir": str(state),
        "pid": os.getpid(),
    }
    lines = (
        f"allocation {request.allocation}: a step on each of {', '.join(hosts)}; eunomia slurm status shows them",
        f"serving at {address} under policy {policy}; state in {state}; Ctrl-C stops",
    )
    typer.echo(json.dumps(facts) if as_json else "\n".join(lines))
