"""Serves jobs in an order: each job gets the largest size on its menu that is still free."""

from collections.abc import Mapping
from typing import Annotated, Literal, NamedTuple, Self

import numpy as np
from pydantic import Field, model_validator

from eunomia import (
    NEVER,
    Allocation,
    Cause,
    Contract,
    Explanation,
    Feature,
    JobState,
    Menus,
    Misfit,
    Offer,
    PluginOptions,
    Promise,
    Reason,
    Scores,
    Seconds,
    Snapshot,
    Stage,
    Triggers,
    Unit,
    Valuations,
    hookimpl,
)
from eunomia.contract.allocations import Grants
from eunomia.contract.claims import Claims
from eunomia.contract.pools import owners, usable
from eunomia.contract.verdicts import Verdicts
from eunomia.units import NONE, Bools, Ints, Reals, Rows
from eunomia_plugins.allocations.backfill import backfill, outlook
from eunomia_plugins.allocations.incremental import can_be_incremental, schedule_incrementally
from eunomia_plugins.allocations.preemption import Capacity
from eunomia_plugins.allocations.queue import Queue
from eunomia_plugins.allocations.ranking import EVENTS, in_turn, ranked, reasons


class OrderedOptions(PluginOptions):
    """Options of ``ordered``."""

    on_misfit: Literal["skip", "stop", "easy", "conservative"] = "skip"
    """When a job's smallest size is not free: serve the jobs behind it, let them wait with it, or hold GPUs for it
    (for the first such job, or for all) and serve the jobs behind it that do not delay it."""
    bookings: Annotated[int, Field(ge=1)] = 100
    """With ``conservative``, for how many jobs GPUs are held at most."""
    preemptive: bool = False
    """Rank running jobs too, and stop those that higher-ranked jobs displace; else only free GPUs are given out."""
    standby: Annotated[int, Field(ge=0)] = 0
    """With ``skip``: how many of the first waiting jobs for which no GPUs are left the placement may still start, each
    at its smallest size, on GPUs that it cannot use for the jobs ahead of them."""

    size: Literal["largest", "smallest"] = "largest"
    """What a job on a menu of several sizes gets: the largest that is free, or its smallest, for a refiner to raise."""

    @model_validator(mode="after")
    def _standby_skips(self) -> Self:
        if self.standby and self.on_misfit != "skip":
            raise ValueError('standby must be 0 unless on_misfit is "skip"')
        if self.size == "smallest" and self.on_misfit in ("easy", "conservative"):
            raise ValueError('size must be "largest" where on_misfit is "easy" or "conservative"')
        return self


