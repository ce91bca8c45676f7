"""``python -m eunomia_engines.slurm.pilot STATE``: becomes the launcher of the node that this batch job holds."""

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from eunomia.errors import EunomiaError, InputError
from eunomia_appmaster.commands.launcher import LauncherFlags
from eunomia_appmaster.launcher.joining import OwnJoin
from eunomia_appmaster.launcher.listening import route_to
from eunomia_engines.head.files import TOKEN, head_address
from eunomia_engines.pilots.names import check_gpus, clear_node, private_folder, take_name
from eunomia_engines.pilots.records import Pilot, ended_clean, pilots, write_pilot
from eunomia_engines.requests import mark_of
from eunomia_engines.slurm.relay import port_file, relay_address
from eunomia_engines.slurm.request import FOLDER, Request
from eunomia_engines.slurm.script import PILOT_ID

CLEAR: Final = "--clear"
"""Argument with which the job's script removes the node's folder, after the launcher has ended everything there."""


def main() -> None:
    """Execute the launcher in this process; exit code 2 for errors that a restart would not change."""
    try:
        if sys.argv[2:] == [CLEAR]:
            clear(Path(sys.argv[1]), os.environ)
            return
        command, env = launch(Path(sys.argv[1]), os.environ)
    except (EunomiaError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(error.exit_code if isinstance(error, EunomiaError) else 2)
    os.execve(sys.executable, command, env)  # signals reach the launcher itself


def launch(state: Path, env: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """Return the launcher's command line and environment, after its name is taken and its record is written.

    Raises:
        InputError: this process is not in a batch job of the state folder, or the node lacks the requested resources.
    """
    request = Request.load(state)
    slurm_job, host = env.get("SLURM_JOB_ID", ""), env.get("SLURMD_NODENAME", "")
    if not slurm_job.isdecimal() or not host:
        raise InputError("a pilot must run in a batch job of Slurm", value=f'SLURM_JOB_ID="{slurm_job}"')
    if request.cpu_slots is None:
        check_gpus(f" of allocation {slurm_job}" if request.allocation else f" of --gres {request.gres}")
    job = pilot_id(env)
    base = private_folder(request.node_dir, mark_of(state))
    name, lock = take_name(base, host)
    os.set_inheritable(lock, True)  # the launcher holds it until it ends
    head = head_address(state / FOLDER)
    flags = LauncherFlags(
        arbiter=head if request.head == "here" else relay_address(base, job),
        announce="" if request.head == "here" else route_to(head.rpartition(":")[0]),
        state=state,
        join=str(state / FOLDER / TOKEN),
        node=name,
        node_dir=base / name,
        cpu_only=request.cpu_slots is not None,
        slots=request.cpu_slots,
        stop_seconds=f"{request.stop_seconds}s",
        control_groups="none" if request.cpu_slots is None else "kill",
    )
    command = flags.command
    if ended_clean(state / FOLDER, name):  # the arbiter has let the node go, and with it its credential
        OwnJoin(base / name, name, flags.arbiter).forget()
    write_pilot(state / FOLDER, Pilot(job=job, node=name, host=host, began_at=time.time()))
    own = {"GRPC_VERBOSITY": "NONE", "EUNOMIA_LOG": "info"}
    return command, {**env, **own}


def pilot_id(env: Mapping[str, str]) -> str:
    """Return the engine's id of the node on which this process runs: the step's id, else the batch job's."""
    return env.get(PILOT_ID) or env.get("SLURM_JOB_ID", "")


def clear(state: Path, env: Mapping[str, str]) -> None:
    """Remove the folder of this job's node from the local disk, once no process of the node runs any more."""
    pilot = pilots(state / FOLDER).get(pilot_id(env))
    if pilot is not None:
        base = private_folder(Request.load(state).node_dir, mark_of(state))
        port_file(base, pilot.job).unlink(missing_ok=True)
        clear_node(base, pilot.node)


if __name__ == "__main__":
    main()
