"""Short jobs first, except if that would increase the makespan or make a job finish later than under a fair share."""

from typing import Annotated, ClassVar, NamedTuple

import numpy as np
from pydantic import Field

from eunomia import (
    Claims,
    Contract,
    Explanation,
    Feature,
    Memo,
    Menus,
    Offer,
    PluginOptions,
    Scores,
    Share,
    Snapshot,
    Stage,
    Unit,
    Valuations,
    hookimpl,
)
from eunomia.contract.contracts import Contracts
from eunomia.units import Bools, JobId, Reals
from eunomia_plugins.orders.remaining import lengths
from eunomia_plugins.present import Present, Sharing, present_after, stretch

CRITICAL, LATE, USUAL, UNKNOWN = 0.0, 1.0, 2.0, 3.0
"""Classes of jobs in order of service."""
_LITTLE = 1e-9


class LaxityOptions(PluginOptions):
    """Options of ``laxity``."""

    critical: Annotated[float, Field(gt=0.0, allow_inf_nan=False)] = 0.9
    """A job is critical if its time left is at least this fraction of the shortest time in which all present jobs can
    finish. Above 1 / (1 - stay) no job is critical."""
    critical_power: Annotated[float, Field(ge=1.0, le=100.0)] = 8.0
    """Exponent of the ratio of a job's time left to that shortest time, which advances nearly critical jobs."""
    late: bool = True
    """Whether jobs advance as their static ρ approaches 1, and come before all but critical jobs once it reaches 1."""
    gang_power: Annotated[float, Field(ge=0.0, le=1.0)] = 0.5
    """Exponent of the number of GPUs in a job's length: 0 counts seconds, 1 GPU-seconds."""
    stay: Share = 0.1
    """Fraction by which a running job counts as shorter, and as critical earlier, as preemption costs a restart."""
    contention: Annotated[float, Field(ge=0.0, allow_inf_nan=False)] = 0.0
    """N: ratio of a job's run times under a fair share and alone, at least 1; 0: counted, see ``sharing``."""
    sharing: Sharing = "arrived"
    """How N is counted if ``contention`` is 0."""


class Urgency(NamedTuple):
    """The urgency of each job, one entry per job."""

    left: Reals
    """Seconds left at its own size; NaN: not known."""
    length: Reals
    """Length of the job in the order: seconds left times a power of its GPUs."""
    rho: Reals
    """Static ρ if the job runs without interruption from now on."""
    until: Reals
    """Seconds after which static ρ would be 1 if the job started only then."""
    path: float
    """Shortest time in seconds for all present jobs: the longest job alone, or all work spread over all GPUs."""


class Laxity:
    """Critical jobs first, longest first; then late jobs, largest ρ first; then all others, shortest first.

    A job is critical if its time left reaches the shortest time in which all present jobs can finish, so that waiting
    would increase the makespan. It is late if it must run without interruption for a static ρ of 1 (the time of a fair
    share). The length of other jobs is reduced as they approach either state.
    """

    name = "laxity"
    api = 1
    options_type = LaxityOptions
    contracts: ClassVar[Contracts] = {
        Stage.VALUATION: Contract(
            needs=frozenset({Feature.RATES}), gives=frozenset({Feature.SCORES, Feature.JOB_CLAIMS})
        )
    }
    memo_types: ClassVar[dict[Stage, type[Memo]]] = {Stage.VALUATION: Present}

    def __init__(self, options: LaxityOptions) -> None:
        self.options = options

    @hookimpl
    def eunomia_valuation(self, snapshot: Snapshot, menus: Menus, offer: Offer) -> Valuations:
        """Score each candidate by its class, its key within the class, and its arrival."""
        old = snapshot.memos.of(self.name, Stage.VALUATION)
        memo = present_after(old, snapshot) if self.options.sharing == "arrived" else None
        jobs = offer.candidates
        urgency = self._urgency(snapshot, menus, offer, memo)
        running = np.isin(jobs, snapshot.holdings.job)
        kind, key = self._order(urgency, running)
        return Valuations(
            claims=Claims(unit=Unit.JOB, rows=jobs),
            forms=(Scores(score=np.column_stack([kind, key, snapshot.jobs.arrived[jobs]])),),
            memo=None if memo is old else memo,
        )

    @hookimpl
    def eunomia_explain(self, snapshot: Snapshot, job: JobId) -> Explanation:
        """Explain the order, and with how many other jobs the job has shared the cluster."""
        memo = snapshot.memos.of(self.name, Stage.VALUATION)
        rows = np.flatnonzero(snapshot.jobs.id == job).astype(np.int32)
        text = "First come jobs that would lengthen the makespan, then late ones, then short ones."
        if not isinstance(memo, Present) or rows.size == 0:
            return Explanation(text=text, numbers={})
        return Explanation(text=text, numbers={"jobs_shared_with": float(memo.shared_with(snapshot, rows)[0])})

    def _urgency(self, snapshot: Snapshot, menus: Menus, offer: Offer, memo: Present | None) -> Urgency:
        jobs, gpus = offer.candidates, max(1, int(offer.capacity.sum()))
        active = lengths(snapshot, menus, snapshot.active)
        path = max(float(np.nanmax(active.left, initial=0.0)), float(np.nansum(active.left * active.gpus)) / gpus)
        own = lengths(snapshot, menus, jobs)
        fair = own.total * stretch(snapshot, offer, jobs, memo, self.options.contention)
        since = snapshot.now - snapshot.jobs.arrived[jobs]
        return Urgency(
            left=own.left,
            rho=(since + own.left) / np.maximum(fair, _LITTLE),
            length=own.left * np.maximum(own.gpus, 1) ** self.options.gang_power,
            until=fair - since,
            path=path,
        )

    def _order(self, urgency: Urgency, running: Bools) -> tuple[Reals, Reals]:
        """Return the class of each job and its key within the class; lower values come first."""
        own, left = self.options, np.nan_to_num(urgency.left, nan=0.0)
        near = left / max(urgency.path, _LITTLE)
        stays = np.where(running, 1.0 - own.stay, 1.0)
        length = np.nan_to_num(urgency.length, nan=0.0) * stays
        late = (urgency.until <= left) & own.late
        lax = 1.0 - left / np.maximum(urgency.until, _LITTLE) if own.late else np.ones(left.size)
        key = length * np.where(late, 1.0, lax) * (1.0 - np.minimum(near, 1.0) ** own.critical_power)
        critical = near >= own.critical * stays
        unknown = np.isnan(urgency.left)
        kind = np.select([unknown, critical, late], [UNKNOWN, CRITICAL, LATE], USUAL)
        return kind, np.select([unknown, critical, late], [np.zeros(left.size), -left, -urgency.rho / stays], key)
