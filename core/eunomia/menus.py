"""Which sizes each job can run at, and how fast: curves that jobs of a kind share."""

import math
from typing import Final

import numpy as np

from eunomia.memos import Memo
from eunomia.shapes import builds, reads
from eunomia.units import Ints, Locality, Reals, Rows, Seconds
from eunomia.verdicts import NO_VERDICTS, Verdicts


@reads
class CurvePoints:
    """Points of all curves, sorted by curve and then by GPUs; ``start[c]`` to ``start[c + 1]`` are curve c's.

    ``gpu_type``, ``locality``, ``cpus`` and ``memory_gib`` are -1 or NaN where a point holds for any.
    ``rate`` is in iterations a second; NaN: the size can run, its rate is not known. ``basis``: a ``Basis``.
    """

    curve: Rows
    gpus: Ints
    gpu_type: Rows
    locality: Rows
    cpus: Reals
    memory_gib: Reals
    rate: Reals
    basis: Rows
    start: Ints


@builds
class ChangeCosts:
    """What changing a running job costs, in seconds."""

    pause: Seconds = Seconds(0.0)
    """No step is made."""
    join: Seconds = Seconds(0.0)
    """The job runs at its old size until newcomers are ready."""
    release: Seconds = Seconds(0.0)
    """Until the GPUs are back."""


@builds
class Probes:
    """Points to be measured while a job runs: job rows and numbers of GPUs."""

    jobs: Rows
    gpus: Ints


@builds
class Regimes:
    """What a job will do, as far as it is known: by job row, iterations and rate of each coming regime."""

    job: Rows
    iterations: Reals
    rate: Reals


FEW: Final = 8
"""Jobs for which columns cost more than they save."""
NO_CHANGE_COSTS: Final = ChangeCosts()


