"""Stdout and stderr of a worker that a full disk does not end: what cannot be written is dropped, training goes on."""

import contextlib
import errno
import io
import sys
from typing import Any, Final

FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""Errors of a disk that takes no more: full, a quota, the largest file, broken."""


class LenientFile(io.FileIO):
    """A file whose writes count as done where the disk refuses them."""

    def write(self, data: Any, /) -> int:
        """Write, or drop what the disk does not take."""
        try:
            return super().write(data) or 0
        except OSError as error:
            if error.errno not in FULL:
                raise
            return memoryview(data).nbytes


def be_lenient() -> None:
    """Let ``print``, and what else writes to this process's own stdout and stderr, outlive a full disk.

    Where Python is unbuffered, a line is written whole at its end. Streams that the script has replaced are left alone.
    """
    for name, number in (("stdout", 1), ("stderr", 2)):
        old = getattr(sys, name)
        if not isinstance(old, io.TextIOWrapper) or old is not getattr(sys, f"__{name}__"):
            continue
        with contextlib.suppress(OSError, ValueError):  # closed, or full already
            if old.fileno() != number:
                continue
            old.flush()
        raw = LenientFile(number, "w", closefd=False)
        # With -u each argument of a print would be a write of its own, and lines of ranks that share a file would mix.
        by_line = old.line_buffering or old.write_through
        new = io.TextIOWrapper(io.BufferedWriter(raw), encoding=old.encoding, errors=old.errors, line_buffering=by_line)
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)
