"""Classifies faults of the infrastructure, in contrast to those of a program: full disk, no memory, no arbiter."""

import errno
import signal
from collections.abc import Iterator
from pathlib import Path

from eunomia.errors import UnreachableError

MACHINE_FAULT = 71
"""EX_OSERR: exit code of a process that ended because of an infrastructure fault."""
TERMINATED = 143
"""Exit code of a process that ended on SIGTERM, as in shells."""
FROM_OUTSIDE = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGKILL, signal.SIGTERM})
"""Signals by which users, the kernel (for lack of memory) or a service manager end a process. Other signals, such as
SIGSEGV, show a fault of the process itself."""
_REFUSALS = frozenset(
    {
        errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EAGAIN,
        errno.ENOBUFS, errno.ESTALE,
    }
)  # fmt: skip


def is_machine_fault(error: BaseException) -> bool:
    """Return whether an error, or one that caused it, is a fault of the infrastructure.

    That is: the machine refused something, or the arbiter is unreachable, because it failed or the token for it is
    damaged.
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
    """Return how many processes of this machine the kernel has killed for lack of memory since boot; 0: unknown."""
    try:
        lines = Path("/proc/vmstat").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