@builds
class Menus:
    """Each job points to a curve. A menu's sizes are its curve's numbers of GPUs."""

    curve: Rows
    """By job row; -1: not on a menu."""
    points: CurvePoints
    change: ChangeCosts = NO_CHANGE_COSTS
    regimes: Regimes | None = None
    probe: Probes | None = None
    verdicts: Verdicts = NO_VERDICTS
    memo: Memo | None = None
    one_size: bool = False
    """True: every job runs at its most GPUs or not at all, and whatever changes that touches its row."""

    def sizes(self, job: int) -> Ints:
        """Numbers of GPUs that the job can run at, ascending."""
        curve = int(self.curve[job])
        if curve < 0:
            return np.empty(0, np.int64)
        start, end = self.points.start[curve : curve + 2].tolist()
        gpus = self.points.gpus[start:end]
        return gpus if end <= start + 1 else gpus[np.append(True, gpus[1:] != gpus[:-1])]

    def only(self, job: int) -> tuple[int, float] | None:
        """The only size on the job's menu, and iterations a second at it, 0 and NaN: it has none; None: look it up.

        It says what ``span`` and ``full_rate`` say, where menus are of one size.
        """
        points = self.points
        if not self.one_size or points.gpus.size == 0:
            return None
        curve = self.curve.item(job)
        if curve < 0:
            return 0, math.nan
        at, end = points.start.item(curve), points.start.item(curve + 1)
        return (points.gpus.item(at), points.rate.item(at)) if at < end else None

    def has(self, job: int, gpus: int) -> bool:
        """Say whether the job can run at that size."""
        curve, points = int(self.curve[job]), self.points
        if curve < 0:
            return False
        start, end = points.start[curve : curve + 2].tolist()
        if end == start + 1:
            return int(points.gpus[start]) == gpus
        return gpus in points.gpus[start:end]

    def have(self, jobs: list[int], gpus: list[int]) -> bool:
        """Say whether every job can run at its size."""
        if len(jobs) <= FEW:
            return all(map(self.has, jobs, gpus))
        curve, points = self.curve[jobs], self.points
        if curve.min() >= 0:
            start = points.start[curve]
            if (points.start[curve + 1] > start).all() and (points.gpus[start] == gpus).all():
                return True  # all at their smallest
        return all(map(self.has, jobs, gpus))

    def largest_at_most(self, job: int, gpus: int) -> int:
        """The largest size on the job's menu that is at most ``gpus``; 0: none fits."""
        curve, points = int(self.curve[job]), self.points
        if curve < 0:
            return 0
        start, end = points.start[curve : curve + 2].tolist()
        fit = int(points.gpus[start:end].searchsorted(gpus, side="right"))
        return int(points.gpus[start + fit - 1]) if fit else 0

    def span(self, jobs: Rows) -> tuple[Ints, Ints]:
        """The smallest and the largest size on each job's menu; 0 where it has none."""
        curve = self.curve[jobs]
        if self.points.gpus.size == 0:
            return np.zeros(jobs.size, np.int64), np.zeros(jobs.size, np.int64)
        start, end = self.points.start[curve], self.points.start[curve + 1]
        empty = (curve < 0) | (end <= start)
        least = np.where(empty, 0, self.points.gpus[np.where(empty, 0, start)])
        most = np.where(empty, 0, self.points.gpus[np.where(empty, 0, end - 1)])
        return least, most

    def full_rate(self, jobs: Rows) -> Reals:
        """Iterations a second of each job at the largest size on its menu, GPUs side by side; NaN: not known."""
        points, curve = self.points, self.curve[jobs]
        if points.gpus.size == 0:
            return np.full(jobs.size, np.nan)
        if self.one_size:
            only: Reals = np.where(curve < 0, np.nan, points.rate[points.start[curve]])
            return only
        # Where a size has several points, the one that holds for any locality or for an island comes first, and those
        # of types on which it does not run come last.
        far = (points.locality != -1) & (points.locality != int(Locality.ISLAND))
        order = np.lexsort((far, points.rate <= 0.0, points.gpus, points.curve))
        size = (points.curve[order].astype(np.int64) << 32) + points.gpus[order]
        first = np.concatenate([[True], size[1:] != size[:-1]])
        first_of = np.maximum.accumulate(np.where(first, np.arange(size.size), 0))
        end = points.start[curve + 1]
        empty = (curve < 0) | (end <= points.start[curve])
        found: Reals = np.where(empty, np.nan, points.rate[order[first_of[np.where(empty, 0, end - 1)]]])
        return found

    def rate(self, job: int, gpus: int, locality: Locality = Locality.ISLAND) -> float:
        """Iterations a second at that size, at the nearest locality that the curve tells; NaN: not known."""
        curve = int(self.curve[job])
        if curve < 0:
            return float("nan")
        start, end = self.points.start[curve : curve + 2]
        here = np.flatnonzero(self.points.gpus[start:end] == gpus) + start
        if here.size == 0:
            return float("nan")
        levels = self.points.locality[here]
        exact = here[(levels == int(locality)) | (levels == -1)]
        return float(self.points.rate[exact[0] if exact.size else here[np.argmin(abs(levels - int(locality)))]])


def curve_points(
    curve: Rows,
    gpus: Ints,
    *,
    rate: Reals | None = None,
    gpu_type: Rows | None = None,
    locality: Rows | None = None,
    basis: Rows | None = None,
) -> CurvePoints:
    """Build points from columns sorted by curve and GPUs; what is not given holds for any, at no known rate."""
    size = curve.size
    curves = int(curve.max()) + 1 if size else 0
    nothing = np.full(size, -1, np.int32)
    unknown = np.full(size, np.nan)
    return CurvePoints(
        curve=curve,
        gpus=gpus,
        gpu_type=nothing if gpu_type is None else gpu_type,
        locality=nothing if locality is None else locality,
        cpus=unknown,
        memory_gib=unknown,
        rate=unknown if rate is None else rate,
        basis=np.zeros(size, np.int32) if basis is None else basis,
        start=np.searchsorted(curve, np.arange(curves + 1)).astype(np.int64),
    )
