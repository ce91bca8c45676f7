"""Faults of the machine, apart from those of a program: a full disk, no memory, no descriptors, no processes."""

import errno
from collections.abc import Iterator

MACHINE_FAULT = 71
"""EX_OSERR: exit code of a process that ended since its machine refused something."""
TERMINATED = 143
"""Exit code of a process that ended on SIGTERM, as shells have it."""
_REFUSALS = frozenset(
    {
        errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EAGAIN,
        errno.ENOBUFS, errno.ESTALE,
    }
)  # fmt: skip


def is_machine_fault(error: BaseException) -> bool:
    """Return whether an error, or one that it follows from, says that the machine refused something."""
    return any(_is_refusal(one) for one in _chain(error))


def _is_refusal(error: BaseException) -> bool:
    if isinstance(error, OSError):
        return error.errno in _REFUSALS
    no_thread = isinstance(error, RuntimeError) and "can't start new thread" in str(error)
    return isinstance(error, MemoryError) or no_thread


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
