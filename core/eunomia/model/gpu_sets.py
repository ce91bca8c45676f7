"""Set operations on short ascending arrays of GPUs; numpy's own set functions are slower for the sizes of gangs."""

import numpy as np

from eunomia.units import Ints

NO_GPUS = np.empty(0, np.int64)


def without(gpus: Ints, others: Ints) -> Ints:
    """GPUs of the first set that are not in the other."""
    if gpus.size == 0 or others.size == 0:
        return gpus
    if gpus is others:
        return NO_GPUS
    gone = set(others.tolist())
    return _kept(gpus, [gpu not in gone for gpu in gpus.tolist()])


def within(gpus: Ints, others: Ints) -> Ints:
    """GPUs of the first set that are also in the other."""
    if gpus.size == 0 or others.size == 0:
        return NO_GPUS
    there = set(others.tolist())
    return _kept(gpus, [gpu in there for gpu in gpus.tolist()])


def joined(one: Ints, other: Ints) -> Ints:
    """GPUs of either set, ascending."""
    if one.size == 0 or other.size == 0:
        return other if one.size == 0 else one
    return np.array(sorted({*one.tolist(), *other.tolist()}), dtype=np.int64)


def _kept(gpus: Ints, keep: list[bool]) -> Ints:
    if all(keep):
        return gpus
    return gpus[keep] if any(keep) else NO_GPUS
