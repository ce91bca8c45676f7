"""Menus: the sizes that each job can run at and its speed at each, as curves that jobs of a kind share."""

import math
from typing import Final

import numpy as np

from eunomia.contract.memos import Memo
from eunomia.contract.verdicts import NO_VERDICTS, Verdicts
from eunomia.model.shapes import builds, reads
from eunomia.units import Ints, Locality, Reals, Rows, Seconds


@reads
class CurvePoints:
    """Points of all curves, sorted by curve and then by GPUs; ``start[c]`` to ``start[c + 1]`` are curve c's.

    ``gpu_type``, ``locality``, ``cpus``, ``memory_gib`` and ``batch_size`` are -1 or NaN where a point holds for any.
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
    batch_size: Reals | None = None
    """Global batch size of each point, the present one of the jobs on its curve; None: NaN for all."""


@builds
class ChangeCosts:
    """The cost of changing the size of a running job, in seconds."""

    pause: Seconds = Seconds(0.0)
    """How long the job makes no progress."""
    join: Seconds = Seconds(0.0)
    """How long the job still runs at its old size, until its new workers are ready."""
    release: Seconds = Seconds(0.0)
    """How long until the released GPUs are free."""


@builds
class Probes:
    """Sizes to measure while a job runs: job rows and numbers of GPUs."""

    jobs: Rows
    gpus: Ints


@builds
class Regimes:
    """Known future regimes of jobs: the job row, iterations and rate of each."""

    job: Rows
    iterations: Reals
    rate: Reals


FEW: Final = 8
"""Up to this many jobs, a loop is faster than column operations."""
NO_CHANGE_COSTS: Final = ChangeCosts()


@builds
class Menus:
    """The curve of each job; the sizes on a job's menu are its curve's numbers of GPUs."""

    curve: Rows
    """By job row; -1: not on a menu."""
    points: CurvePoints
    change: ChangeCosts = NO_CHANGE_COSTS
    regimes: Regimes | None = None
    probe: Probes | None = None
    verdicts: Verdicts = NO_VERDICTS
    memo: Memo | None = None
    one_size: bool = False
    """True: every job runs at its most GPUs or not at all, and its size changes only when its row changes."""

    def sizes(self, job: int) -> Ints:
        """Return the numbers of GPUs that the job can run at, ascending."""
        curve = int(self.curve[job])
        if curve < 0:
            return np.empty(0, np.int64)
        start, end = self.points.start[curve : curve + 2].tolist()
        gpus = self.points.gpus[start:end]
        return gpus if end <= start + 1 else gpus[np.append(True, gpus[1:] != gpus[:-1])]

    def only(self, job: int) -> tuple[int, float] | None:
        """Return the only size on the job's menu and its iterations a second; 0 and NaN if the menu is empty.

        Returns None where menus may have several sizes; otherwise the values equal those of ``span`` and
        ``full_rate``.
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
        """Return whether the job can run at that size."""
        curve, points = int(self.curve[job]), self.points
        if curve < 0:
            return False
        start, end = points.start[curve : curve + 2].tolist()
        if end == start + 1:
            return int(points.gpus[start]) == gpus
        return gpus in points.gpus[start:end]

    def have(self, jobs: list[int], gpus: list[int]) -> bool:
        """Return whether every job can run at its size."""
        if len(jobs) <= FEW:
            return all(map(self.has, jobs, gpus))
        curve, points = self.curve[jobs], self.points
        if curve.min() >= 0:
            start = points.start[curve]
            if (points.start[curve + 1] > start).all() and (points.gpus[start] == gpus).all():
                return True  # every job is at its smallest size
        return all(map(self.has, jobs, gpus))

    def largest_at_most(self, job: int, gpus: int) -> int:
        """Return the largest size on the job's menu that is at most ``gpus``; 0: none is."""
        curve, points = int(self.curve[job]), self.points
        if curve < 0:
            return 0
        start, end = points.start[curve : curve + 2].tolist()
        fit = int(points.gpus[start:end].searchsorted(gpus, side="right"))
        return int(points.gpus[start + fit - 1]) if fit else 0

    def span(self, jobs: Rows) -> tuple[Ints, Ints]:
        """Return the smallest and the largest size on each job's menu; 0 for an empty menu."""
        curve = self.curve[jobs]
        if self.points.gpus.size == 0:
            return np.zeros(jobs.size, np.int64), np.zeros(jobs.size, np.int64)
        start, end = self.points.start[curve], self.points.start[curve + 1]
        empty = (curve < 0) | (end <= start)
        least = np.where(empty, 0, self.points.gpus[np.where(empty, 0, start)])
        most = np.where(empty, 0, self.points.gpus[np.where(empty, 0, end - 1)])
        return least, most

    def full_rate(self, jobs: Rows) -> Reals:
        """Return each job's iterations a second at the largest size on its menu, GPUs in one island; NaN: not known."""
        points, curve = self.points, self.curve[jobs]
        if points.gpus.size == 0:
            return np.full(jobs.size, np.nan)
        if self.one_size:
            only: Reals = np.where(curve < 0, np.nan, points.rate[points.start[curve]])
            return only
        # Where a size has several points, the point for any locality or for an island comes first, and points of GPU
        # types that the job cannot run on come last.
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
        """Return iterations a second at a size and the nearest locality on the curve; NaN: not known."""
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
    batch_size: Reals | None = None,
) -> CurvePoints:
    """Build points from columns sorted by curve and GPUs; an omitted one holds for any value, or is unknown."""
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
        batch_size=batch_size,
    )
