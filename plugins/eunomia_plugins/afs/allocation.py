"""The plugin ``afs``: Algorithm 1 of AFS, with known lengths (AFS-L) or processor sharing (AFS-P)."""

from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from eunomia import (
    NEVER,
    NO_VERDICTS,
    Allocation,
    ByCurve,
    BySize,
    Cause,
    Claims,
    Contract,
    Duration,
    Feature,
    Grants,
    Menus,
    Offer,
    PluginOptions,
    Reason,
    Seconds,
    SizeUnit,
    Snapshot,
    Stage,
    Triggers,
    Unit,
    Valuations,
    hookimpl,
    turned_down,
)
from eunomia.contract.contracts import Contracts
from eunomia.contract.pools import owners, usable
from eunomia.units import NONE, Ints, Reals, Rows
from eunomia_plugins.afs.compiled import FastRaising
from eunomia_plugins.afs.queueing import CurvesWithSizes, FirstSeconds
from eunomia_plugins.afs.shares import Ladder, Ladders, first_sizes, raised

EVENTS = frozenset({Cause.ARRIVED, Cause.FREED, Cause.LEASE_ENDED, Cause.CLUSTER_CHANGED})
_TIE = 1e-6
"""Fraction of a time unit by which a job may fall short and still have completed the unit."""


class AfsOptions(PluginOptions):
    """Options of ``afs``."""

    lengths: Literal["known", "unknown"] = "known"
    """``known``: AFS-L. ``unknown``: AFS-P, which tests (3) in both directions, and shares time if GPUs are short."""
    unit: Annotated[Duration, Field(gt=0.0)] = Seconds(7200.0)
    """AFS-P: how long a job keeps its GPU if jobs outnumber GPUs (footnote 11: 2 hours)."""
    scan: Literal["shortest", "arrival"] = "shortest"
    """The order in which jobs are compared: by seconds left at their smallest size, or by arrival. With unknown lengths
    the order is always by arrival."""


