"""Interrupts of a live run: Ctrl-C and SIGTERM."""

import contextlib
import signal
from collections.abc import Iterator


@contextlib.contextmanager
def ignoring_interrupts() -> Iterator[None]:
    """Ignore Ctrl-C and SIGTERM within the block."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C within the block: it raises KeyboardInterrupt."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
