"""Returns memory to the system between the steps of a large run."""

import ctypes
import gc


def hand_back() -> None:
    """Collect garbage, and return free memory to the system if the C library supports it.

    A simulation uses Python's and numpy's memory, tables and page that of polars, which has a separate allocator:
    memory that one of them keeps for later cannot be used by the other.
    """
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's
    if trim is not None:
        trim(0)
