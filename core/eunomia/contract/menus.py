"""Menus: the sizes at which each job can run and its speed at each, as curves that jobs of a kind share."""

from collections.abc import Mapping
from typing import Final

import numpy as np

from eunomia.contract.memos import Memo
from eunomia.contract.records import Record
from eunomia.contract.verdicts import NO_VERDICTS, Verdicts
from eunomia.model.adaptations import ComingRegime
from eunomia.model.shapes import LazyFields, builds, lazy, reads
from eunomia.units import Bools, Ints, Locality, Reals, Rows, Seconds


@reads
class CurvePoints:
    """The points of all curves, sorted by curve and then by GPUs; curve c has points ``start[c]:start[c + 1]``.

    ``gpu_type``, ``locality``, ``cpus``, ``memory_gib`` and ``batch_size`` are -1 or NaN if a point is valid for any.
    ``cpus`` and ``memory_gib`` are totals over all GPUs of the job; a size may have several points that differ in them.
    ``rate`` is in iterations per second; NaN: the job can run at this size at an unknown rate. ``basis``: a ``Basis``.
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
    """Global batch size of each point: the present one of the jobs with that curve; None: NaN for all."""


@builds
class ChangeCosts:
    """The cost of changing the size of a running job, in seconds, by phase of the change."""

    pause: Seconds = Seconds(0.0)
    """Seconds without progress when a job grows, shrinks or moves; for stages that weigh the cost of a change."""
    join: Seconds = Seconds(0.0)
    """Seconds that a job that grows or moves still runs at its old size, until its new workers are ready."""
    release: Seconds = Seconds(0.0)
    """Seconds until GPUs that a job releases are free. A suspended job is killed after the longer of this time and the
    profile's ``suspend_grace``; ``explain`` uses the same time in its estimates."""


@builds
class Probes:
    """Settings at which running jobs should be measured: one row per setting, the most urgent first.

    A job is restarted from its checkpoint at the setting, runs some iterations there, which count as progress, and
    returns. It keeps its own GPUs meanwhile; other GPUs must be free. A setting without room is retried later.
    """

    jobs: Rows
    gpus: Ints
    gpu_type: Rows | None = None
    """GPU type of each row; -1 or None: the type that the job has now."""
    locality: Rows | None = None
    """``Locality`` of each row; -1 or None: the closest that is available."""
    cpus: Reals | None = None
    """CPUs for all GPUs of the row together; NaN or None: in proportion to the machine's GPUs."""
    memory_gib: Reals | None = None
    """Memory in GiB for all GPUs of the row together; NaN or None as for the CPUs."""
    iterations: int = 20
    """Number of iterations that a job runs at a setting."""
    limit: Seconds = Seconds(600.0)
    """Seconds after which a job returns to its own GPUs even if it could not be measured."""
    again: Seconds = Seconds(30.0)
    """Seconds until the next round, which retries settings without room and tries further ones."""


@builds
class Regimes:
    """Known future regimes of jobs, in order for each job: job row, iterations, and iterations per second.

    The regimes cover the last part of a job's work; a job with fewer iterations left has already entered them.
    """

    job: Rows
    iterations: Reals
    rate: Reals
    batch_size: Reals | None = None
    """Global batch sizes, NaN where not known; None: NaN for all."""


def announced(coming: Mapping[int, tuple[ComingRegime, ...]]) -> Regimes | None:
    """Return announced regimes, given by job row, as columns; None if there are none."""
    rows = [(job, one.iterations, one.rate, one.batch_size) for job, mine in coming.items() for one in mine]
    if not rows:
        return None
    job, iterations, rate, batch = np.array(rows, float).T
    return Regimes(job=job.astype(np.int32), iterations=iterations, rate=rate, batch_size=batch)


FEW: Final = 8
"""Number of jobs up to which a loop is faster than column operations."""
NO_CHANGE_COSTS: Final = ChangeCosts()


