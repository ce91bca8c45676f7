"""Stage two of Algorithm 1, compiled by numba if it is installed (extra ``fast``)."""

import functools
from collections.abc import Callable
from typing import Final, cast

import numpy as np

from eunomia.extras import is_installed
from eunomia.units import Ints, Reals
from eunomia_plugins.afs.prefixes import Raising
from eunomia_plugins.afs.shares import Ladders

MANY: Final = 256
"""Number of jobs plus GPUs from which compiled code pays off at once, although importing numba and loading the code
take some tenths of a second."""
OFTEN: Final = 2000
"""Number of rounds after which compiled code pays off even for few jobs; plain code takes tenths of a ms per round."""

Loop = Callable[[Ints, Ints, Reals, Ints, int, bool], None]
"""The type of ``loops.raise_sizes``, which updates the steps in place."""


class FastRaising:
    """Stage two of Algorithm 1; the number of calls only decides when compiled code is used, not the result."""

    def __init__(self) -> None:
        self._calls = 0

    def sizes(self, ladders: Ladders, steps: list[int], gpus: int, *, known: bool) -> list[int]:
        """Return the sizes by ``fast_raised``, and count the call."""
        self._calls += 1
        return fast_raised(ladders, steps, gpus, known=known, rounds=self._calls - 1)


def fast_raised(ladders: Ladders, steps: list[int], gpus: int, *, known: bool, rounds: int = 0) -> list[int]:
    """Return the result of ``shares.raised``, computed by the fastest installed code.

    Args:
        ladders: ladders of jobs, in the order of the scan.
        steps: [job] index of its size in its ladder; -1: it gets no GPUs.
        gpus: number of GPUs to share in this stage.
        known: whether the jobs' lengths are known and compared (AFS-L), or not (AFS-P).
        rounds: number of earlier calls by the caller.

    Returns:
        [job] index of its size in its ladder.
    """
    loop = compiled() if rounds >= OFTEN or len(steps) + gpus >= MANY else None
    if loop is None:
        return Raising(ladders.each(), steps, gpus, known=known).run()
    found = np.array(steps, np.int64)
    loop(ladders.start, ladders.sizes, ladders.seconds, found, gpus, known)
    return cast("list[int]", found.tolist())


@functools.cache
def compiled() -> Loop | None:
    """Return the compiled loop, or None if numba is not installed or has no writable folder for its cache."""
    if not is_installed("numba"):
        return None
    try:
        from eunomia_plugins.afs.loops import raise_sizes
    except RuntimeError:
        return None
    return cast("Loop", raise_sizes)
