"""Returns free memory to the system between the steps of a large run."""

import ctypes
import gc


def hand_back() -> None:
    """Collect garbage, and return free memory to the system if the C library supports it.

    A simulation uses the allocator of Python and numpy, while tables and page use that of polars; memory that one
    allocator keeps in reserve is not available to the other.
    """
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's
    if trim is not None:
        trim(0)