class Ordered:
    """Serves candidates by scores of jobs, or of apps or users with their jobs by arrival."""

    name = "ordered"
    api = 1
    options_type = OrderedOptions

    def __init__(self, options: OrderedOptions) -> None:
        self.options = options
        self._queue = Queue()
        promises = frozenset({Promise.WORK_CONSERVING} if options.on_misfit == "skip" else ())
        self.contracts = {
            Stage.ALLOCATION: Contract(
                needs=frozenset({Feature.SCORES}),
                gives=frozenset({Feature.GRANTS, Feature.JOB_CLAIMS}),
                promises=promises,
            )
        }

    @hookimpl
    def eunomia_triggers(self) -> Triggers:
        """Ask for a round at every arrival and whenever GPUs become free."""
        all_on = frozenset(Cause) if self.options.preemptive else frozenset()
        reserves = self.options.on_misfit in ("easy", "conservative")
        return Triggers(on=EVENTS, all_on=all_on, when_served=False, when_full=reserves)

    @hookimpl
    def eunomia_allocation(self, snapshot: Snapshot, menus: Menus, offer: Offer, valuations: Valuations) -> Allocation:
        """Serve jobs in order; a job for which no GPUs are left waits, outranked.

        Where jobs have one size each and the order gives keys, the jobs are kept sorted and the answer names only
        changes; the result is the same as when all jobs are ranked each round.
        """
        form, misfit = valuations.forms[0] if valuations.forms else None, self.options.on_misfit
        if not isinstance(form, Scores):
            form = next((form for form in valuations.forms if isinstance(form, Scores)), None)
        by_key = form is not None and form.linear_key is not None and not self.options.standby
        if form is not None and by_key and misfit in ("skip", "stop"):
            stop = misfit == "stop"
            if can_be_incremental(snapshot, menus, offer, stop=stop):
                return schedule_incrementally(self._queue, snapshot, offer, form, stop=stop)
        return self._ranked(snapshot, menus, offer, valuations)

    def _ranked(self, snapshot: Snapshot, menus: Menus, offer: Offer, valuations: Valuations) -> Allocation:
        """Rank all jobs without cached state: the reference for incremental scheduling."""
        jobs = ranked(snapshot, offer.candidates, valuations.form(Scores), valuations.claims)
        least, most = menus.span(jobs)
        kind = snapshot.jobs.gpu_type[jobs]
        why = reasons(least, kind, offer.capacity)
        claims = Claims(unit=Unit.JOB, rows=jobs)
        types = len(snapshot.cluster.gpu_types)
        gpus = usable(snapshot, offer, claims)
        free = np.bincount(snapshot.cluster.gpu_type[gpus], minlength=types)
        turn = np.flatnonzero(why == int(Reason.OUTRANKED))
        starts_at: Reals | None = None
        home = np.full(jobs.size, NONE)
        if self.options.on_misfit in ("easy", "conservative"):
            held_back = 1 if self.options.on_misfit == "easy" else self.options.bookings
            plan = outlook(snapshot, menus, gpus, free)
            sizes, kinds, starts_at = backfill(snapshot, menus, jobs, turn, plan, held_back=held_back)
            why[~np.isnan(starts_at)] = int(Reason.PLANNED_LATER)
        else:
            stop = self.options.on_misfit == "stop"
            idle = np.bincount(snapshot.cluster.gpu_type[gpus[_idle(snapshot, gpus)]], minlength=types)
            home = _homes(snapshot, jobs) if types > 1 else home
            capacity = Capacity(free.tolist(), idle.tolist())
            largest = most if self.options.size == "largest" else least
            sizes, kinds = _serve(menus, jobs, turn, Wanted(least, largest, kind, home), capacity, stop=stop)
        served, late = np.flatnonzero(sizes > 0), np.flatnonzero(sizes == 0)
        standby = self._standby(snapshot, jobs, turn[sizes[turn] == 0])
        if standby is not None:
            sizes[standby], kinds[standby] = least[standby], kind[standby]
        return Allocation(
            claims=claims,
            amount=Grants(gpus=sizes, gpu_type=kinds, stays=(home != NONE) & (kind == NONE))
            if types > 1
            else Grants(gpus=sizes),
            order=in_turn(snapshot, jobs, sizes, served, stop=self.options.on_misfit != "skip"),
            standby=standby,
            on_misfit=Misfit.STOP if self.options.on_misfit == "stop" else Misfit.SKIP,
            verdicts=Verdicts(rows=jobs[late], reasons=why[late]),
            starts_at=starts_at,
            wake_at=_first_change(snapshot, valuations, jobs[sizes > 0]),
        )

    def _standby(self, snapshot: Snapshot, jobs: Rows, left: Ints) -> Rows | None:
        """Indices of waiting jobs that the placement may start on GPUs left over; None: the option is off."""
        if not self.options.standby:
            return None
        waits: Ints = left[snapshot.jobs.state[jobs[left]] == int(JobState.WAITING)]
        return waits[: self.options.standby].astype(np.int32)

    @hookimpl
    def eunomia_explain(self) -> Explanation:
        """State the rules of the queue; the order explains a job's place in it."""
        stays = "" if self.options.preemptive else " A running job is not stopped for others before its lease ends."
        return Explanation(text=_RULES[self.options.on_misfit] + stays, numbers={})


