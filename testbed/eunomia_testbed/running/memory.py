"""Memory between the steps of a large run: what one leaves is handed back before the next one takes its own."""

import ctypes
import gc


def hand_back() -> None:
    """Collect what is no longer used, and give free memory back to the system where the C library can.

    A simulation works with Python's and numpy's memory, tables and page with polars', which has an allocator of its
    own: what one of them keeps for later is of no use to the other.
    """
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's
    if trim is not None:
        trim(0)
