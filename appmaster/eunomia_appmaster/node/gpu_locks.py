"""Locks of this machine's GPUs, so that only one arbiter offers each GPU; and records of arbiters that use the CPUs.

A lock is ``flock`` on a file named by the GPU's UUID (of a MIG part: the part's own UUID), in folders that all users
share, independent of the state folder. The kernel releases the lock when the last process that holds the open file
ends. Other users may have put any files into those folders: links are not followed, and only regular files with one
name are written.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from eunomia.errors import InputError
from eunomia.model.shapes import value
from eunomia_appmaster.app.submission import login_name

BASES: Final = (Path("/run/lock"), Path("/tmp"))
"""Parents of the lock folders. All that are usable are used, so that any two users share at least one if possible."""
FOLDER: Final = "eunomia"
MOST_LETTERS: Final = 4096
MOST_NOTES: Final = 1000
_OPEN: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_CPUS: Final = "cpus."


@value
class Holder:
    """The holder of a lock, as its file describes it."""

    pid: int = 0
    state_dir: str = ""
    user: str = ""
    cpus: tuple[int, ...] = ()
    """CPUs that the arbiter may use."""

    def words(self) -> str:
        """Return the holder's description as text."""
        if not self.pid:
            return "a process that did not say its name"
        return f"process {self.pid} of user {self.user} (state in {self.state_dir})"


class GpuLocks:
    """The locks that a process holds; a context manager that releases them.

    Args:
        fds: open lock files, locked or about to be.
    """

    def __init__(self, fds: Iterable[int] = ()) -> None:
        self.fds = list(fds)
        self._note: tuple[int, str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the locks; a process that inherited the open files keeps holding them."""
        if self._note is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._note[1], dir_fd=self._note[0])
            self._note = None
        for fd in self.fds:
            with contextlib.suppress(OSError):
                os.close(fd)
        self.fds = []

    def take(self, uuids: Iterable[str], state_dir: Path) -> None:
        """Lock each GPU.

        Args:
            uuids: UUIDs of the GPUs or MIG parts; empty ones, of CPU slots, are skipped.
            state_dir: state folder of the arbiter.

        Raises:
            InputError: another process holds one, or no folder can be used.
        """
        names = [re.sub(r"[^A-Za-z0-9._-]", "_", uuid) for uuid in uuids if uuid]
        folders = list(_folders()) if names else []
        self.fds += folders
        me = _me(state_dir)
        for name in names:
            taken = [self._take(folder, name, me) for folder in folders]
            if not any(taken):
                places = ", ".join(str(base / FOLDER) for base in BASES)
                rule = "a folder that all users of this machine share must take the locks of its GPUs"
                raise InputError(rule, value="none in which a file can be made and locked", place=places)

    def _take(self, folder: int, name: str, me: Holder) -> bool:
        """Lock a file in a folder; returns whether the folder can be used.

        Raises:
            InputError: another process holds it.
        """
        fd = _open(folder, f"gpu.{name}")
        if fd is None:
            return False
        mine = next((known for known in self.fds if os.path.sameopenfile(known, fd)), None)
        if mine is not None:  # handed on by the process that locked it
            os.close(fd)
            return True
        self.fds.append(fd)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            rule = "a GPU must be offered by one arbiter (end that one, or leave the GPU out of CUDA_VISIBLE_DEVICES)"
            raise InputError(rule, value=f"{name}, which {_holder(fd).words()} holds") from None
        _write(fd, me)
        return True

    def note_cpus(self, state_dir: Path) -> list[Holder]:
        """Record that an arbiter uses this process's CPUs; returns the other arbiters that share some of these CPUs.

        Shared CPUs are not an error.
        """
        me = _me(state_dir)
        folder = next(_folders(), None)
        if folder is None:
            return []
        self.fds.append(folder)
        name = _CPUS + hashlib.sha256(me.state_dir.encode()).hexdigest()[:16]
        fd = _open(folder, name)
        if fd is not None:
            self.fds.append(fd)
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _write(fd, me)
                self._note = folder, name
        there = os.listdir(folder)[:MOST_NOTES]  # noqa: PTH208 - of an open folder
        notes = sorted(other for other in there if other.startswith(_CPUS) and other != name)
        found = [holder for other in notes if (holder := _noted(folder, other)) is not None]
        return [holder for holder in found if set(holder.cpus) & set(me.cpus)]


def _folders() -> Iterator[int]:
    """Yield the usable lock folders as open descriptors; missing ones are created."""
    for base in BASES:
        with contextlib.suppress(OSError):
            above = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                yield _folder(above)
            finally:
                os.close(above)


def _folder(above: int) -> int:
    """Open the lock folder inside another folder; a new one is writable for all users and has the sticky bit."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        os.mkdir(FOLDER, 0o700, dir_fd=above)
    except FileExistsError:
        return os.open(FOLDER, flags, dir_fd=above)
    made = os.open(FOLDER, flags, dir_fd=above)
    os.fchmod(made, 0o1777)
    return made


def _open(folder: int, name: str) -> int | None:
    """Open or create a lock file; None: the path exists and is not a regular file with one name."""
    for _ in range(8):
        try:
            fd = _opened(folder, name)
        except FileExistsError:  # made by another process meanwhile
            continue
        except OSError:  # a link, a folder, or another user's file that is not for everyone
            return None
        found = os.fstat(fd)
        if stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
            return fd
        os.close(fd)
        return None
    return None


def _opened(folder: int, name: str) -> int:
    try:
        # Without O_CREAT: in such a folder the kernel refuses it for files of other users.
        return os.open(name, _OPEN, dir_fd=folder)
    except FileNotFoundError:
        fd = os.open(name, _OPEN | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=folder)
        os.fchmod(fd, 0o666)
        return fd


def _me(state_dir: Path) -> Holder:
    cpus = tuple(sorted(os.sched_getaffinity(0)))
    return Holder(pid=os.getpid(), state_dir=str(state_dir.resolve()), user=login_name(), cpus=cpus)


def _write(fd: int, holder: Holder) -> None:
    """Write the holder's description; on a full disk the lock works without one."""
    found = {"pid": holder.pid, "state_dir": holder.state_dir, "user": holder.user, "cpus": holder.cpus}
    with contextlib.suppress(OSError):
        os.ftruncate(fd, 0)
        os.pwrite(fd, json.dumps(found).encode(), 0)


def _holder(fd: int) -> Holder:
    """Return the holder in a lock file, which any user may have written."""
    try:
        found: Any = json.loads(os.pread(fd, 4 * MOST_LETTERS, 0).decode())
        cpus = tuple(int(cpu) for cpu in found["cpus"])
        return Holder(
            pid=int(found["pid"]), state_dir=_plain(found["state_dir"]), user=_plain(found["user"]), cpus=cpus
        )
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return Holder()


def _plain(text: Any) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in str(text)[:MOST_LETTERS])


def _noted(folder: int, name: str) -> Holder | None:
    """Return the holder in a record of CPU use; None if its process has ended, in which case the record is deleted."""
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=folder)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _holder(fd)
    except OSError:
        return None
    else:
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=folder)
        return None
    finally:
        os.close(fd)


def inherited(text: str) -> Sequence[int]:
    """Return the open descriptors that another process passed on the command line; workers do not inherit them.

    Raises:
        InputError: the text is not a list of descriptors.
    """
    try:
        fds = [int(number) for number in text.split(",") if number]
        for fd in fds:
            os.set_inheritable(fd, False)
    except (ValueError, OSError) as error:
        raise InputError("--gpu-locks must name open files", value=f'"{text}"') from error
    return fds