class Afs:
    """The allocation of AFS: each job gets its smallest size, shortest first, then GPUs one by one by inequality (3).

    If jobs outnumber GPUs, only stage one applies: SRTF order with known lengths, else processor sharing. If GPUs are
    left, each goes to the job of highest priority by (3), as long as some job gains. Sizes are recomputed from the
    present lengths at every event; a job's old size has no effect.
    """

    name = "afs"
    api = 1
    options_type = AfsOptions
    contracts: ClassVar[Contracts] = {
        Stage.ALLOCATION: Contract(
            needs=frozenset({Feature.BY_SIZE, Feature.MANY_SIZES, Feature.ONE_GPU_TYPE}),
            gives=frozenset({Feature.GRANTS, Feature.JOB_CLAIMS}),
            units=frozenset({SizeUnit.SECONDS_LEFT}),
        )
    }

    def __init__(self, options: AfsOptions) -> None:
        self.options = options
        self._first, self._sized = FirstSeconds(), CurvesWithSizes()
        self._raising = FastRaising()

    @hookimpl
    def eunomia_triggers(self) -> Triggers:
        """Request a round at every arrival and whenever GPUs become free; sizes may change in each round."""
        return Triggers(on=EVENTS, all_on=frozenset(Cause))

    @hookimpl
    def eunomia_allocation(self, snapshot: Snapshot, menus: Menus, offer: Offer, valuations: Valuations) -> Allocation:
        """Grant new sizes to the jobs that change theirs; the other jobs keep their GPUs."""
        candidates = valuations.claims.rows
        gpus = int(usable(snapshot, offer, valuations.claims).size)
        values = _Values(snapshot, menus, valuations, self._first, self._sized)
        least = menus.span(candidates)[0]
        order, wake_at = self._order(snapshot, candidates, values, least, gpus)
        first = _that_fit(order, least, gpus)
        jobs, sizes = candidates[first], least[first]
        left = gpus - int(sizes.sum())
        if left > 0:
            sizes = self._raised(snapshot, jobs, values.ladders(jobs), gpus)
        over = candidates[least > int(offer.capacity.sum())]
        claims, grants = _changed(snapshot, offer, jobs, sizes)
        return Allocation(
            claims=Claims(unit=Unit.JOB, rows=claims),
            amount=Grants(gpus=grants),
            order=np.flatnonzero(grants).astype(np.int32),
            wake_at=wake_at,
            verdicts=turned_down(over, Reason.NO_SIZE_FITS) if over.size else NO_VERDICTS,
        )

    def _raised(self, snapshot: Snapshot, jobs: Rows, ladders: Ladders, gpus: int) -> Ints:
        """Return the size of each job after both stages; 0 if its smallest useful size does not fit."""
        smallest, known = ladders.smallest(), self.options.lengths == "known"
        steps = first_sizes(smallest, gpus)
        left = gpus - sum(size for size, step in zip(smallest, steps, strict=True) if step == 0)
        scan = self._scan(snapshot, jobs)
        scanned, firsts = ladders.take(scan), [steps[at] for at in scan.tolist()]
        if not snapshot.index.kept:
            found = raised(scanned.each(), firsts, left, known=known)
        else:
            found = self._raising.sizes(scanned, firsts, left, known=known)
        sizes = np.zeros(jobs.size, np.int64)
        served = np.array(found, np.int64)
        has = served >= 0
        sizes[scan[has]] = scanned.sizes[scanned.start[:-1][has] + served[has]]
        return sizes

    def _scan(self, snapshot: Snapshot, jobs: Rows) -> Ints:
        """Return the indices of jobs, which are given in order of service, in the order of the scan."""
        if self.options.lengths == "known" and self.options.scan == "shortest":
            return np.arange(jobs.size)
        return np.lexsort((jobs, _arrivals(snapshot, jobs)))

    def _order(self, snapshot: Snapshot, jobs: Rows, values: "_Values", least: Ints, gpus: int) -> tuple[Ints, Seconds]:
        """Return candidates in the order of stage one, at least as many as can be served, and the next wake-up time."""
        if self.options.lengths == "known":
            seconds = values.first()
            able = np.flatnonzero(np.isfinite(seconds))
            enough = gpus if (least[able] <= 1).all() else able.size
            return _fewest(able, seconds[able], enough), NEVER
        able = values.able()
        if able.size <= gpus:
            return able[np.lexsort((jobs[able], _arrivals(snapshot, jobs[able])))], NEVER
        enough = gpus if (least[able] <= 1).all() else able.size
        turns = _Turns(snapshot, jobs[able], float(self.options.unit), enough)
        return able[turns.order], turns.wake_at(gpus)


def _arrivals(snapshot: Snapshot, jobs: Rows) -> "np.ndarray[tuple[int], np.dtype[np.generic]]":
    return snapshot.jobs.arrived[jobs] if snapshot.arrivals is None else snapshot.arrivals[jobs]


class _Turns:
    """Processor sharing by time units (§3.3): jobs with the fewest units come first; a started unit is completed.

    Args:
        snapshot: the current state, with the attained service of each job.
        jobs: job rows.
        unit: length of a unit in seconds.
        enough: minimum number of jobs to put in order.

    Attributes:
        order: indices of jobs, first served first.
    """

    def __init__(self, snapshot: Snapshot, jobs: Rows, unit: float, enough: int) -> None:
        attained = snapshot.ledger.jobs.attained[jobs]
        units = np.floor(attained / unit + _TIE)
        self._left = unit - np.maximum(attained - units * unit, 0.0)
        runs = ~np.isnan(snapshot.jobs.since[jobs])
        units[runs & (self._left < unit * (1.0 - _TIE))] = -1.0
        arrivals = _arrivals(snapshot, jobs)
        first = _no_worse(units, arrivals, enough)
        self.order: Ints = first[np.lexsort((jobs[first], arrivals[first], units[first]))]
        self._now = float(snapshot.now)

    def wake_at(self, served: int) -> Seconds:
        """Return the earliest time, in seconds, at which a served job completes its unit."""
        return Seconds(self._now + float(self._left[self.order[:served]].min(initial=np.inf)))


