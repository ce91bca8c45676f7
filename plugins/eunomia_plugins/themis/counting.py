"""Counts that decide whether equal machines can hold the parts of several bids together.

Consider the machines of one class, each with ``f`` GPUs on offer. Parts above ``f / 2`` are called large: a machine
holds at most one. If the sizes of the small parts form a chain, each dividing the next, then largest-first packing
packs every set of parts that can be packed (Coffman, Garey, Johnson 1987, "Bin packing with divisible item sizes"):
before parts of size ``s`` are packed, every machine's load of small parts is a multiple of ``s``, so the number that
still fits does not depend on where the other parts are. Hence for every small size ``s`` the slots of size ``s`` on a
machine, minus those used by each larger part, must not run out; together with the number of machines for the large
parts, these are all conditions. Sizes 2 and 3 on machines of 8 form no chain: there parts are counted by size, and a
table tells which numbers of them the class can hold together (``packable``). Classes for which that table would be too
large are left to ``patterns``.
"""

from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Final

import numpy as np

from eunomia import ByBundle
from eunomia.units import Bools, Ints
from eunomia_plugins.themis.packing import most_parts, packable

MOST_PACKABLE: Final = 1 << 16
"""Maximum number of entries of the table ``packable`` of a class."""


@dataclass(frozen=True, slots=True, eq=False)
class Fits:
    """The table ``packable`` of a class, whose axes are the counts from index ``first`` on."""

    first: int
    packable: Bools


@dataclass(frozen=True, slots=True, eq=False)
class Counts:
    """The counts: rows fit together exactly if their ``use`` sums to at most ``capacity`` and ``fits`` allows it.

    Attributes:
        use: [row, count] amount used by each row of the bids.
        capacity: [count] amount available.
        uncounted: [class] whether the counts are necessary but not sufficient.
        fits: tables of the classes whose parts are counted by size.
    """

    use: Ints
    capacity: Ints
    uncounted: Bools
    fits: tuple[Fits, ...] = ()


def count(bids: ByBundle, rows: Ints, *, by_size: bool = False) -> Counts:
    """Return the counts that decide which of these rows can win together.

    Args:
        bids: the bid table.
        rows: the rows to count; ``use`` has a line for each.
        by_size: whether to count parts by size if sizes form no chain; if False, such classes are uncounted.
    """
    owner = np.arange(bids.rho.size).repeat(bids.part_start[1:] - bids.part_start[:-1])
    line = np.full(bids.rho.size, -1)
    line[rows] = np.arange(rows.size)
    use: list[Ints] = []
    capacity: list[int] = []
    fits: list[Fits] = []
    uncounted = np.zeros(len(bids.classes), dtype=bool)
    for kind, (free, machines) in enumerate(
        zip(bids.classes.free.tolist(), bids.classes.machines.tolist(), strict=True)
    ):
        parts = ((bids.part_class == kind) & (line[owner] >= 0)).nonzero()[0]
        if parts.size == 0:
            continue
        gpus = bids.part_gpus[parts].tolist()
        sizes = sorted(set(gpus))
        taken, limits, exact = _class_counts(sizes, free, machines)
        table = None if exact or not by_size else _table(sizes, free, machines)
        if table is not None:
            fits.append(Fits(len(use), table))
            taken, limits = _by_size(sizes, free, machines)
        uncounted[kind] = not exact and table is None
        for takes, limit in zip(taken, limits, strict=True):
            weights = np.array([takes[size] for size in gpus]) * bids.part_machines[parts]
            column = np.bincount(line[owner[parts]], weights=weights, minlength=rows.size).astype(np.int64)
            use.append(column)
            capacity.append(limit)
    matrix = np.column_stack(use) if use else np.empty((rows.size, 0), dtype=np.int64)
    return _reduced(matrix, np.array(capacity, dtype=np.int64), uncounted, fits)


def _by_size(parts: list[int], free: int, machines: int) -> tuple[list[dict[int, int]], list[int]]:
    """Return counts of parts above 1 GPU by size and, if there are parts of 1, of all GPUs, as these fit anywhere."""
    large = tuple(size for size in parts if size > 1)
    taken = [{size: int(size == one) for size in parts} for one in large]
    limits = list(most_parts(large, free, machines))
    return (taken, limits) if 1 not in parts else ([*taken, {size: size for size in parts}], [*limits, machines * free])


def _table(sizes: list[int], free: int, machines: int) -> Bools | None:
    """Return the table of packable numbers of parts above 1 GPU, or None if it would be too large."""
    parts = tuple(size for size in sizes if size > 1)
    if prod(many + 1 for many in most_parts(parts, free, machines)) > MOST_PACKABLE:
        return None
    return packable(parts, free, machines)


def _class_counts(parts: list[int], free: int, machines: int) -> tuple[list[dict[int, int]], list[int], bool]:
    """Return the use of each part size and the capacity of each count of a class, and whether the counts are exact."""
    if machines == 1:  # on one machine the sum decides
        return [{size: size for size in parts}], [free], True
    small = [size for size in parts if 2 * size <= free]
    taken = [{size: int(2 * size > free) for size in parts}]
    limits = [machines]
    chain = all(after % before == 0 for before, after in pairwise(small))
    for unit in small if chain else [1]:
        taken.append({size: free // unit - (free - size) // unit if size >= unit else 0 for size in parts})
        limits.append(machines * (free // unit))
    return taken, limits, chain


def _reduced(use: Ints, capacity: Ints, uncounted: Bools, fits: list[Fits]) -> Counts:
    """Return the counts divided by the common divisors of their entries, without counts implied by others.

    Counts that are axes of a table are not changed.
    """
    axes = {one.first + axis for one in fits for axis in range(one.packable.ndim)}
    for column in sorted(set(range(capacity.size)) - axes):
        common = int(np.gcd.reduce(use[:, column], initial=0)) or 1
        use[:, column] //= common
        capacity[column] //= common
    share = use / np.maximum(capacity, 1)
    kept: list[int] = []
    for column in range(capacity.size):
        others = [*kept, *range(column + 1, capacity.size)]
        if column in axes or not any((share[:, column] <= share[:, other] + 1e-12).all() for other in others):
            kept.append(column)
    moved = tuple(Fits(kept.index(one.first), one.packable) for one in fits)
    return Counts(use[:, kept], capacity[kept], uncounted, moved)
