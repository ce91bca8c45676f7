"""The walk down those who run, where some of those who wait come before them: who fits into what is left stays."""

import abc
from collections.abc import Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from eunomia.units import NONE, Bools, Ints, Reals

Entry = tuple[float, int, int]
"""Key, place in the order of arrival, row: what sorts before it is served before it."""
P = TypeVar("P")
Held = tuple[int, int, int, bool]
"""Row of a job that runs, its GPUs, their type, and whether GPUs of another type would do."""


class Grant(NamedTuple):
    """A job that is served."""

    row: int
    kind: int
    gpus: int


class Room:
    """What is left for those who have not had their turn.

    Attributes:
        left: by type, what is free and what those hold who have not had their turn.
        idle: by type, what nobody holds; it says which type is chosen, not whether there is room.
    """

    __slots__ = ("idle", "left")

    def __init__(self, left: list[int], idle: list[int]) -> None:
        self.left, self.idle = left, idle

    def choose(self, gpus: int, kind: int, home: int = NONE) -> int:
        """The type that a job gets: the one that it asks for or has, else the one with most that nobody holds.

        Where none has so many that nobody holds, it is the one with most left.

        Args:
            gpus: that it needs at least.
            kind: that it asks for; -1: any.
            home: that it has; -1: it holds nothing.
        """
        if kind != NONE:
            return kind
        if home != NONE and gpus <= self.left[home]:
            return home
        most = max(self.idle)
        return self.idle.index(most) if gpus <= most else self.left.index(max(self.left))

    def take(self, gpus: int, kind: int, home: int = NONE) -> None:
        """Give so many GPUs of a type to a job that has its turn, and holds some of type ``home``."""
        self.left[kind] -= gpus
        if kind != home:
            self.idle[kind] = max(0, self.idle[kind] - gpus)


class Walk(abc.ABC, Generic[P]):
    """The walk; a place in it says how many of those who run have had their turn.

    Attributes:
        room: what is left.
        grants: who is served that waits, or goes on on another type, in order.
        losers: rows of those who do not fit.
        start: the place where nobody has had a turn.
        end: the place where everybody has.
    """

    def __init__(self, start: P, end: P, free: list[int]) -> None:
        self.start, self.end, self._at, self._free = start, end, start, free
        self.room = Room(self.behind(start), free.copy())
        self.grants: list[Grant] = []
        self.losers: list[int] = []

    @abc.abstractmethod
    def last(self) -> float:
        """The largest key; -inf: nobody runs."""

    @abc.abstractmethod
    def place(self, entry: Entry) -> P:
        """Where a waiting job comes in."""

    @abc.abstractmethod
    def held(self, start: P, end: P) -> list[int]:
        """By type, what those hold who are served between two places."""

    @abc.abstractmethod
    def misfits(self, start: P, end: P, excess: list[int]) -> Iterable[Held]:
        """Those between two places from the first that does not fit on, first served first.

        Args:
            start: a place.
            end: a later one.
            excess: by type, how many more GPUs those between hold than there are left.
        """

    def behind(self, place: P) -> list[int]:
        """By type, what is free and what those hold who are served from this place on."""
        return [free + own for free, own in zip(self._free, self.held(place, self.end), strict=True)]

    def skip_to(self, place: P, behind: list[int]) -> None:
        """Those before this place stay: nobody was served before them.

        Args:
            place: where the first is served that waits.
            behind: what is free and what those hold who are served from there on.
        """
        self._at, self.room.left = place, behind

    def up_to(self, entry: Entry) -> None:
        """Go on to those who are served after this waiting job."""
        self._go(self.place(entry))

    def to_the_end(self) -> None:
        """Go on to the last of them."""
        self._go(self.end)

    def _go(self, end: P) -> None:
        at, left = self._at, self.room.left
        if at == end:
            return
        self._at = end
        excess = [many - room for many, room in zip(self.held(at, end), left, strict=True)]
        if max(excess) <= 0:
            self.room.left = [-many for many in excess]
            return
        rest = list(self.misfits(at, end, excess))
        self.room.left = [-many for many in excess]
        for _, gpus, home, _ in rest:  # those before them all fit
            self.room.left[home] += gpus
        self._one_by_one(rest)

    def _one_by_one(self, rest: Sequence[Held]) -> None:
        room = self.room
        for row, gpus, home, movable in rest:
            of = room.choose(gpus, NONE, home) if movable else home
            if gpus > room.left[of]:
                self.losers.append(row)
                continue
            room.take(gpus, of, home)
            if of != home:
                self.grants.append(Grant(row, of, gpus))


class Contestants(NamedTuple):
    """Columns of jobs that run and may lose what they have."""

    keys: Reals
    order: Ints
    rows: Ints
    gpus: Ints
    kinds: Ints
    """GPU type of what they have."""
    movable: Bools
    """Whether GPUs of another type would do."""

    def ranked(self) -> "Contestants":
        """The same, first served first."""
        at = np.lexsort((self.order, self.keys))  # ties go by arrival
        columns = (self.order[at], self.rows[at], self.gpus[at], self.kinds[at], self.movable[at])
        return Contestants(self.keys[at], *columns)


class ColumnWalk(Walk[int]):
    """The walk down columns that are sorted for it."""

    def __init__(self, runs: Contestants, free: list[int]) -> None:
        self._runs = runs = runs.ranked()
        gpus = [np.where(runs.kinds == kind, runs.gpus, 0) for kind in range(len(free))]
        self._total = np.zeros((len(free), runs.rows.size + 1), np.int64)
        for total, own in zip(self._total, gpus, strict=True):
            np.cumsum(own, out=total[1:])
        super().__init__(0, int(runs.rows.size), free)

    def last(self) -> float:
        """The largest key."""
        return float(self._runs.keys[-1]) if self._runs.keys.size else -np.inf

    def place(self, entry: Entry) -> int:
        """Where a waiting job comes in."""
        keys = self._runs.keys
        first = int(keys.searchsorted(entry[0]))
        if first == self.end or keys[first] != entry[0]:
            return first
        last = int(keys.searchsorted(entry[0], side="right"))
        return first + int(self._runs.order[first:last].searchsorted(entry[1]))

    def held(self, start: int, end: int) -> list[int]:
        """By type, what those hold who are served between two places."""
        held: list[int] = (self._total[:, end] - self._total[:, start]).tolist()
        return held

    def misfits(self, start: int, end: int, excess: list[int]) -> Iterable[Held]:
        """Those between two places from the first that does not fit on."""
        over = (
            np.searchsorted(total, total[end] - many, side="right")
            for total, many in zip(self._total, excess, strict=True)
        )
        first, runs = max(start, int(min(over)) - 1), self._runs
        columns = (runs.rows, runs.gpus, runs.kinds, runs.movable)
        return zip(*(column[first:end].tolist() for column in columns), strict=True)
