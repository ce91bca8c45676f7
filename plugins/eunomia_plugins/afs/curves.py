"""The plugins ``afs_curves`` and ``afs_peak``: what each number of GPUs is worth to a job, by curve and length."""

import math
from typing import ClassVar

import numpy as np

from eunomia import (
    ByCurve,
    Claims,
    Contract,
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


class AfsCurves:
    """The value of a size is minus the seconds that the job still takes at it (§3.1: its length on so many GPUs).

    Sizes at which a curve has no rate, or at which the job is no faster than at a smaller one, have no value: a GPU
    that brings nothing is worth nothing to AFS. A job of unknown work counts as having one iteration left.
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

    @hookimpl
    def eunomia_valuation(self, snapshot: Snapshot, menus: Menus, offer: Offer) -> Valuations:
        """Value every size of every candidate."""
        return _valuation(_Curves(snapshot, menus, peak=False), offer)


class AfsPeak:
    """Of a curve, only the size at which the job is fastest is used; up to it, GPUs count as equally good (AFS-S).

    Appendix D: without measured throughput AFS shares by max-min fairness, up to each job's best size.
    """

    name = "afs_peak"
    api = 1
    contracts: ClassVar[Contracts] = AfsCurves.contracts

    @hookimpl
    def eunomia_valuation(self, snapshot: Snapshot, menus: Menus, offer: Offer) -> Valuations:
        """Value every size of every candidate."""
        return _valuation(_Curves(snapshot, menus, peak=True), offer)


def _valuation(curves: "_Curves", offer: Offer) -> Valuations:
    jobs = offer.candidates
    form = ByCurve(jobs=jobs, keys=curves.keys, values=curves.values, unit=SizeUnit.SECONDS_LEFT)
    return Valuations(claims=Claims(unit=Unit.JOB, rows=jobs), forms=(form,))


class _Curves:
    """Values by curve of the menus and iterations left."""

    def __init__(self, snapshot: Snapshot, menus: Menus, *, peak: bool) -> None:
        self._snapshot, self._menus, self._peak = snapshot, menus, peak
        self._job_on: dict[int, int] = {}
        """By curve, one of its jobs."""
        self._known: dict[int, tuple[Ints, Reals]] = {}

    def keys(self, jobs: Rows) -> tuple[Rows, Reals]:
        """Curve and iterations left of each job; one where its work is not known."""
        left = self._snapshot.iterations_left(jobs)
        curves = self._menus.curve[jobs]
        self._job_on |= zip(curves.tolist(), jobs.tolist(), strict=True)
        return curves, np.where(np.isfinite(left), left, 1.0)

    def values(self, curve: int, lengths: Reals) -> tuple[Ints, Reals]:
        """Sizes, and minus the seconds left at each."""
        if curve not in self._known:
            sizes, rates = useful_sizes(self._menus, self._job_on[curve])
            self._known[curve] = sizes, sizes.astype(float) if self._peak else rates
        sizes, rates = self._known[curve]
        return sizes, -lengths[:, None] / rates


def useful_sizes(menus: Menus, job: int) -> tuple[Ints, Reals]:
    """The sizes of a job at which it is faster than at every smaller one, ascending, and its rate at each.

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
