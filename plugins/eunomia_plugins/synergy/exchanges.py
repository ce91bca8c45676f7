"""Exchange jobs between machines and divide each machine's CPUs and memory, so that the sum of rates increases.

The value of a machine is the largest sum of rates that its jobs can have with its CPUs and memory, each rate relative
to that at the proportional share. The relaxed programme of a machine gives prices of its CPUs and memory; exchanges are
tried in order of the jobs' gains at the other machines' prices.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from eunomia.units import NONE, Ints, Reals
from eunomia_plugins.synergy.points import Points, instance_of
from eunomia_plugins.synergy.programme import OptProgramme, priced
from eunomia_plugins.synergy.whole_jobs import solve

LEAST_GAIN: Final = 1e-4
"""Minimum gain of an exchange, as a fraction of one job's rate at its share."""
CANDIDATES: Final = 200
"""Maximum number of exchanges, by expected gain, that are tried before prices are recomputed."""


@dataclasses.dataclass(slots=True, eq=False)
class Exchangeable:
    """A job on one machine, with the points of CPUs and memory that it can have there."""

    points: Points
    """Points for all its GPUs together, in ascending order; the first is its minimum."""
    gpus: int
    gpu_type: int
    """Requested GPU type; -1: any."""
    machine: int
    moves: bool
    """Whether the job may move to another machine."""


class Machines(NamedTuple):
    """The GPUs, CPUs and memory that machines have for these jobs."""

    free: Ints
    """[machine] number of GPUs without a job."""
    amounts: Reals
    """[machine, 2] CPUs and GiB for these jobs together."""
    gpu_type: Ints


