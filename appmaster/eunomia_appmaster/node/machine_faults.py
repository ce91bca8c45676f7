"""Faults of the infrastructure, apart from those of a program: a full disk, no memory, an arbiter out of reach."""

import errno
import signal
from collections.abc import Iterator
from pathlib import Path

from eunomia.errors import UnreachableError

MACHINE_FAULT = 71
"""EX_OSERR: exit code of a process that ended for a fault of the infrastructure."""
TERMINATED = 143
"""Exit code of a process that ended on SIGTERM, as shells have it."""
FROM_OUTSIDE = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGKILL, signal.SIGTERM})
"""Signals with which users, the kernel short of memory, or a service manager end a process. Any other one that ends a
process, such as SIGSEGV, is for a fault of its own."""
_REFUSALS = frozenset(
    {
        errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EAGAIN,
        errno.ENOBUFS, errno.ESTALE,
    }
)  # fmt: skip


def is_machine_fault(error: BaseException) -> bool:
    """Return whether an error, or one that it follows from, is the infrastructure's.

    The machine refused something, or the arbiter cannot be reached: it failed itself, or the token for it is damaged.
    """
    return any(_is_refusal(one) for one in _chain(error))


def _is_refusal(error: BaseException) -> bool:
    if isinstance(error, OSError):
        return error.errno in _REFUSALS
    no_thread = isinstance(error, RuntimeError) and "can't start new thread" in str(error)
    return isinstance(error, MemoryError | UnreachableError) or no_thread


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def out_of_memory_kills() -> int:
    """Return how many processes of this machine the kernel has killed for lack of memory since boot; 0: not known."""
    try:
        lines = Path("/proc/vmstat").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
