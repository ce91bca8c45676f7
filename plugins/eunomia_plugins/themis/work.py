"""The time of an app's remaining work on given GPUs (Themis eq. 1 and 2), from its forecast."""

import heapq
import math
from bisect import bisect_right
from collections.abc import Sequence

from eunomia import Forecast, JobForecast, Locality
from eunomia.model.forecasts import ASSUMED_SLOWDOWN
from eunomia.units import Ints

Slowdown = tuple[float, float, float, float]


class RemainingWork:
    """The remaining work of an app: the phases of a forecast run one after another; a phase ends with its last job.

    Whole GPUs are divided among the jobs of a phase so that the last one ends as early as possible (§4.3.2 leaves the
    split to the tuner). With fewer GPUs than the jobs need together, jobs take turns, longest first.

    Args:
        forecast: the remaining phases.
        assumed: S by locality for jobs without a measured S; None: locality makes no difference.
        sizes: for a single job, the numbers of GPUs at which it can run, ascending; None: any from least to most.
    """

    def __init__(
        self, forecast: Forecast, *, assumed: Slowdown | None = ASSUMED_SLOWDOWN, sizes: Ints | None = None
    ) -> None:
        left = ([job for job in phase.jobs if job.iterations_left > 0.0] for phase in forecast.phases)
        self._phases = [jobs for jobs in left if jobs]
        self._assumed = assumed
        self._sizes: list[int] | None = None if sizes is None else sizes.tolist()
        self._splits: dict[tuple[int, int], list[int]] = {}
        self._known: dict[tuple[tuple[int, ...], Locality, Locality], float] = {}

    @property
    def done(self) -> bool:
        """Return whether no work is left."""
        return not self._phases

    def seconds(self, pieces: Sequence[int], near: Locality, far: Locality) -> float:
        """Return the seconds to the app's end on these numbers of GPUs per machine; inf if they are too few.

        ``near`` is the locality of GPUs on one machine, ``far`` that of GPUs on several machines.
        """
        key = (tuple(sorted(pieces, reverse=True)), near, far)
        known = self._known.get(key)
        if known is None:
            known = sum(self._phase(number, *key) for number in range(len(self._phases)))
            self._known[key] = known
        return known

    def slowest(self, far: Locality) -> float:
        """Return the seconds to the app's end on the fewest GPUs that all phases need, each GPU on its own machine."""
        sizes = self._sizes or [max((job.least for jobs in self._phases for job in jobs), default=1)]
        return self.seconds([1] * sizes[0], far, far)

    def _phase(self, number: int, pieces: tuple[int, ...], near: Locality, far: Locality) -> float:
        jobs, gpus = self._phases[number], sum(pieces)
        if len(jobs) == 1:
            return self._single(jobs[0], pieces, near, far)
        if gpus < sum(job.least for job in jobs):
            return self._turns(jobs, pieces, near, far)
        if (number, gpus) not in self._splits:
            self._splits[number, gpus] = split(jobs, gpus)
        return self._together(jobs, self._splits[number, gpus], pieces, near, far)

    def _single(self, job: JobForecast, pieces: tuple[int, ...], near: Locality, far: Locality) -> float:
        """Return the seconds of a single job on all GPUs that it can use, or on the largest piece if that is faster."""
        whole, local = self._fitting(job, sum(pieces)), self._fitting(job, pieces[0] if pieces else 0)
        apart = near if local == whole else far
        return min(self._time(job, whole, apart), self._time(job, local, near))

    def _fitting(self, job: JobForecast, gpus: int) -> int:
        """Return the largest size at which the job can run with ``gpus`` GPUs; 0 if there is none."""
        if self._sizes is None:
            return min(gpus, job.most) if gpus >= job.least else 0
        fit = bisect_right(self._sizes, gpus)
        return min(self._sizes[fit - 1], job.most) if fit else 0

    def _time(self, job: JobForecast, gpus: int, locality: Locality) -> float:
        if gpus < 1:
            return math.inf
        if self._assumed is None:
            return job.iterations_left * job.seconds_per_iteration / gpus
        apart = Locality.ISLAND if gpus == 1 else locality
        return job.iterations_left * job.seconds_per_iteration * job.slowdown_at(apart, self._assumed) / gpus

    def _together(
        self, jobs: list[JobForecast], shares: list[int], pieces: tuple[int, ...], near: Locality, far: Locality
    ) -> float:
        """Return the seconds of all jobs running at once, placed largest first.

        A job that fits on no single machine is spread, or shrunk to one machine if that is faster.
        """
        room = list(pieces)
        last = 0.0
        for share, job in sorted(zip(shares, jobs, strict=True), key=lambda pair: -pair[0]):
            fitting = [piece for piece in range(len(room)) if room[piece] >= share]
            if fitting:
                room[min(fitting, key=lambda piece: room[piece])] -= share
                last = max(last, self._time(job, share, near))
                continue
            largest = max(room)
            local = self._time(job, largest, near) if largest >= job.least else math.inf
            last = max(last, min(self._time(job, share, far), local))
            _take(room, share)
        return last

    def _turns(self, jobs: list[JobForecast], pieces: tuple[int, ...], near: Locality, far: Locality) -> float:
        """Return the seconds if jobs take turns on blocks of GPUs, longest first, as there are too few GPUs for all."""
        width = max(job.least for job in jobs)
        blocks = sum(pieces) // width
        if blocks == 0:
            return math.inf
        locality = near if sum(piece // width for piece in pieces) >= blocks else far
        busy = [0.0] * blocks
        for seconds in sorted((self._time(job, min(width, job.most), locality) for job in jobs), reverse=True):
            heapq.heapreplace(busy, busy[0] + seconds)
        return max(busy)


def split(jobs: Sequence[JobForecast], gpus: int) -> list[int]:
    """Return the GPUs of each job, [job], such that the last one ends as early as possible.

    The slowest job repeatedly gets one more GPU. ``gpus`` must be at least the sum of the jobs' smallest sizes.
    """
    shares = [job.least for job in jobs]
    work = [job.iterations_left * job.seconds_per_iteration for job in jobs]
    queue = [(-work[one] / shares[one], one) for one in range(len(jobs))]
    heapq.heapify(queue)
    for _ in range(gpus - sum(shares)):
        slowest = queue[0][1]
        if shares[slowest] >= jobs[slowest].most:
            break
        shares[slowest] += 1
        heapq.heapreplace(queue, (-work[slowest] / shares[slowest], slowest))
    return shares


def _take(room: list[int], gpus: int) -> None:
    """Take GPUs out of ``room``, from the largest pieces first."""
    for piece in sorted(range(len(room)), key=lambda one: -room[one]):
        taken = min(room[piece], gpus)
        room[piece] -= taken
        gpus -= taken
