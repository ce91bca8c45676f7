"""The preemption scan: running jobs, in order, keep their GPUs if enough remain after better-ranked jobs."""

import abc
from collections.abc import Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from eunomia.units import NONE, Bools, Ints, Reals

Entry = tuple[float, int, int]
"""Key, place in the order of arrival, row: entries sort in the order of service."""
P = TypeVar("P")
RunningJob = tuple[int, int, int, bool]
"""Row of a running job, its GPUs, their type, and whether the job can use GPUs of another type."""


class Grant(NamedTuple):
    """A job that is served."""

    row: int
    kind: int
    gpus: int


class Capacity:
    """GPUs that are left for jobs not scanned yet.

    Attributes:
        left: by type, free GPUs and those of running jobs not scanned yet.
        idle: by type, GPUs that no job holds; they decide which type is chosen, not whether a job fits.
    """

    __slots__ = ("idle", "left")

    def __init__(self, left: list[int], idle: list[int]) -> None:
        self.left, self.idle = left, idle

    def choose(self, gpus: int, kind: int, home: int = NONE) -> int:
        """Return the type that a job gets: the requested or held one, else the one with the most idle GPUs.

        Where no type has enough idle GPUs, it is the one with most GPUs left.

        Args:
            gpus: the least that it needs.
            kind: the type that it asks for; -1: any.
            home: the type that it holds; -1: it holds nothing.
        """
        if kind != NONE:
            return kind
        if home != NONE and gpus <= self.left[home]:
            return home
        most = max(self.idle)
        return self.idle.index(most) if gpus <= most else self.left.index(max(self.left))

    def take(self, gpus: int, kind: int, home: int = NONE) -> None:
        """Allocate GPUs of one type to a job that holds GPUs of type ``home`` or none."""
        self.left[kind] -= gpus
        if kind != home:
            self.idle[kind] = max(0, self.idle[kind] - gpus)


class PreemptionScan(abc.ABC, Generic[P]):
    """One pass over the running jobs; a position says how many of them are already scanned.

    Attributes:
        capacity: what is left.
        grants: waiting jobs that start, and running jobs that change their type, in order.
        evicted: rows of running jobs that do not fit.
        start: the position before the first job.
        end: the position after the last job.
    """

    def __init__(self, start: P, end: P, free: list[int]) -> None:
        self.start, self.end, self._at, self._free = start, end, start, free
        self.capacity = Capacity(self.left_from(start), free.copy())
        self.grants: list[Grant] = []
        self.evicted: list[int] = []

    @abc.abstractmethod
    def last_key(self) -> float:
        """The largest key; -inf: no job runs."""

    @abc.abstractmethod
    def position(self, entry: Entry) -> P:
        """The position of a waiting job among the running ones."""

    @abc.abstractmethod
    def held(self, start: P, end: P) -> list[int]:
        """By type, GPUs of the jobs between two positions."""

    @abc.abstractmethod
    def from_first_misfit(self, start: P, end: P, excess: list[int]) -> Iterable[RunningJob]:
        """Return the jobs between two positions in order of service, from the first job that does not fit.

        Args:
            start: a position.
            end: a later one.
            excess: by type, how many more GPUs the jobs between them hold than are left.
        """

    def left_from(self, position: P) -> list[int]:
        """Return by type the free GPUs plus those of the jobs from this position on."""
        return [free + own for free, own in zip(self._free, self.held(position, self.end), strict=True)]

    def skip_to(self, position: P, left: list[int]) -> None:
        """Keep all jobs before this position as they are: no waiting job precedes them.

        Args:
            position: of the first waiting job that is served.
            left: free GPUs and those of the jobs from there on.
        """
        self._at, self.capacity.left = position, left

    def advance_to(self, entry: Entry) -> None:
        """Scan the running jobs that are served before this waiting job."""
        self._advance(self.position(entry))

    def finish(self) -> None:
        """Scan the remaining running jobs."""
        self._advance(self.end)

    def _advance(self, end: P) -> None:
        at, left = self._at, self.capacity.left
        if at == end:
            return
        self._at = end
        excess = [held - own for held, own in zip(self.held(at, end), left, strict=True)]
        if max(excess) <= 0:
            self.capacity.left = [-over for over in excess]
            return
        rest = list(self.from_first_misfit(at, end, excess))
        self.capacity.left = [-over for over in excess]
        for _, gpus, home, _ in rest:  # the jobs before these all fit
            self.capacity.left[home] += gpus
        self._one_by_one(rest)

    def _one_by_one(self, rest: Sequence[RunningJob]) -> None:
        capacity = self.capacity
        for row, gpus, home, movable in rest:
            of = capacity.choose(gpus, NONE, home) if movable else home
            if gpus > capacity.left[of]:
                self.evicted.append(row)
                continue
            capacity.take(gpus, of, home)
            if of != home:
                self.grants.append(Grant(row, of, gpus))


class Preemptible(NamedTuple):
    """Columns of running jobs that may be preempted."""

    keys: Reals
    order: Ints
    rows: Ints
    gpus: Ints
    kinds: Ints
    """Type of the GPUs that each job holds."""
    movable: Bools
    """Whether the job can use GPUs of another type."""

    def ranked(self) -> "Preemptible":
        """The same jobs in order of service."""
        at = np.lexsort((self.order, self.keys))  # ties go by arrival
        columns = (self.order[at], self.rows[at], self.gpus[at], self.kinds[at], self.movable[at])
        return Preemptible(self.keys[at], *columns)


class ColumnScan(PreemptionScan[int]):
    """The preemption scan over sorted columns."""

    def __init__(self, jobs: Preemptible, free: list[int]) -> None:
        self._jobs = jobs = jobs.ranked()
        gpus = [np.where(jobs.kinds == kind, jobs.gpus, 0) for kind in range(len(free))]
        self._total = np.zeros((len(free), jobs.rows.size + 1), np.int64)
        for total, own in zip(self._total, gpus, strict=True):
            np.cumsum(own, out=total[1:])
        super().__init__(0, int(jobs.rows.size), free)

    def last_key(self) -> float:
        """The largest key; -inf: no job runs."""
        return float(self._jobs.keys[-1]) if self._jobs.keys.size else -np.inf

    def position(self, entry: Entry) -> int:
        """The position of a waiting job among the running ones."""
        keys = self._jobs.keys
        first = int(keys.searchsorted(entry[0]))
        if first == self.end or keys[first] != entry[0]:
            return first
        last = int(keys.searchsorted(entry[0], side="right"))
        return first + int(self._jobs.order[first:last].searchsorted(entry[1]))

    def held(self, start: int, end: int) -> list[int]:
        """By type, GPUs of the jobs between two positions."""
        held: list[int] = (self._total[:, end] - self._total[:, start]).tolist()
        return held

    def from_first_misfit(self, start: int, end: int, excess: list[int]) -> Iterable[RunningJob]:
        """Return the jobs between two positions in order of service, from the first job that does not fit."""
        over = (
            np.searchsorted(total, total[end] - many, side="right")
            for total, many in zip(self._total, excess, strict=True)
        )
        first, jobs = max(start, int(min(over)) - 1), self._jobs
        columns = (jobs.rows, jobs.gpus, jobs.kinds, jobs.movable)
        return zip(*(column[first:end].tolist() for column in columns), strict=True)
