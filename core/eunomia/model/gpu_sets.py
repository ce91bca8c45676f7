"""Set operations on short, ascending lists of GPUs."""

from collections.abc import Iterable, Sequence

import numpy as np

NO_GPUS = np.empty(0, np.int64)


def without(gpus: Sequence[int], others: Iterable[int]) -> list[int]:
    """Return the GPUs of the first list that are not in the other."""
    gone = set(others)
    return [gpu for gpu in gpus if gpu not in gone]


def joined(one: Iterable[int], other: Iterable[int]) -> list[int]:
    """Return the GPUs that are in either set, ascending."""
    return sorted({*one, *other})