class Exchanges:
    """A local search that swaps jobs of equal size or moves jobs to free GPUs while the sum of rates increases.

    Args:
        jobs: the jobs, whose machines are changed in place.
        machines: the machines, without the GPUs, CPUs and memory of other jobs.
    """

    def __init__(self, jobs: Sequence[Exchangeable], machines: Machines) -> None:
        self.jobs, self._machines = jobs, machines
        self._free = machines.free.copy()
        self._on: list[list[int]] = [[] for _ in range(machines.free.size)]
        for number, job in enumerate(jobs):
            self._on[job.machine].append(number)
        self._at = np.array([job.machine for job in jobs], np.int64)
        self._gpus = np.array([job.gpus for job in jobs], np.int64)
        self._moves = np.array([job.moves for job in jobs], bool)
        types = np.array([job.gpu_type for job in jobs], np.int64)
        self._may = (types[:, None] == NONE) | (types[:, None] == machines.gpu_type)
        self._value, self._need = _columns([job.points for job in jobs])
        self._worth = np.zeros(machines.free.size)
        self._gain = np.zeros((len(jobs), machines.free.size))
        """[job, machine] value minus price of the job's best point there."""

    def run(self, tries: int) -> None:
        """Apply exchanges until none gains or the maximum number of tries is reached."""
        for machine in range(len(self._on)):
            self._price(machine)
        failed: set[tuple[object, ...]] = set()
        while tries > 0:
            for first, second, machine in self._candidates():
                here = int(self._at[first])
                key = first, second, machine, frozenset(self._on[here]), frozenset(self._on[machine])
                if key in failed:
                    continue
                tries -= 1
                if self._exchange(first, second, machine):
                    break
                failed.add(key)
                if tries <= 0:
                    return
            else:
                return

    def divided(self, machine: int) -> list[tuple[int, tuple[float, float]]]:
        """Return the jobs on a machine with CPUs and GiB for all GPUs of each: the points with the best sum."""
        mine = self._on[machine]
        if not mine:
            return []
        instance = self._instance(machine, mine)
        found = None if instance is None else solve(instance, certify=False)
        if found is None:
            return []
        made = []
        for number, row in zip(mine, found.jobs, strict=True):
            points, at = self.jobs[number].points, int(row.argmax())
            at = at if at < points.value.size else 0
            made.append((number, (float(points.cpus[at]), float(points.memory_gib[at]))))
        return made

    # --- one machine -------------------------------------------------------------------------------------------------

    def _instance(self, machine: int, jobs: Sequence[int]) -> OptProgramme | None:
        """Return the programme of these jobs on a machine; None if the machine has no CPUs or no memory for them."""
        cpus, memory_gib = self._machines.amounts[machine].tolist()
        if cpus <= 0.0 or memory_gib <= 0.0:
            return None
        return instance_of([self.jobs[job].points for job in jobs], np.ones(len(jobs), np.int64), (cpus, memory_gib))

    def _sum(self, machine: int, jobs: Sequence[int]) -> float:
        """Return the largest sum of rates found for these jobs on a machine; -inf if they do not fit."""
        if not jobs:
            return 0.0
        instance = self._instance(machine, jobs)
        found = None if instance is None else solve(instance, certify=False)
        return -np.inf if found is None else found.value

    def _price(self, machine: int) -> None:
        """Compute a machine's prices from the relaxed programme, and the gains of jobs at these prices."""
        jobs, prices = self._on[machine], np.zeros(2)
        instance = self._instance(machine, jobs) if jobs else None
        if instance is not None:
            lightest = instance.need.sum(axis=0).argmin(axis=1)
            starts = [point for point in (np.zeros_like(lightest), lightest) if instance.fits(point)]
            prices = priced(instance, starts[0]).prices if starts else prices
        each = prices / np.maximum(self._machines.amounts[machine], 1e-9)
        self._worth[machine] = self._sum(machine, jobs)
        self._gain[:, machine] = (self._value - each[0] * self._need[0] - each[1] * self._need[1]).max(axis=1)

    # --- exchanges ---------------------------------------------------------------------------------------------------

    def _candidates(self) -> Iterator[tuple[int, int, int]]:
        """Yield a job, the job to swap it with (-1: none) and its new machine, largest expected gain first."""
        every = np.arange(self._at.size)
        more = np.where(self._may, self._gain, -np.inf) - self._gain[every, self._at][:, None]
        both = more[:, self._at] + more[:, self._at].T
        allowed = self._moves[:, None] & self._moves & (self._gpus[:, None] == self._gpus)
        allowed &= np.triu(self._at[:, None] != self._at, 1)
        swaps = np.where(allowed, both, -np.inf)
        fits = (
            self._moves[:, None] & (self._free >= self._gpus[:, None]) & (self._at[:, None] != np.arange(more.shape[1]))
        )
        moves = np.where(fits, more, -np.inf)
        gains = np.concatenate([swaps.ravel(), moves.ravel()])
        few = np.argpartition(-gains, min(CANDIDATES, gains.size) - 1)[:CANDIDATES]
        for at in few[np.argsort(-gains[few], kind="stable")].tolist():
            if gains[at] < LEAST_GAIN:
                return
            if at < swaps.size:
                first, second = divmod(at, every.size)
                yield first, second, int(self._at[second])
            else:
                first, machine = divmod(at - swaps.size, more.shape[1])
                yield first, NONE, machine

    def _exchange(self, first: int, second: int, machine: int) -> bool:
        """Move job ``first`` to ``machine``, and ``second`` (-1: none) to the machine of ``first``, if rates increase.

        Returns:
            Whether the move was made.
        """
        here = int(self._at[first])
        sets = {
            here: [job for job in self._on[here] if job != first] + ([second] if second != NONE else []),
            machine: [job for job in self._on[machine] if job != second] + [first],
        }
        worth = sum(self._sum(place, jobs) for place, jobs in sets.items())
        if not worth > self._worth[here] + self._worth[machine] + LEAST_GAIN:
            return False
        for place, jobs in sets.items():
            self._on[place] = jobs
            for job in jobs:
                self._at[job] = self.jobs[job].machine = place
            self._price(place)
        if second == NONE:
            self._free[here] += self._gpus[first]
            self._free[machine] -= self._gpus[first]
        return True


def _columns(points: Sequence[Points]) -> tuple[Reals, Reals]:
    """Return values, [job, point], and needs of CPUs and GiB, [2, job, point], padded with worthless points."""
    width = max((each.value.size for each in points), default=1)
    value, need = np.full((len(points), width), -np.inf), np.zeros((2, len(points), width))
    for job, each in enumerate(points):
        count = each.value.size
        value[job, :count] = each.value
        need[0, job, :count], need[1, job, :count] = each.cpus, each.memory_gib
    return value, need
