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
"""Part of a unit of time by which a job may miss the unit's end."""


class AfsOptions(PluginOptions):
    """Options of ``afs``."""

    lengths: Literal["known", "unknown"] = "known"
    """``known``: AFS-L. ``unknown``: AFS-P: both ways of a comparison, and shares of time where jobs outnumber GPUs."""
    unit: Annotated[Duration, Field(gt=0.0)] = Seconds(7200.0)
    """AFS-P: a job that runs where jobs outnumber GPUs keeps its GPU for this long (footnote 11: 2 hours)."""
    scan: Literal["shortest", "arrival"] = "shortest"
    """The order in which jobs are compared: fewest seconds left at their smallest size first, or by arrival. With
    unknown lengths always by arrival."""


class Afs:
    """Each job gets its smallest size, shortest job first; further GPUs go one by one by inequality (3).

    Where jobs outnumber GPUs, stage one is all there is: the order of SRTF with known lengths, processor sharing
    without. Where GPUs are left, each goes to the job of highest priority by (3), as long as any job gains. No job
    keeps what it has: sizes follow from the present lengths at every event.
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
        """Ask for a round at every churn event; sizes may change in each."""
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
        """Sizes after both stages, by job; 0: the job's smallest useful size does not fit."""
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
        """Return the indices of jobs, which stand in order of service, in the order of the scan."""
        if self.options.lengths == "known" and self.options.scan == "shortest":
            return np.arange(jobs.size)
        return np.lexsort((jobs, _arrivals(snapshot, jobs)))

    def _order(self, snapshot: Snapshot, jobs: Rows, values: "_Values", least: Ints, gpus: int) -> tuple[Ints, Seconds]:
        """Return candidates in order of stage one, at least as many as can be served, and the next time to wake up."""
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
    """Processor sharing by units of time (§3.3): jobs with the fewest units go first; a job finishes its unit.

    Args:
        snapshot: with what each job has attained.
        jobs: rows.
        unit: seconds.
        enough: so many jobs, in order, are found at least.

    Attributes:
        order: indices of jobs.
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
        """Return the time at which the first served job finishes its unit."""
        return Seconds(self._now + float(self._left[self.order[:served]].min(initial=np.inf)))


class _Values:
    """Values of candidates by size; a valuation by curve computes them only for the jobs that are asked for."""

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
        """Return by candidate the seconds left at its smallest size; inf: the candidate has no size."""
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
        """Claim, GPUs and value, sizes ascending."""
        if self._table is None:
            return []
        table = self._table
        return sorted(zip(table.claim.tolist(), table.gpus.tolist(), table.value.tolist(), strict=True))


def _no_worse(units: Reals, arrivals: "np.ndarray[tuple[int], np.dtype[np.generic]]", count: int) -> Ints:
    """Return the indices, ascending, of at least ``count`` jobs by units and arrival.

    Ties with the last are included.
    """
    if units.size <= count or count < 1:
        return np.arange(units.size)
    bound = np.partition(units, count - 1)[count - 1]
    less, equal = np.flatnonzero(units < bound), np.flatnonzero(units == bound)
    needed = count - less.size
    latest = np.partition(arrivals[equal], needed - 1)[needed - 1]
    return np.sort(np.concatenate([less, equal[arrivals[equal] <= latest]]))


def _fewest(able: Ints, seconds: Reals, count: int) -> Ints:
    """Return the indices of at least ``count`` jobs with the fewest seconds, ascending; ties keep their order."""
    if able.size > 2 * count:
        bound = np.partition(seconds, count - 1)[count - 1] if count else -np.inf
        kept = np.flatnonzero(seconds <= bound)
        able, seconds = able[kept], seconds[kept]
    return able[np.argsort(seconds, kind="stable")]


def _changed(snapshot: Snapshot, offer: Offer, jobs: Rows, sizes: Ints) -> tuple[Rows, Ints]:
    """Return the jobs that change their size, in order of service, then those that release all GPUs.

    And the new sizes.
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
    """Return the indices, in order, of jobs with a smallest size that still fits; only their values are needed."""
    kept = []
    for at, size in zip(order.tolist(), least[order].tolist(), strict=True):
        if gpus <= 0:
            break
        if 0 < size <= gpus:
            kept.append(at)
            gpus -= size
    return kept
