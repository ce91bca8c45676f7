"""Reserve standard output for a command's result: the output of plugins and solvers is redirected to standard error."""

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def own_stdout() -> Iterator[None]:
    """Redirect to stderr what Python and native code print to stdout within the block.

    The C library buffers the output of native code; its buffers are flushed before the block ends.
    """
    sys.stdout.flush()
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # the process has no stdout or no stderr
            kept = os.dup(1)
            stack.callback(os.close, kept)
            _write_buffers()
            os.dup2(2, 1)
            stack.callback(os.dup2, kept, 1)
            stack.callback(_write_buffers)
        stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        yield


def _write_buffers() -> None:
    """Flush the buffers of the C library's streams."""
    flush = getattr(ctypes.CDLL(None), "fflush", None)
    if flush is not None:
        flush(None)
