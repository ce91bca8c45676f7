"""Pack parts of bids on equal machines: the patterns of one machine, and the parts that several machines can hold."""

from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from eunomia.units import Bools, Ints


def patterns(sizes: Ints, free: int) -> Ints:
    """Return the maximal patterns of a machine, [pattern, size]: numbers of parts by size after which no part fits.

    Args:
        sizes: sizes of parts, ascending.
        free: number of GPUs on offer on a machine.
    """

    def fill(position: int, room: int) -> Iterator[list[int]]:
        if position < 0:
            if room < int(sizes[0]):
                yield []
            return
        for many in range(room // int(sizes[position]), -1, -1):
            for rest in fill(position - 1, room - many * int(sizes[position])):
                yield [*rest, many]

    return np.array(list(fill(len(sizes) - 1, free)), dtype=np.int64).reshape(-1, len(sizes))


def most_parts(sizes: tuple[int, ...], free: int, machines: int) -> tuple[int, ...]:
    """Return, for each size, the number of parts that fit if there are no others."""
    return tuple(machines * (free // size) for size in sizes)


@lru_cache(maxsize=256)
def packable(sizes: tuple[int, ...], free: int, machines: int) -> Bools:
    """Return a table, with one axis per part size, of whether the machines can hold these numbers of parts."""
    shape = tuple(many + 1 for many in most_parts(sizes, free, machines))
    fits = np.zeros(shape, dtype=bool)
    fits[(0,) * len(sizes)] = True
    for _ in range(machines):
        before = fits
        fits = before.copy()
        for fill in patterns(np.array(sizes), free).tolist():
            less = [np.maximum(np.arange(size) - many, 0) for size, many in zip(shape, fill, strict=True)]
            fits |= before[np.ix_(*less)]
    fits.setflags(write=False)
    return fits