@builds
class Menus(LazyFields):
    """The curve of each job; the sizes on a job's menu are the numbers of GPUs on its curve."""

    curve: Rows
    """Index of the curve of each job row; -1: the job has no menu."""
    points: CurvePoints
    change: ChangeCosts = NO_CHANGE_COSTS
    regimes: Regimes | None = None
    """Future regimes; None: the arbiter fills in those that were announced (``snapshot.coming_regimes``)."""
    probe: Probes | None = None
    verdicts: Verdicts = NO_VERDICTS
    memo: Memo | None = None
    record: Record | None = None
    one_size: bool = False
    """Whether every job runs at its maximum number of GPUs or not at all; its size then changes only with its row."""

    def sizes(self, job: int, *, cpus: float | None = None, memory_gib: float | None = None) -> Ints:
        """Return the numbers of GPUs that the job can run at, ascending.

        Args:
            job: its row.
            cpus: CPUs of the job for all its GPUs together; sizes that need more at every point are left out. None: no
                limit.
            memory_gib: memory in GiB, likewise.
        """
        curve = int(self.curve[job])
        if curve < 0:
            return np.empty(0, np.int64)
        start, end = self.points.start[curve : curve + 2].tolist()
        gpus = self.points.gpus[start:end]
        if cpus is not None or memory_gib is not None:
            gpus = gpus[self._within(slice(start, end), cpus, memory_gib)]
        return gpus if gpus.size <= 1 else gpus[np.append(True, gpus[1:] != gpus[:-1])]

    def _within(self, points: slice | Ints, cpus: float | None, memory_gib: float | None) -> Bools:
        """Return for each point whether it needs at most this many CPUs and GiB; NaN counts as no need."""
        needed = self.points.cpus[points], self.points.memory_gib[points]
        limits = (np.inf if limit is None else limit for limit in (cpus, memory_gib))
        more = [amount > limit for amount, limit in zip(needed, limits, strict=True)]
        return ~(more[0] | more[1])

    def only(self, job: int) -> tuple[int, float] | None:
        """Return the only size on the job's menu and its iterations per second, as ``span`` and ``full_rate`` do.

        An empty menu gives 0 and NaN. Returns None if menus may have several sizes.
        """
        if not self.one_size or self.points.gpus.size == 0:
            return None
        row = np.array([job], np.int32)
        return self.span(row)[1].item(), self.full_rate(row).item()

    def has(self, job: int, gpus: int) -> bool:
        """Return whether the job can run at that size."""
        return self.have([job], [gpus])

    def have(self, jobs: list[int], gpus: list[int]) -> bool:
        """Return whether every job can run at the given size."""
        points = self.points
        if len(jobs) > FEW:
            curves = self.curve[jobs]
            if curves.min() >= 0:
                start = points.start[curves]
                if (points.start[curves + 1] > start).all() and (points.gpus[start] == gpus).all():
                    return True  # every job is at its smallest size
        for job, size in zip(jobs, gpus, strict=True):
            curve = int(self.curve[job])
            if curve < 0:
                return False
            start, end = points.start[curve : curve + 2].tolist()
            if not (int(points.gpus[start]) == size if end == start + 1 else size in points.gpus[start:end]):
                return False
        return True

    def largest_at_most(
        self, job: int, gpus: int, *, cpus: float | None = None, memory_gib: float | None = None
    ) -> int:
        """Return the largest size on the job's menu that is at most ``gpus``, or 0; see ``sizes`` for the limits."""
        if cpus is not None or memory_gib is not None:
            sizes = self.sizes(job, cpus=cpus, memory_gib=memory_gib)
            return int(sizes[sizes <= gpus].max(initial=0))
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
        """Return each job's iterations per second at its largest size within one island; NaN: not known."""
        points, curve = self.points, self.curve[jobs]
        if points.gpus.size == 0:
            return np.full(jobs.size, np.nan)
        if self.one_size:
            only: Reals = np.where(curve < 0, np.nan, points.rate[points.start[curve]])
            return only
        # Where a size has several points, the point for any locality or for an island comes first, of these the one
        # with the most CPUs and memory, and points of GPU types that the job cannot run on come last.
        far = (points.locality != -1) & (points.locality != int(Locality.ISLAND))
        order = np.lexsort((*_most_first(points), far, points.rate <= 0.0, points.gpus, points.curve))
        size = (points.curve[order].astype(np.int64) << 32) + points.gpus[order]
        first = np.concatenate([[True], size[1:] != size[:-1]])
        first_of = np.maximum.accumulate(np.where(first, np.arange(size.size), 0))
        end = points.start[curve + 1]
        empty = (curve < 0) | (end <= points.start[curve])
        found: Reals = np.where(empty, np.nan, points.rate[order[first_of[np.where(empty, 0, end - 1)]]])
        return found

    def rate(
        self,
        job: int,
        gpus: int,
        locality: Locality = Locality.ISLAND,
        *,
        cpus: float | None = None,
        memory_gib: float | None = None,
    ) -> float:
        """Return iterations per second at a size, from the point with the closest locality; NaN: not known.

        Args:
            job: its row.
            gpus: the size.
            locality: how far apart its GPUs are.
            cpus: CPUs of the job for all its GPUs together; the point with the most CPUs up to this limit gives the
                rate. None: no limit.
            memory_gib: memory in GiB, likewise.
        """
        curve = int(self.curve[job])
        if curve < 0:
            return float("nan")
        start, end = self.points.start[curve : curve + 2]
        here = np.flatnonzero(self.points.gpus[start:end] == gpus) + start
        here = here[self._within(here, cpus, memory_gib)]
        if here.size == 0:
            return float("nan")
        far = abs(self.points.locality[here] - int(locality))
        far[self.points.locality[here] == -1] = 0
        nearest = here[far == far.min()]
        if nearest.size > 1:
            amounts = _amount_first(self.points.cpus[nearest]), _amount_first(self.points.memory_gib[nearest])
            nearest = nearest[np.lexsort(amounts[::-1])]
        return float(self.points.rate[nearest[0]])


