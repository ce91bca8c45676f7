"""Serve ranked elastic jobs one after the other, with reservations and standby; the answer names all candidates."""

from typing import NamedTuple

import numpy as np

from eunomia import (
    NEVER,
    Allocation,
    Claims,
    Grants,
    JobState,
    Menus,
    Misfit,
    Offer,
    Reason,
    Scores,
    Seconds,
    Snapshot,
    Unit,
    Valuations,
    Verdicts,
)
from eunomia.contract.pools import owners, usable
from eunomia.units import NONE, Bools, Ints, Reals, Rows
from eunomia_plugins.allocations.backfill import backfill, outlook
from eunomia_plugins.allocations.gangs import choose
from eunomia_plugins.allocations.ranking import in_turn, ranked, reasons


class Serving(NamedTuple):
    """The options of ``ordered`` that determine how candidates are served."""

    on_misfit: str
    bookings: int
    standby: int
    size: str


def serve_sizes(snapshot: Snapshot, menus: Menus, offer: Offer, valuations: Valuations, serving: Serving) -> Allocation:
    """Rank all candidates, and serve each the largest size that fits."""
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
    if serving.on_misfit in ("easy", "conservative"):
        held_back = 1 if serving.on_misfit == "easy" else serving.bookings
        plan = outlook(snapshot, menus, gpus, free)
        sizes, kinds, starts_at = backfill(snapshot, menus, jobs, turn, plan, held_back=held_back)
        why[~np.isnan(starts_at)] = int(Reason.PLANNED_LATER)
    else:
        stop = serving.on_misfit == "stop"
        idle = np.bincount(snapshot.cluster.gpu_type[gpus[_idle(snapshot, gpus)]], minlength=types)
        home = _homes(snapshot, jobs) if types > 1 else home
        largest = most if serving.size == "largest" else least
        sizes, kinds = _serve(
            menus, jobs, turn, Wanted(least, largest, kind, home), free.tolist(), idle.tolist(), stop=stop
        )
    served, late = np.flatnonzero(sizes > 0), np.flatnonzero(sizes == 0)
    standby = _standby(snapshot, serving, jobs, turn[sizes[turn] == 0])
    if standby is not None:
        sizes[standby], kinds[standby] = least[standby], kind[standby]
    return Allocation(
        claims=claims,
        amount=Grants(gpus=sizes, gpu_type=kinds, stays=(home != NONE) & (kind == NONE))
        if types > 1
        else Grants(gpus=sizes),
        order=in_turn(snapshot, jobs, sizes, served, stop=serving.on_misfit != "skip"),
        standby=standby,
        on_misfit=Misfit.STOP if serving.on_misfit == "stop" else Misfit.SKIP,
        verdicts=Verdicts(rows=jobs[late], reasons=why[late]),
        starts_at=starts_at,
        wake_at=_first_change(snapshot, valuations, jobs[sizes > 0]),
    )


def _standby(snapshot: Snapshot, serving: Serving, jobs: Rows, left: Ints) -> Rows | None:
    """Return the indices of waiting jobs that the placement may start on leftover GPUs; None: the option is off."""
    if not serving.standby:
        return None
    waits: Ints = left[snapshot.jobs.state[jobs[left]] == int(JobState.WAITING)]
    return waits[: serving.standby].astype(np.int32)


def _first_change(snapshot: Snapshot, valuations: Valuations, served: Rows) -> Seconds:
    """Return the first time, in seconds, at which the rank of a job that starts now changes.

    The valuation's ``wake_at`` considers running jobs only.
    """
    if valuations.holds is None or valuations.claims.unit is not Unit.JOB:
        return NEVER
    starts = served[~np.isin(served, snapshot.holdings.job)]
    holds = valuations.holds[np.isin(valuations.claims.rows, starts)]
    return Seconds(snapshot.now + max(float(holds.min(initial=np.inf)), 1e-3))


class Wanted(NamedTuple):
    """The smallest and largest size of each ranked job, and the GPU types that it requests (-1: any) and holds."""

    least: Ints
    most: Ints
    kind: Rows
    home: Ints


def _idle(snapshot: Snapshot, gpus: Ints) -> Bools:
    """Return for each GPU whether no lease holds it."""
    return np.asarray(owners(snapshot, gpus, Unit.APP) == NONE)


def _homes(snapshot: Snapshot, jobs: Rows) -> Ints:
    """Return the type of each job's GPUs; -1 if it has none."""
    gpus = np.arange(snapshot.cluster.gpus)
    owner = owners(snapshot, gpus, Unit.JOB)
    home = np.full(1 + max(int(owner.max(initial=0)), int(jobs.max(initial=0))), NONE, np.int64)
    home[owner[owner >= 0]] = snapshot.cluster.gpu_type[owner >= 0]
    return np.asarray(home[jobs])


def _serve(
    menus: Menus, jobs: Rows, turn: Ints, wanted: Wanted, left: list[int], idle: list[int], *, stop: bool
) -> tuple[Ints, Rows]:
    """Give each job, in order, the largest size that one GPU type has free, until no further job fits.

    Args:
        menus: the sizes of jobs.
        jobs: job rows in order of rank.
        turn: indices of the jobs that fit on the cluster, in order.
        wanted: sizes and types of each ranked job.
        left: [type] GPUs for these jobs; reduced in place.
        idle: [type] GPUs that no job holds; reduced in place.
        stop: whether the first job that does not fit ends the service.

    Returns:
        [ranked job] number of GPUs, and their type (-1 with 0 GPUs).
    """
    sizes = np.zeros(jobs.size, np.int64)
    kinds = np.full(jobs.size, -1, np.int32)
    least, kind = wanted.least[turn], wanted.kind[turn]
    at = _serve_all(turn, wanted, left, sizes, kinds) if len(left) == 1 else 0
    while at < turn.size and any(left):
        limit = np.array([*left, max(left)])
        fits = least[at:] <= limit[kind[at:]]
        ahead = int(fits.argmax())
        if not fits[ahead] or (stop and ahead > 0):
            break
        at += ahead
        index = int(turn[at])
        home = int(wanted.home[index])
        of = choose(left, idle, int(least[at]), int(kind[at]), home)
        gpus = menus.largest_at_most(int(jobs[index]), min(left[of], int(wanted.most[index])))
        sizes[index], kinds[index] = gpus, of
        left[of] -= gpus
        if of != home:
            idle[of] = max(0, idle[of] - gpus)
        at += 1
    return sizes, kinds


def _serve_all(turn: Ints, wanted: Wanted, left: list[int], sizes: Ints, kinds: Rows) -> int:
    """Serve the first jobs whose largest sizes all fit together; return their number."""
    total = np.cumsum(wanted.most[turn])
    head = int(np.searchsorted(total, left[0], side="right"))
    served = turn[:head]
    sizes[served] = wanted.most[served]
    kinds[served] = 0
    left[0] -= int(total[head - 1]) if head else 0
    return head
