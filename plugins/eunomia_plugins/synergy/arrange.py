"""Place jobs with fixed GPUs, CPUs and memory on machines by local search; few jobs are divided (Synergy A.1.3).

First, each job is placed where its GPUs fit, balancing CPUs and memory. Then jobs with equal numbers of GPUs are
swapped while that reduces the shortage on machines. Last, jobs are removed from machines that still lack CPUs or
memory.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np

from eunomia.units import NONE, Bools, Ints, Reals
from eunomia_plugins.synergy.room import Counts

NEAR: Final = 1e-10
TRIALS: Final = 10
TURNS: Final = 4
"""Maximum number of exchanges that are tried, as a multiple of the number of jobs."""


def arranged(need: Reals, room: Reals, scale: Reals, start: Sequence[Counts]) -> list[Counts]:
    """Return the machines of each job with its number of GPUs on each; empty if the job does not fit.

    A job that fits on no single machine together with the others is divided into single GPUs, each with its part of the
    CPUs and memory. Jobs stay on their initial machines unless more GPUs can be placed otherwise.

    Args:
        need: [job, 3] GPUs, CPUs and GiB.
        room: [machine, 3] GPUs, CPUs and GiB left.
        scale: [3] resources of the largest machine, which make the three comparable.
        start: initial machines of each job, with the number of GPUs on each; empty: none.
    """
    found = _from(need, room, scale, start)
    if all(found) or not any(start):
        return found
    fresh = _from(need, room, scale, [[] for _ in start])
    return fresh if _gpus(fresh) > _gpus(found) else found


def _gpus(found: Sequence[Counts]) -> int:
    return sum(count for counts in found for _, count in counts)


def _from(need: Reals, room: Reals, scale: Reals, start: Sequence[Counts]) -> list[Counts]:
    """Return the best of several attempts, each of which divides more jobs than the previous one."""
    gpus = np.rint(need[:, 0]).astype(np.int64)
    divided: Bools = np.array([len(counts) > 1 for counts in start], dtype=bool)
    best: list[Counts] = [[] for _ in gpus]
    most = -1
    for _ in range(TRIALS):
        parts = np.where(divided, gpus, 1)
        job = np.repeat(np.arange(gpus.size), parts)
        arrangement = _Arrangement((need / parts[:, None])[job], room, scale)
        machine = arrangement.run(_places(start, divided, parts))
        lost: Bools = np.bincount(job, weights=machine == NONE, minlength=gpus.size) > 0
        found = _counts(job, machine, np.where(divided, 1, gpus), lost)
        if _gpus(found) > most:
            best, most = found, _gpus(found)
        lost[job[arrangement.uneven]] = True
        more = lost & (gpus > 1) & ~divided
        if not more.any():
            break
        divided |= more
    return best


def _places(start: Sequence[Counts], divided: Bools, parts: Ints) -> Ints:
    """Return the initial machine of each part of a job."""
    places: list[int] = []
    for counts, whole, count in zip(start, (~divided).tolist(), parts.tolist(), strict=True):
        if not counts:
            places += [NONE] * count
        elif whole:
            places.append(counts[0][0])
        else:
            places += [machine for machine, gpus in counts for _ in range(gpus)]
    return np.array(places, np.int64)


def _counts(job: Ints, machine: Ints, each: Ints, lost: Bools) -> list[Counts]:
    """Return the number of GPUs on each machine for each job; empty for jobs that lost a part."""
    found = [Counter[int]() for _ in range(lost.size)]
    for one, place in zip(job.tolist(), machine.tolist(), strict=True):
        if not lost[one]:
            found[one][place] += int(each[one])
    return [sorted(counts.items()) for counts in found]


class _Arrangement:
    def __init__(self, need: Reals, room: Reals, scale: Reals) -> None:
        self._need, self._left = need / scale, room / scale
        self.machine = np.full(len(need), NONE)
        self.uneven: list[int] = []
        """Jobs of several GPUs that keep machines unbalanced: heavy ones where a resource is short, light ones where
        much of it is left."""

    def run(self, start: Ints) -> Ints:
        """Place all parts, exchange them, and remove those that do not fit; return the machine of each part.

        Args:
            start: [part] initial machine; -1: none.
        """
        for part in np.flatnonzero(start != NONE).tolist():
            if self._left[start[part], 0] >= self._need[part, 0] - NEAR:
                self._put(part, int(start[part]))
        self._seat()
        for _ in range(TURNS * len(self._need)):
            if not self._improve():
                break
        self.uneven = self._uneven()
        self._give_up()
        return self.machine

    def _seat(self) -> None:
        """Place large jobs first, each on the machine that has room and most CPUs and memory left per GPU."""
        heavy = self._need[:, 1:].max(axis=1)
        for job in np.lexsort((-heavy, -self._need[:, 0])).tolist():
            if self.machine[job] != NONE:
                continue
            fits = self._left[:, 0] >= self._need[job, 0] - NEAR
            if fits.any():
                after = self._left - self._need[job]
                spare = after[:, 1:].min(axis=1) - after[:, 0]
                self._put(job, int(np.where(fits, spare, -np.inf).argmax()))

    def _put(self, job: int, machine: int) -> None:
        if self.machine[job] != NONE:
            self._left[self.machine[job]] += self._need[job]
        self.machine[job] = machine
        if machine != NONE:
            self._left[machine] -= self._need[job]

    def _lack(self, left: Reals) -> Reals:
        lack: Reals = np.maximum(-left[..., 1:] - NEAR, 0.0).sum(axis=-1)
        return lack

    def _improve(self) -> bool:
        """Apply the best exchange or move from a machine with a large shortage; return whether there was one."""
        lack = self._lack(self._left)
        for machine in np.argsort(-lack, kind="stable")[: int((lack > NEAR).sum())].tolist():
            here = np.flatnonzero(self.machine == machine)
            best = max(self._exchange(machine, here, lack), self._move(machine, here, lack))
            if best[0] <= NEAR:
                continue
            first, second, place = best[1:]
            if second != NONE:
                self._put(second, NONE)
            self._put(first, place)
            if second != NONE:
                self._put(second, machine)
            return True
        return False

    def _exchange(self, machine: int, here: Ints, lack: Reals) -> tuple[float, int, int, int]:
        """Return the best exchange of two jobs with equal numbers of GPUs.

        The result is its gain, both jobs, and the other machine.
        """
        there = np.flatnonzero((self.machine != machine) & (self.machine != NONE))
        if not there.size:
            return 0.0, NONE, NONE, NONE
        change = self._need[there] - self._need[here][:, None]
        other = self.machine[there]
        after = self._lack(self._left[machine] - change) + self._lack(self._left[other] + change)
        equal = np.abs(change[:, :, 0]) <= NEAR
        saved = np.where(equal, lack[machine] + lack[other] - after, 0.0)
        first, second = np.unravel_index(int(saved.argmax()), saved.shape)
        return float(saved[first, second]), int(here[first]), int(there[second]), int(other[second])

    def _move(self, machine: int, here: Ints, lack: Reals) -> tuple[float, int, int, int]:
        """Return the best move of a job to free GPUs."""
        need = self._need[here][:, None]
        fits = (self._left[:, 0] >= need[:, :, 0] - NEAR) & (np.arange(lack.size) != machine)
        after = self._lack(self._left[machine] + need) + self._lack(self._left - need)
        saved = np.where(fits, lack[machine] + lack - after, 0.0)
        first, place = np.unravel_index(int(saved.argmax()), saved.shape)
        return float(saved[first, place]), int(here[first]), NONE, int(place)

    def _uneven(self) -> list[int]:
        lack, short = self._lack(self._left), np.maximum(-self._left[:, 1:], 0.0).sum(axis=0)
        spare = np.maximum(self._left[:, 1:], 0.0) @ (short / max(float(short.sum()), NEAR))
        order = np.argsort(-spare, kind="stable")
        few = int(np.searchsorted(np.cumsum(spare[order]), lack.sum())) + 1
        found = [self._extreme(machine, 1.0) for machine in np.flatnonzero(lack > NEAR).tolist()]
        if found:
            found += [self._extreme(machine, -1.0) for machine in order[:few].tolist() if spare[machine] > NEAR]
        return [job for job in found if job != NONE]

    def _extreme(self, machine: int, sign: float) -> int:
        """Return the job of several GPUs with the most (``sign`` 1) or least (-1) CPUs or memory per GPU."""
        several = self._need[:, 0] > self._need[:, 0].min(initial=1.0) + NEAR
        here = np.flatnonzero((self.machine == machine) & several)
        if not here.size:
            return NONE
        each = self._need[here, 1:].max(axis=1) / self._need[here, 0]
        return int(here[(sign * each).argmax()])

    def _give_up(self) -> None:
        """Remove jobs from machines that lack CPUs or memory.

        The job with the fewest GPUs whose removal suffices goes first, else the heaviest.
        """
        for machine in np.flatnonzero(self._lack(self._left) > NEAR).tolist():
            while self._lack(self._left[machine]) > NEAR:
                here = np.flatnonzero(self.machine == machine)
                rest = self._lack(self._left[machine] + self._need[here])
                enough: Bools = rest <= NEAR
                rank = np.where(enough, self._need[here, 0] * 1e3 + self._need[here, 1:].sum(axis=1), 1e9 + rest)
                self._put(int(here[rank.argmin()]), NONE)
