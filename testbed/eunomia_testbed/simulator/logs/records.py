"""Rows of numbers packed into one buffer, so that a log of a million rows does not hold a million objects."""

import struct
from collections.abc import Hashable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from eunomia.units import Ints
from eunomia_testbed.simulator.logs.run import Words

_Seen = TypeVar("_Seen", bound=Hashable)


class Records:
    """A table to which rows are added one by one, and which is read as columns at the end.

    A log that grows at every step adds rows without a method call: ``records.rows += records.pack(...)``.

    Args:
        kinds: one letter per column, as in ``struct``: ``d`` for reals, other letters for integers of some size.
    """

    __slots__ = ("_row", "pack", "rows")

    def __init__(self, kinds: str) -> None:
        self.pack = struct.Struct(f"={kinds}").pack
        """Packs a row, with one value per column, into bytes."""
        self.rows = bytearray()
        self._row = np.dtype([(str(at), kind) for at, kind in enumerate(kinds)])

    def add(self, *row: float) -> None:
        """Add a row."""
        self.rows += self.pack(*row)

    def take(self) -> list[NDArray[Any]]:
        """Return the columns of all rows, as 64-bit integers or floats, and clear the rows."""
        rows, self.rows = np.frombuffer(self.rows, self._row), bytearray()
        wide = {"d": np.float64}
        return [rows[name].astype(wide.get(self._row[name].char, np.int64)) for name in self._row.names or ()]


class Codes(dict[_Seen, int]):
    """Integer codes for distinct values, in the order in which they were first looked up."""

    __slots__ = ()

    def __init__(self, *known: _Seen) -> None:
        super().__init__(zip(known, range(len(known)), strict=True))

    def __missing__(self, value: _Seen) -> int:
        """Assign the next code to a new value."""
        number = self[value] = len(self)
        return number


def spelt(numbers: Ints, texts: list[str]) -> Words:
    """Return a column of texts from their codes; equal texts share one object."""
    known = np.empty(len(texts), dtype=object)
    known[:] = texts
    column: Words = known[numbers]
    return column
