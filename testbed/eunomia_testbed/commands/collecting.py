"""Looking for garbage only where there may be some: what a command imports and reads lives as long as it does."""

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Look for no garbage meanwhile, and never again among what was made: a tenth of a short command's time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_on:
            gc.enable()