class _Values:
    """Values of candidates by size; a valuation by curve computes only the values that are requested."""

    def __init__(
        self,
        snapshot: Snapshot,
        menus: Menus,
        valuations: Valuations,
        first: FirstSeconds,
        sized: CurvesWithSizes,
    ) -> None:
        self._snapshot, self._menus, self._first, self._sized = snapshot, menus, first, sized
        self._jobs = valuations.claims.rows
        curves = next((form for form in valuations.forms if isinstance(form, ByCurve)), None)
        self._curves = curves if snapshot.index.kept else None
        self._table = None if self._curves is not None else valuations.form(BySize)

    def first(self) -> Reals:
        """Return the seconds left of each candidate at its smallest size; inf if it has no size."""
        if self._curves is not None:
            return self._first.of(self._snapshot, self._menus, self._curves, self._jobs)
        found: Reals = np.full(self._jobs.size, np.inf)
        for claim, gpus, value in self._rows():
            if gpus > 0 and np.isinf(found[claim]):
                found[claim] = -value
        return found

    def able(self) -> Ints:
        """Return the indices, ascending, of the candidates that have a size."""
        if self._curves is None:
            return np.flatnonzero(np.isfinite(self.first()))
        return self._sized.able(self._menus, self._curves, self._jobs)

    def ladders(self, jobs: Rows) -> Ladders:
        """Return the ladders of some jobs, in their order."""
        if self._curves is not None:
            form = ByCurve(jobs=jobs, keys=self._curves.keys, values=self._curves.values, unit=self._curves.unit)
            table = form.of(np.arange(jobs.size, dtype=np.int32))
            start = np.searchsorted(table.claim, np.arange(jobs.size + 1))
            return Ladders(start, table.gpus.astype(np.int64), -table.value)
        ladders: dict[int, Ladder] = {int(job): Ladder([], []) for job in jobs.tolist()}
        for claim, gpus, value in self._rows():
            job = int(self._jobs[claim])
            if gpus > 0 and job in ladders:
                ladders[job].sizes.append(gpus)
                ladders[job].seconds.append(-value)
        return Ladders.of([ladders[job] for job in jobs.tolist()])

    def _rows(self) -> list[tuple[int, int, float]]:
        """Return tuples of claim, GPUs and value, sorted by claim and size."""
        if self._table is None:
            return []
        table = self._table
        return sorted(zip(table.claim.tolist(), table.gpus.tolist(), table.value.tolist(), strict=True))


def _no_worse(units: Reals, arrivals: "np.ndarray[tuple[int], np.dtype[np.generic]]", count: int) -> Ints:
    """Return the indices, ascending, of the first ``count`` jobs by units and arrival.

    Ties with the last of them are included.
    """
    if units.size <= count or count < 1:
        return np.arange(units.size)
    bound = np.partition(units, count - 1)[count - 1]
    less, equal = np.flatnonzero(units < bound), np.flatnonzero(units == bound)
    needed = count - less.size
    latest = np.partition(arrivals[equal], needed - 1)[needed - 1]
    return np.sort(np.concatenate([less, equal[arrivals[equal] <= latest]]))


def _fewest(able: Ints, seconds: Reals, count: int) -> Ints:
    """Return the indices of at least the ``count`` jobs with the fewest seconds, sorted by seconds; ties keep order."""
    if able.size > 2 * count:
        bound = np.partition(seconds, count - 1)[count - 1] if count else -np.inf
        kept = np.flatnonzero(seconds <= bound)
        able, seconds = able[kept], seconds[kept]
    return able[np.argsort(seconds, kind="stable")]


def _changed(snapshot: Snapshot, offer: Offer, jobs: Rows, sizes: Ints) -> tuple[Rows, Ints]:
    """Return the jobs that change their size, and their new sizes.

    Jobs are in order of service, followed by those that release all GPUs.
    """
    owner = owners(snapshot, offer.gpus, Unit.JOB)
    held = np.bincount(owner[owner != NONE], minlength=snapshot.jobs.most.size)
    change = held[jobs] != sizes
    stays = held == 0
    stays[jobs] = True
    gone = np.flatnonzero(~stays)
    claims = np.concatenate([jobs[change], gone]).astype(np.int32)
    return claims, np.concatenate([sizes[change], np.zeros(gone.size, np.int64)])


def _that_fit(order: Ints, least: Ints, gpus: int) -> list[int]:
    """Return the indices, in order, of jobs whose smallest size still fits; only their values are needed."""
    kept = []
    for at, size in zip(order.tolist(), least[order].tolist(), strict=True):
        if gpus <= 0:
            break
        if 0 < size <= gpus:
            kept.append(at)
            gpus -= size
    return kept
