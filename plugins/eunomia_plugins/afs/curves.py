"""The plugins ``afs_curves`` and ``afs_peak``: the value of each size of a job, from its curve and length."""

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
"""Maximum number of distinct curves in the cache."""


class AfsCurves:
    """The valuation of AFS: the value of a size is minus the job's remaining seconds at that size (its length, §3.1).

    Sizes without a rate, and sizes at which the job is no faster than at a smaller one, have no value, as AFS gives no
    GPU that brings no speedup. A job with unknown work counts as having one iteration left.
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
        """Value each candidate at its useful sizes (see ``useful_sizes``)."""
        return _valuation(_Curves(snapshot, menus, self._sizes, peak=False), offer)


class AfsPeak:
    """The valuation of AFS-S: speed is taken as linear up to the size at which the job is fastest.

    Appendix D: without measured throughput AFS shares by max-min fairness, up to each job's best size.
    """

    name = "afs_peak"
    api = 1
    contracts: ClassVar[Contracts] = AfsCurves.contracts

    def __init__(self) -> None:
        self._sizes = UsefulSizes()

    @hookimpl
    def eunomia_valuation(self, snapshot: Snapshot, menus: Menus, offer: Offer) -> Valuations:
        """Value each candidate at its useful sizes (see ``useful_sizes``)."""
        return _valuation(_Curves(snapshot, menus, self._sizes, peak=True), offer)


def _valuation(curves: "_Curves", offer: Offer) -> Valuations:
    jobs = offer.candidates
    form = ByCurve(jobs=jobs, keys=curves.keys, values=curves.values, unit=SizeUnit.SECONDS_LEFT)
    return Valuations(claims=Claims(unit=Unit.JOB, rows=jobs), forms=(form,))


class _Curves:
    """Values of sizes, computed from the curves of the menus and the iterations left."""

    def __init__(self, snapshot: Snapshot, menus: Menus, sizes: "UsefulSizes", *, peak: bool) -> None:
        self._snapshot, self._menus, self._sizes, self._peak = snapshot, menus, sizes, peak
        self._job_on: dict[int, int] = {}
        """One job on each curve."""

    def keys(self, jobs: Rows) -> tuple[Rows, Reals]:
        """Return the curve and the iterations left of each job; one iteration if its work is not known."""
        left = self._snapshot.iterations_left(jobs)
        curves = self._menus.curve[jobs]
        self._job_on |= zip(curves.tolist(), jobs.tolist(), strict=True)
        return curves, np.where(np.isfinite(left), left, 1.0)

    def values(self, curve: int, lengths: Reals) -> tuple[Ints, Reals]:
        """Return the useful sizes of a curve, and the values, [length, size]: minus the seconds left."""
        sizes, rates = self._sizes.of(self._menus, curve, self._job_on[curve])
        return sizes, -lengths[:, None] / (sizes if self._peak else rates)


class UsefulSizes:
    """A cache of the useful sizes of curves, shared by curves with equal points."""

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
    """Return the columns of a curve's points that determine rates, as bytes."""
    if curve < 0:
        return b""
    span = slice(*points.start[curve : curve + 2].tolist())
    columns = points.gpus, points.gpu_type, points.locality, points.cpus, points.memory_gib, points.rate
    return b"".join(column[span].tobytes() for column in columns)


def useful_sizes(menus: Menus, job: int) -> tuple[Ints, Reals]:
    """Return the sizes of a job at which it is faster than at every smaller one, ascending, with the rates.

    If a rate is not known, all sizes count as useful, and the rate is the number of GPUs.
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
