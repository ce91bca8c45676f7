"""Names of nodes on a host, each taken under a lock on the host's local disk, and the folders of those nodes."""

import contextlib
import fcntl
import os
import shutil
import stat
from pathlib import Path
from typing import Final

from eunomia.errors import InputError
from eunomia_appmaster.node import local_machine

MOST_NODES_A_HOST: Final = 64


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


def clear_node(base: Path, name: str) -> None:
    """Remove the folder of a node on which nothing runs any more, unless the next pilot has begun there."""
    if (lock := lock_name(base, name)) is not None:
        clear_locked(base, name, lock)


def clear_locked(base: Path, name: str, lock: int) -> None:
    """Remove the folder of a node on which nothing runs any more, and give up its name.

    Args:
        base: of the nodes of this host.
        name: of the node.
        lock: the open file with its lock.
    """
    shutil.rmtree(base / name, ignore_errors=True)
    (base / f"{name}.lock").unlink(missing_ok=True)
    os.close(lock)
    with contextlib.suppress(OSError):  # another node of this host has files there
        base.rmdir()


def check_gpus(asked: str) -> None:
    """Check that this machine has GPUs.

    Args:
        asked: what was asked for, in the words of the option.

    Raises:
        InputError: none is found.
    """
    if local_machine.detect().slots[0].gpu_type == local_machine.CPU_TYPE:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        rule = f"a node{asked} must have NVIDIA GPUs that NVML finds (--cpu-slots N: CPU slots)"
        raise InputError(rule, value=f'none; CUDA_VISIBLE_DEVICES="{visible}"')
