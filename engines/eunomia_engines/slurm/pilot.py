"""``python -m eunomia_engines.slurm.pilot STATE``: becomes the launcher of the node that this batch job holds."""

import contextlib
import fcntl
import json
import os
import shutil
import stat
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from eunomia.errors import EunomiaError, InputError
from eunomia_appmaster.commands.launcher import LauncherFlags
from eunomia_appmaster.launcher.joining import OwnJoin
from eunomia_appmaster.node import local_machine
from eunomia_engines.slurm.pilots import CLEAN, Pilot, pilots, write_pilot
from eunomia_engines.slurm.request import FOLDER, Request, mark_of

HEAD: Final = "head.json"
"""File below the engine's folder with the address at which nodes reach the arbiter."""
TOKEN: Final = "join.token"
MOST_NODES_A_HOST: Final = 64
CLEAR: Final = "--clear"
"""Argument with which the job's script removes the node's folder, once its launcher has ended everything there."""


def main() -> None:
    """Become the launcher; exit code 2 for what a restart would not change."""
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
        InputError: this is no batch job of the state folder, or the node lacks what it was asked for.
    """
    request = Request.load(state)
    job, host = env.get("SLURM_JOB_ID", ""), env.get("SLURMD_NODENAME", "")
    if not job.isdecimal() or not host:
        raise InputError("a pilot must run in a batch job of Slurm", value=f'SLURM_JOB_ID="{job}"')
    check_slots(request)
    base = private_folder(request.node_dir, mark_of(state))
    name, lock = take_name(base, host)
    os.set_inheritable(lock, True)  # the launcher holds it until it ends
    flags = LauncherFlags(
        arbiter=head_address(state),
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
    if ended_clean(state, name):  # the arbiter has let the node go, and with it its credential
        OwnJoin(base / name, name, flags.arbiter).forget()
    write_pilot(state, Pilot(job=job, node=name, host=host, began_at=time.time()))
    own = {"GRPC_VERBOSITY": "NONE", "EUNOMIA_LOG": "info"}
    return command, {**env, **own}


def ended_clean(state: Path, node: str) -> bool:
    """Return whether the last launcher of a node ended everything there, so that the next one joins as new."""
    before = [pilot for pilot in pilots(state).values() if pilot.node == node]
    return bool(before) and max(before, key=lambda pilot: pilot.began_at).ended == CLEAN


def check_slots(request: Request) -> None:
    """Check that the node has the GPUs that were asked for.

    Raises:
        InputError: no GPU is found, and CPU slots were not asked for.
    """
    if request.cpu_slots is not None:
        return
    if local_machine.detect().slots[0].gpu_type == local_machine.CPU_TYPE:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        rule = f"a node of --gres {request.gres} must have NVIDIA GPUs that NVML finds (--cpu-slots N: CPU slots)"
        raise InputError(rule, value=f'none; CUDA_VISIBLE_DEVICES="{visible}"')


def head_address(state: Path) -> str:
    """Return the arbiter's address.

    Raises:
        InputError: the head has not written it.
    """
    path = state / FOLDER / HEAD
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["address"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError("the head must have written its address", value=str(error)[:200], place=str(path)) from None


def private_folder(parent: Path, name: str) -> Path:
    """Return a folder of this user below one that others may write to, such as ``/var/tmp``.

    Raises:
        InputError: what is there is no folder of this user, or is open to others.
    """
    path = parent / f"eunomia-{os.getuid()}-{name}"
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise InputError("a node's folder must belong to this user, and be open to no other", value=str(path))
    return path


def take_name(base: Path, host: str) -> tuple[str, int]:
    """Return a name of a node that no other pilot on this machine holds, and the open file with its lock.

    The first node of a host has the host's name, the next ``HOST.2``.

    Raises:
        InputError: there are too many.
    """
    for number in range(1, MOST_NODES_A_HOST + 1):
        name = host if number == 1 else f"{host}.{number}"
        lock = lock_name(base, name)
        if lock is not None:
            return name, lock
    raise InputError(f"a host must have at most {MOST_NODES_A_HOST} nodes of an arbiter", value=host)


def lock_name(base: Path, name: str) -> int | None:
    """Return the open file with the lock of a node's name; None: another process holds it."""
    path = base / f"{name}.lock"
    while True:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(lock).st_ino == path.stat().st_ino:  # else it was removed before it was locked
                return lock
        except BlockingIOError:
            os.close(lock)
            return None
        except FileNotFoundError:
            pass
        os.close(lock)


def clear(state: Path, env: Mapping[str, str]) -> None:
    """Remove the folder of this job's node from the local disk; nothing of the node runs any more."""
    pilot = pilots(state).get(env.get("SLURM_JOB_ID", ""))
    if pilot is None:
        return
    base = private_folder(Request.load(state).node_dir, mark_of(state))
    lock = lock_name(base, pilot.node)
    if lock is None:  # the next pilot has begun there
        return
    shutil.rmtree(base / pilot.node, ignore_errors=True)
    (base / f"{pilot.node}.lock").unlink(missing_ok=True)
    os.close(lock)
    with contextlib.suppress(OSError):  # another node of this host has files there
        base.rmdir()


if __name__ == "__main__":
    main()