lazy(Menus, "curve", "points")


def _amount_first(amount: Reals) -> Reals:
    """Return sort keys that put larger amounts first and NaN, which is valid for any amount, last."""
    return np.where(np.isnan(amount), np.inf, -amount)


def _most_first(points: CurvePoints) -> tuple[Reals, ...]:
    """Return keys for ``np.lexsort``, by CPUs and memory in descending order; empty if no point names an amount."""
    amounts = [column for column in (points.memory_gib, points.cpus) if not np.isnan(column).all()]
    return tuple(_amount_first(amount) for amount in amounts)


def curve_points(
    curve: Rows,
    gpus: Ints,
    *,
    rate: Reals | None = None,
    gpu_type: Rows | None = None,
    locality: Rows | None = None,
    basis: Rows | None = None,
    batch_size: Reals | None = None,
    amounts: tuple[Reals, Reals] | None = None,
) -> CurvePoints:
    """Build points from columns sorted by curve and GPUs; an omitted column means any value, or unknown.

    ``amounts`` is a pair of the columns ``cpus`` and ``memory_gib``.
    """
    size = curve.size
    curves = int(curve.max()) + 1 if size else 0
    nothing = np.full(size, -1, np.int32)
    unknown = np.full(size, np.nan)
    cpus, memory_gib = (unknown, unknown) if amounts is None else amounts
    return CurvePoints(
        curve=curve,
        gpus=gpus,
        gpu_type=nothing if gpu_type is None else gpu_type,
        locality=nothing if locality is None else locality,
        cpus=cpus,
        memory_gib=memory_gib,
        rate=unknown if rate is None else rate,
        basis=np.zeros(size, np.int32) if basis is None else basis,
        start=np.searchsorted(curve, np.arange(curves + 1)).astype(np.int64),
        batch_size=batch_size,
    )
