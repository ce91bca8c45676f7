"""Lets a worker survive a full disk: output to stdout and stderr that cannot be written is dropped."""

import contextlib
import errno
import io
import sys
from typing import Any, Final

FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""Errors of a disk that cannot be written: full, over quota, file too large, broken."""


class LenientFile(io.FileIO):
    """A file whose writes count as done even if the disk refuses them."""

    def write(self, data: Any, /) -> int:
        """Write data; drop the part that the disk refuses. Returns the length of the data."""
        try:
            return super().write(data) or 0
        except OSError as error:
            if error.errno not in FULL:
                raise
            return memoryview(data).nbytes


def be_lenient() -> None:
    """Make this process's own stdout and stderr survive a full disk.

    With unbuffered output, a line is written as a whole at its end. Streams that the script has replaced are unchanged.
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
