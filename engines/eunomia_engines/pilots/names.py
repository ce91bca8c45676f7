"""Names of nodes on a host, each locked by a file on the host's local disk, and the folders of those nodes."""

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
        InputError: the path is not a folder of this user, or other users have access to it.
    """
    path = parent / f"eunomia-{os.getuid()}-{name}"
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise InputError("a node's folder must belong to this user, and be open to no other", value=str(path))
    return path


def take_name(base: Path, host: str) -> tuple[str, int]:
    """Lock a node name that no other pilot on this machine holds; returns the name and the lock's file descriptor.

    The first node of a host has the host's name, the next ``HOST.2``.

    Raises:
        InputError: the host has too many nodes.
    """
    for number in range(1, MOST_NODES_A_HOST + 1):
        name = host if number == 1 else f"{host}.{number}"
        lock = lock_name(base, name)
        if lock is not None:
            return name, lock
    raise InputError(f"a host must have at most {MOST_NODES_A_HOST} nodes of an arbiter", value=host)


def lock_name(base: Path, name: str) -> int | None:
    """Lock a node's name; returns the lock's file descriptor; None: another process holds the lock."""
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
    """Remove the folder of a node on which nothing runs any more, unless the next pilot has started there."""
    if (lock := lock_name(base, name)) is not None:
        clear_locked(base, name, lock)


def clear_locked(base: Path, name: str, lock: int) -> None:
    """Remove the folder of a node on which nothing runs any more, and release its name.

    Args:
        base: folder of the nodes of this host.
        name: name of the node.
        lock: file descriptor of the name's lock, which is closed.
    """
    shutil.rmtree(base / name, ignore_errors=True)
    (base / f"{name}.lock").unlink(missing_ok=True)
    os.close(lock)
    with contextlib.suppress(OSError):  # another node of this host has files there
        base.rmdir()


def check_gpus(asked: str) -> None:
    """Check that this machine has GPUs.

    Args:
        asked: the requested GPUs, as text for the error.

    Raises:
        InputError: none is found.
    """
    if local_machine.detect().slots[0].gpu_type == local_machine.CPU_TYPE:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        rule = f"a node{asked} must have NVIDIA GPUs that NVML finds (--cpu-slots N: CPU slots)"
        raise InputError(rule, value=f'none; CUDA_VISIBLE_DEVICES="{visible}"')
