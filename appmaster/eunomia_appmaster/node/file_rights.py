"""Accesses files in a user's folder with the owner's rights, so that no link there gives further access.

A user's processes write into their app's folder and may replace any name in it by a link: a log, the backup of a file,
a folder of the output. If root used such a name, it would act on the link's target. So the service opens, writes,
renames and deletes below an app's folder only inside a block of ``as_owner``. The app's folder itself is in a folder
that root owns, so its owner is the one that root has set.

The kernel keeps file rights for each thread separately (``setfsuid``, ``setfsgid``, and ``setgroups`` as a direct
system call); other threads, and all other rights, are unchanged. Code in the block must not await anything.
"""

import contextlib
import ctypes
import os
import platform
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeVar

from eunomia.errors import EunomiaError
from eunomia_appmaster.node.parent_death import death_signal_kept

_SYSTEM: Final = ctypes.CDLL(None, use_errno=True)
_SETGROUPS: Final = {"x86_64": 116, "aarch64": 159, "riscv64": 159}
"""Numbers of the system call ``setgroups``; the C library's function of this name changes all threads."""
_READ: Final = -1
MOST_STUCK: Final = 4
"""Most readers of one owner's files that may hang at the same time, for instance in a pipe."""
READ_SECONDS: Final = 20.0
R = TypeVar("R")


class RightsError(EunomiaError):
    """The kernel did not change the rights of a thread, or did not restore them."""


def can_act_as_owner() -> bool:
    """Return whether this process may access files with the rights of other accounts."""
    return os.geteuid() == 0 and platform.machine() in _SETGROUPS


@contextlib.contextmanager
def as_owner(folder: Path) -> Iterator[None]:
    """Use the rights of a folder's owner for this thread's file accesses, until the end of the block.

    Nothing changes if this process owns the folder, if the folder is gone, or if this process is not root and so is
    limited by the kernel anyway.

    Args:
        folder: folder of an app; its parent folder must be root's.

    Raises:
        RightsError: the kernel did not change the rights; no file was accessed.
    """
    try:
        state = os.lstat(folder)
    except FileNotFoundError:
        yield
        return
    if os.geteuid() != 0 or state.st_uid == 0:
        yield
        return
    if not stat.S_ISDIR(state.st_mode):
        raise RightsError(
            "an app's folder must be a folder, no link", value=stat.filemode(state.st_mode), place=str(folder)
        )
    with as_account(state.st_uid, state.st_gid):
        yield


@contextlib.contextmanager
def as_account(uid: int, gid: int) -> Iterator[None]:
    """Use only the rights of an account and its group for this thread's file accesses, until the end of the block.

    Raises:
        RightsError: the kernel did not change the rights; no file was accessed.
    """
    if not can_act_as_owner():
        raise RightsError(
            "another account's files must be touched by root on a known machine", value=platform.machine()
        )
    before = _groups()
    with death_signal_kept():
        try:
            _set_groups(())
            _set(_SYSTEM.setfsgid, gid, "group")
            _set(_SYSTEM.setfsuid, uid, "user")
            yield
        finally:
            _set(_SYSTEM.setfsuid, os.geteuid(), "user")
            _set(_SYSTEM.setfsgid, os.getegid(), "group")
            _set_groups(before)


def reading_as_owner(folder: Path, read: Callable[[], R], *, seconds: float = READ_SECONDS) -> R:
    """Read files of an app with its owner's rights, in a thread that is abandoned if it takes too long.

    A user can replace a file by a pipe, so that its reader waits forever.

    Args:
        folder: folder of the app.
        read: reads the files; its exceptions propagate.
        seconds: time after which the thread is abandoned.

    Raises:
        EunomiaError: it took too long, or too many earlier readers still hang.
    """
    if not _is_others(folder):
        return read()
    return _LEFT_BEHIND.run(folder, read, seconds)


class _LeftBehind:
    """Counts abandoned readers by the owner of the files."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stuck: dict[int, int] = {}

    def run(self, folder: Path, read: Callable[[], R], seconds: float) -> R:
        owner = os.lstat(folder).st_uid
        rule = f"files of an app must be read within {seconds:g} s; is there a pipe among them?"
        with self._lock:
            if self._stuck.get(owner, 0) >= MOST_STUCK:
                raise EunomiaError(rule, value=f"{MOST_STUCK} readers that still wait", place=str(folder))
            self._stuck[owner] = self._stuck.get(owner, 0) + 1
        made: list[R] = []
        failed: list[BaseException] = []

        def work() -> None:
            try:
                with as_owner(folder):
                    made.append(read())
            except BaseException as error:
                failed.append(error)
            finally:
                with self._lock:
                    self._stuck[owner] -= 1

        reader = threading.Thread(target=work, name="read as owner", daemon=True)
        reader.start()
        reader.join(seconds)
        if failed:
            raise failed[0]
        if not made:
            raise EunomiaError(rule, value="more", place=str(folder))
        return made[0]


_LEFT_BEHIND: Final = _LeftBehind()


def _is_others(folder: Path) -> bool:
    try:
        return os.geteuid() == 0 and os.lstat(folder).st_uid != 0
    except FileNotFoundError:
        return False


def _set(call: Callable[[int], int], number: int, what: str) -> None:
    """Change a right of this thread; since the call reports no failure, it is repeated to check the result."""
    call(number)
    if call(_READ) != number:
        raise RightsError(f"the {what} whose files a thread touches must change", value=f"{call(_READ)}, not {number}")


def _groups() -> tuple[int, ...]:
    return tuple(os.getgroups())


def _set_groups(groups: tuple[int, ...]) -> None:
    listed = (ctypes.c_uint32 * len(groups))(*groups)
    if _SYSTEM.syscall(_SETGROUPS[platform.machine()], len(groups), listed):
        error = ctypes.get_errno()
        raise RightsError("the groups whose files a thread touches must change", value=os.strerror(error))
