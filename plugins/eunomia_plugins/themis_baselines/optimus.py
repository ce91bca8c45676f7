"""Optimus (Peng et al., EuroSys 2018): the value of GPUs is the reduction of completion time."""

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
from eunomia_plugins.themis_baselines.sizes import UNKNOWN_SECONDS, size_rows


class Optimus:
    """The valuation of Optimus: the value of a size is minus the job's seconds left at it (§4.1, estimate Q / f).

    0 GPUs have no value, so each job gets its smallest size before any job gets its second (§4.1: "each job is first
    allocated one worker"). The allocation ``marginal_gain`` then adds GPUs where completion time decreases most.
    """

    name = "optimus"
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
        curves = _Curves(snapshot, menus)
        jobs = offer.candidates
        form = ByCurve(jobs=jobs, keys=curves.keys, values=curves.values, unit=SizeUnit.SECONDS_LEFT)
        return Valuations(claims=Claims(unit=Unit.JOB, rows=jobs), forms=(form,))


class _Curves:
    """Values of sizes, computed from curve and remaining length.

    With n curves on the menus, curve c < n is the menus' curve c, and lengths on it are in iterations. Curve n + c has
    the sizes of c and rates equal to the number of GPUs, for jobs of unknown length or speed; lengths on it are in
    GPU-seconds. Curve 2 n + j belongs to job row j, some of whose rates are not known.
    """

    def __init__(self, snapshot: Snapshot, menus: Menus) -> None:
        self._snapshot, self._menus = snapshot, menus
        self._count = menus.points.start.size
        self._known: dict[int, tuple[Ints, Reals]] = {}

    def keys(self, jobs: Rows) -> tuple[Rows, Reals]:
        """Return the curve and the remaining length of each job."""
        own = self._menus.curve[jobs].astype(np.int64)
        left = self._snapshot.iterations_left(jobs)
        received = self._snapshot.ledger.jobs.received[jobs].sum(axis=1)
        known = np.array([self._part_known(int(job)) for job in jobs.tolist()]) * np.isfinite(left)
        curve = np.where(known == 1.0, own, np.where(known == 0.0, self._count + own, 2 * self._count + jobs))
        return curve.astype(np.int32), np.where(known == 0.0, np.maximum(received, UNKNOWN_SECONDS), left)

    def values(self, curve: int, lengths: Reals) -> tuple[Ints, Reals]:
        """Return the sizes of a curve, and the values, [length, size]: minus the seconds left."""
        if curve >= 2 * self._count:
            rows = size_rows(self._snapshot, self._menus, np.array([curve - 2 * self._count], np.int32))
            return rows.gpus, np.tile(-rows.left / rows.rate, (lengths.size, 1))
        sizes, rates = self._known[curve % self._count]
        return sizes, -lengths[:, None] / (rates if curve < self._count else sizes)

    def _part_known(self, job: int) -> float:
        """Return the fraction of a job's rates that are known and positive; 0 without a menu."""
        curve = self._menus.curve.item(job)
        if curve not in self._known:
            sizes = self._menus.sizes(job)
            self._known[curve] = sizes, np.array([self._menus.rate(job, size) for size in sizes.tolist()])
        rates = self._known[curve][1]
        return float((rates > 0.0).mean()) if rates.size else 0.0
