"""Rows of numbers, packed one behind the other: a log of a million rows is no million objects."""

import struct
from collections.abc import Hashable
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from eunomia.units import Ints
from eunomia_testbed.simulator.run import Words

_Seen = TypeVar("_Seen", bound=Hashable)


class Records:
    """Rows that are added one by one and taken as columns at last.

    Args:
        kinds: a letter a column, as ``struct`` has them: ``d`` for reals, others for whole numbers of a size.
    """

    __slots__ = ("_pack", "_row", "_rows")

    def __init__(self, kinds: str) -> None:
        self._pack = struct.Struct(f"={kinds}").pack
        self._row = np.dtype([(str(at), kind) for at, kind in enumerate(kinds)])
        self._rows = bytearray()

    def add(self, *row: float) -> None:
        """Add a row."""
        self._rows += self._pack(*row)

    def take(self) -> list[NDArray[Any]]:
        """The columns of all rows, whole numbers or reals in full width; the rows are no more."""
        rows, self._rows = np.frombuffer(self._rows, self._row), bytearray()
        wide = {"d": np.float64}
        return [rows[name].astype(wide.get(self._row[name].char, np.int64)) for name in self._row.names or ()]


class Codes(Generic[_Seen]):
    """What is said again and again, each thing with a number of its own."""

    __slots__ = ("_numbers",)

    def __init__(self, *known: _Seen) -> None:
        self._numbers = {each: number for number, each in enumerate(known)}

    def of(self, said: _Seen) -> int:
        """Its number; a new one where it was not said before."""
        return self._numbers.setdefault(said, len(self._numbers))

    def all(self) -> list[_Seen]:
        """By number, what was said."""
        return list(self._numbers)


def spelt(numbers: Ints, texts: list[str]) -> Words:
    """A column of texts, given by number; each text is there once."""
    known = np.empty(len(texts), dtype=object)
    known[:] = texts
    column: Words = known[numbers]
    return column
