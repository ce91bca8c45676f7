"""Touches files below a user's folder with its owner's rights, so that no link there reaches further than the user.

A user's processes write into their app's folder, and may put a link at any name in it: at a log, at the older copy of
a file, at a folder of the output. What root does by such a name, it does to the link's target. So whatever the service
opens, writes, renames or deletes below an app's folder, it does between ``as_owner``'s lines. The app's folder itself
stands in a folder of root's, so that its owner is whom root gave it to.

The kernel keeps the rights to files for each thread apart (``setfsuid``, ``setfsgid``, and ``setgroups`` as a bare
system call); other threads, and everything but files, stay as they are. The lines between must not wait for a task.
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
"""Numbers of the system call; the C library's function of this name changes all threads."""
_READ: Final = -1
MOST_STUCK: Final = 4
"""Readers of the files of one owner that may hang at once, for instance in a pipe."""
READ_SECONDS: Final = 20.0
R = TypeVar("R")


class RightsError(EunomiaError):
    """The kernel did not change, or give back, the rights of a thread."""


def can_act_as_owner() -> bool:
    """Return whether this process may touch files with the rights of other accounts."""
    return os.geteuid() == 0 and platform.machine() in _SETGROUPS


@contextlib.contextmanager
def as_owner(folder: Path) -> Iterator[None]:
    """Touch files with the rights of a folder's owner, in this thread, until the end of the block.

    Nothing changes where the folder is this process' own or is gone, and where this process is not root: then the
    kernel holds it to its own rights.

    Args:
        folder: of an app; the folder around it must be root's.

    Raises:
        RightsError: the kernel did not change the rights; nothing was touched.
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
    """Touch files with the rights of an account and of its group alone, in this thread, until the end of the block.

    Raises:
        RightsError: the kernel did not change the rights; nothing was touched.
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
    """Read files of an app with its owner's rights, in a thread that may be left behind.

    A user can put a pipe where a file is read, and let its reader wait for ever.

    Args:
        folder: of the app.
        read: does it, and may raise.
        seconds: after which the reader is left behind.

    Raises:
        EunomiaError: it took too long, or earlier readers still wait.
    """
    if not _is_others(folder):
        return read()
    return _LEFT_BEHIND.run(folder, read, seconds)


class _LeftBehind:
    """Counts readers that were left behind, by the owner of what they read."""

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
    """Change a right of this thread; the call itself reports no failure, so it is asked again."""
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