_RULES: Mapping[str, str] = {
    "skip": "A job that fits may pass jobs that do not.",
    "stop": "No job passes a job ahead of it that does not fit.",
    "easy": "A job that fits may pass jobs that do not, if the first of these starts no later for it.",
    "conservative": "A job that fits may pass jobs that do not, if none of these starts later for it.",
}


def _first_change(snapshot: Snapshot, valuations: Valuations, served: Rows) -> Seconds:
    """Return when the rank of a job that starts now first changes.

    The valuation's ``wake_at`` covers running jobs only.
    """
    if valuations.holds is None or valuations.claims.unit is not Unit.JOB:
        return NEVER
    starts = served[~np.isin(served, snapshot.holdings.job)]
    holds = valuations.holds[np.isin(valuations.claims.rows, starts)]
    return Seconds(snapshot.now + max(float(holds.min(initial=np.inf)), 1e-3))


class Wanted(NamedTuple):
    """By ranked job: its least and most GPUs, and the GPU types that it asks for (-1: any) and holds."""

    least: Ints
    most: Ints
    kind: Rows
    home: Ints


def _idle(snapshot: Snapshot, gpus: Ints) -> Bools:
    """Return for each GPU whether no lease holds it."""
    return np.asarray(owners(snapshot, gpus, Unit.APP) == NONE)


def _homes(snapshot: Snapshot, jobs: Rows) -> Ints:
    """By job, the type of its GPUs; -1: it has none."""
    gpus = np.arange(snapshot.cluster.gpus)
    owner = owners(snapshot, gpus, Unit.JOB)
    home = np.full(1 + max(int(owner.max(initial=0)), int(jobs.max(initial=0))), NONE, np.int64)
    home[owner[owner >= 0]] = snapshot.cluster.gpu_type[owner >= 0]
    return np.asarray(home[jobs])


def _serve(menus: Menus, jobs: Rows, turn: Ints, wanted: Wanted, room: Capacity, *, stop: bool) -> tuple[Ints, Rows]:
    """Give each job, in order, the largest size that one GPU type has free, until no further job fits.

    Args:
        menus: sizes by job row.
        jobs: ranked job rows.
        turn: indices of the jobs that can run at all, in order.
        wanted: by ranked job.
        room: by type, GPUs for these jobs; used up.
        stop: whether the first job that does not fit ends the service.

    Returns:
        By ranked job: GPUs, and the type that they are of (-1 with 0 GPUs).
    """
    sizes = np.zeros(jobs.size, np.int64)
    kinds = np.full(jobs.size, -1, np.int32)
    least, kind = wanted.least[turn], wanted.kind[turn]
    at = _serve_all(turn, wanted, room, sizes, kinds) if len(room.left) == 1 else 0
    while at < turn.size and any(room.left):
        limit = np.array([*room.left, max(room.left)])
        fits = least[at:] <= limit[kind[at:]]
        ahead = int(fits.argmax())
        if not fits[ahead] or (stop and ahead > 0):
            break
        at += ahead
        index = int(turn[at])
        home = int(wanted.home[index])
        of = room.choose(int(least[at]), int(kind[at]), home)
        sizes[index] = menus.largest_at_most(int(jobs[index]), min(room.left[of], int(wanted.most[index])))
        kinds[index] = of
        room.take(int(sizes[index]), of, home)
        at += 1
    return sizes, kinds


def _serve_all(turn: Ints, wanted: Wanted, room: Capacity, sizes: Ints, kinds: Rows) -> int:
    """Serve the first jobs whose largest sizes all fit together; return their number."""
    total = np.cumsum(wanted.most[turn])
    head = int(np.searchsorted(total, room.left[0], side="right"))
    served = turn[:head]
    sizes[served] = wanted.most[served]
    kinds[served] = 0
    room.left[0] -= int(total[head - 1]) if head else 0

    return head
