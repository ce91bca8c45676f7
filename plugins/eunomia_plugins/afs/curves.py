"""The plugins ``afs_curves`` and ``afs_peak``: the value of each number of GPUs to a job, by curve and length."""

import math
from typing import ClassVar

import numpy as np

from eunomia import (
    ByCurve,
    Claims,
    Contract,
    CurvePoints,
    Feature,
    Menus,
    Offer,
    SizeUnit,
    Snapshot,
    Stage,
    Unit,
    Valuations,
    hookimpl,
)
from eunomia.contract.contracts import Contracts
from eunomia.units import Ints, Reals, Rows

MOST_KEPT = 1000
"""Curves of different points that are remembered."""


class AfsCurves:
    """The value of a size is minus the seconds that the job still takes at it (§3.1: its length on so many GPUs).

    Sizes at which a curve has no rate, or at which the job is no faster than at a smaller one, have no value: AFS gives
    a GPU that speeds nothing up no value. A job of unknown work counts as having one iteration left.
    """

    name = "afs_curves"
    api = 1
    contracts: ClassVar[Contracts] = {
        Stage.VALUATION: Contract(
            needs=frozenset({Feature.RATES}),
            gives=frozenset({Feature.BY_SIZE, Feature.JOB_CLAIMS}),
            units=frozenset({SizeUnit.SECONDS_LEFT}),
        )
    }

    def __init__(self) -> None:
        self._sizes = UsefulSizes()

    @hookimpl
    def eunomia_valuation(self, snapshot: Snapshot, menus: Menus, offer: Offer) -> Valuations:
        """Value every size of every candidate."""
        return _valuation(_Curves(snapshot, menus, self._sizes, peak=False), offer)


class AfsPeak:
    """Values use only the size at which the job is fastest; up to it, GPUs count as equally good (AFS-S).

    Appendix D: without measured throughput AFS shares by max-min fairness, up to each job's best size.
    """

    name = "afs_peak"
    api = 1
    contracts: ClassVar[Contracts] = AfsCurves.contracts

    def __init__(self) -> None:
        self._sizes = UsefulSizes()

    @hookimpl
    def eunomia_valuation(self, snapshot: Snapshot, menus: Menus, offer: Offer) -> Valuations:
        """Value every size of every candidate."""
        return _valuation(_Curves(snapshot, menus, self._sizes, peak=True), offer)


def _valuation(curves: "_Curves", offer: Offer) -> Valuations:
    jobs = offer.candidates
    form = ByCurve(jobs=jobs, keys=curves.keys, values=curves.values, unit=SizeUnit.SECONDS_LEFT)
    return Valuations(claims=Claims(unit=Unit.JOB, rows=jobs), forms=(form,))


class _Curves:
    """Values by curve of the menus and iterations left."""

    def __init__(self, snapshot: Snapshot, menus: Menus, sizes: "UsefulSizes", *, peak: bool) -> None:
        self._snapshot, self._menus, self._sizes, self._peak = snapshot, menus, sizes, peak
        self._job_on: dict[int, int] = {}
        """By curve, one of its jobs."""

    def keys(self, jobs: Rows) -> tuple[Rows, Reals]:
        """Return curve and iterations left of each job; one iteration if the job's work is not known."""
        left = self._snapshot.iterations_left(jobs)
        curves = self._menus.curve[jobs]
        self._job_on |= zip(curves.tolist(), jobs.tolist(), strict=True)
        return curves, np.where(np.isfinite(left), left, 1.0)

    def values(self, curve: int, lengths: Reals) -> tuple[Ints, Reals]:
        """Sizes, and minus the seconds left at each."""
        sizes, rates = self._sizes.of(self._menus, curve, self._job_on[curve])
        return sizes, -lengths[:, None] / (sizes if self._peak else rates)


class UsefulSizes:
    """The useful sizes of each curve, computed once for curves with equal points."""

    def __init__(self) -> None:
        self._points: CurvePoints | None = None
        self._by_curve: dict[int, tuple[Ints, Reals]] = {}
        self._by_content: dict[bytes, tuple[Ints, Reals]] = {}

    def of(self, menus: Menus, curve: int, job: int) -> tuple[Ints, Reals]:
        """Return ``useful_sizes`` of a job on this curve."""
        if self._points is not menus.points:
            self._points, self._by_curve = menus.points, {}
        if curve not in self._by_curve:
            content = _content(menus.points, curve)
            if content not in self._by_content:
                if len(self._by_content) >= MOST_KEPT:
                    self._by_content.clear()
                self._by_content[content] = useful_sizes(menus, job)
            self._by_curve[curve] = self._by_content[content]
        return self._by_curve[curve]


def _content(points: CurvePoints, curve: int) -> bytes:
    """All columns of a curve's points that decide a rate."""
    if curve < 0:
        return b""
    span = slice(*points.start[curve : curve + 2].tolist())
    columns = points.gpus, points.gpu_type, points.locality, points.cpus, points.memory_gib, points.rate
    return b"".join(column[span].tobytes() for column in columns)


def useful_sizes(menus: Menus, job: int) -> tuple[Ints, Reals]:
    """Return the sizes of a job at which it is faster than at every smaller one, ascending, and its rate at each.

    Where a rate is not known, all sizes count, each with a rate of its number of GPUs.
    """
    sizes: list[int] = menus.sizes(job).tolist()
    rates = [menus.rate(job, size) for size in sizes]
    if any(math.isnan(rate) for rate in rates):
        return np.array(sizes, np.int64), np.array(sizes, float)
    kept: list[int] = []
    for at, rate in enumerate(rates):
        if rate > (rates[kept[-1]] if kept else 0.0):
            kept.append(at)
    return np.array([sizes[at] for at in kept], np.int64), np.array([rates[at] for at in kept])
