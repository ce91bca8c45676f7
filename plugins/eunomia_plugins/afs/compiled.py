"""Stage two of Algorithm 1, compiled by numba where it is installed (extra ``fast``)."""

import functools
from collections.abc import Callable
from typing import Final, cast

import numpy as np

from eunomia.extras import is_installed
from eunomia.units import Ints, Reals
from eunomia_plugins.afs.prefixes import Raising
from eunomia_plugins.afs.shares import Ladders

MANY: Final = 256
"""Jobs and GPUs to share, added, from which compiled code pays at once: importing numba and loading the code take some
tenths of a second."""
OFTEN: Final = 2000
"""Rounds after which compiled code pays for few jobs, too: plain code takes some tenths of a millisecond each time."""

Loop = Callable[[Ints, Ints, Reals, Ints, int, bool], None]
"""Takes each job's first row, sizes, seconds, steps (changed in place), GPUs, and whether lengths are known."""


class FastRaising:
    """Stage two; the number of calls decides only when code is compiled, not the result."""

    def __init__(self) -> None:
        self._calls = 0

    def sizes(self, ladders: Ladders, steps: list[int], gpus: int, *, known: bool) -> list[int]:
        """See ``fast_raised``."""
        self._calls += 1
        return fast_raised(ladders, steps, gpus, known=known, rounds=self._calls - 1)


def fast_raised(ladders: Ladders, steps: list[int], gpus: int, *, known: bool, rounds: int = 0) -> list[int]:
    """Return the sizes that ``shares.raised`` gives, by the fastest installed code.

    Args:
        ladders: in order of the scan.
        steps: by job, the index of its size, or -1: it stays without.
        gpus: to share in this stage.
        known: whether lengths may be compared.
        rounds: how often the caller has asked before.

    Returns:
        By job, the index of its size.
    """
    loop = compiled() if rounds >= OFTEN or len(steps) + gpus >= MANY else None
    if loop is None:
        return Raising(ladders.each(), steps, gpus, known=known).run()
    found = np.array(steps, np.int64)
    loop(ladders.start, ladders.sizes, ladders.seconds, found, gpus, known)
    return cast("list[int]", found.tolist())


@functools.cache
def compiled() -> Loop | None:
    """Return the compiled loop; None: numba is not installed, or has no writable folder for its cache."""
    if not is_installed("numba"):
        return None
    try:
        from eunomia_plugins.afs.loops import raise_sizes
    except RuntimeError:
        return None
    return cast("Loop", raise_sizes)
