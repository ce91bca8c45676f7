"""Device shares into grants, so that over time each claim receives what it was promised (OEF §4.3)."""

import heapq
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
from pydantic import Field

from eunomia import (
    Allocation,
    Claims,
    Contract,
    DeviceShares,
    Duration,
    Feature,
    Menus,
    Offer,
    PluginError,
    PluginOptions,
    Reason,
    Seconds,
    Snapshot,
    Stage,
    Unit,
    hookimpl,
    turned_down,
)
from eunomia.contract.allocations import Grants
from eunomia.contract.contracts import Contracts
from eunomia.contract.memos import Memo
from eunomia.contract.pools import owners
from eunomia.units import Ints, Reals, Rows
from eunomia_plugins.refine.accounts import Account, Seen, claim_keys
from eunomia_plugins.refine.turns import free_by_type, longest_waiting, owner_of, turn


class RoundingOptions(PluginOptions):
    """Options of ``rounding``."""

    round_length: Annotated[Duration, Field(gt=0.0)] = Seconds(300.0)
    """Duration of a turn; GPUs granted in a round are held to its end."""
    leftovers: bool = True
    """Whether GPUs that a claim cannot use go to claims that can; these are charged for them."""


class Rounding:
    """Whole GPUs by cumulative deviation: GPU time promised to a claim minus time received, over all rounds so far.

    OEF rounds each claim by itself, which in most rounds asks for more GPUs than exist; here the GPUs of a type go one
    by one to the claim that is furthest behind. Within a claim the job that has not run for longest comes first.
    """

    name = "rounding"
    api = 1
    options_type = RoundingOptions
    contracts: ClassVar[Contracts] = {
        Stage.REFINE: Contract(
            needs=frozenset({Feature.DEVICE_SHARES}), gives=frozenset({Feature.GRANTS, Feature.JOB_CLAIMS})
        )
    }
    memo_types: ClassVar[dict[Stage, type[Memo]]] = {Stage.REFINE: Account}

    def __init__(self, options: RoundingOptions) -> None:
        self.options = options

    @hookimpl
    def eunomia_refine(self, snapshot: Snapshot, menus: Menus, offer: Offer, allocation: Allocation) -> Allocation:
        """Apportion the offered GPUs among claims, and those of each claim among its jobs."""
        shares = allocation.amount
        if not isinstance(shares, DeviceShares):
            raise PluginError(f"{self.name} must get device shares", value=type(shares).__name__)
        last = snapshot.memos.of(self.name, Stage.REFINE)
        account = last if isinstance(last, Account) else Account.opened(float(snapshot.now))
        view = _view(snapshot, menus, offer, allocation.claims)
        owed = account.owed_now(snapshot, allocation.claims)
        ideal = _usable(shares.gpus, view.demand)
        behind = np.maximum(ideal + owed / self.options.round_length - view.kept, 0.0)
        real = _usable_parts(np.minimum(behind, view.offered_demand[:, None]), view)
        gpus, kinds = _among_jobs(menus, view, real, behind, leftovers=self.options.leftovers)
        served = view.ranked[gpus[view.ranked] > 0]
        now = turn(snapshot.now, self.options.round_length)
        return Allocation(
            claims=Claims(unit=Unit.JOB, rows=view.jobs),
            amount=Grants(gpus=gpus, gpu_type=kinds if view.free.size > 1 else None),
            order=served.astype(np.int32),
            on_misfit=allocation.on_misfit,
            rest=allocation.rest,
            lease=now.lease,
            protected=now.lease,
            wake_at=min(allocation.wake_at, now.ends_at),
            verdicts=turned_down(view.jobs[gpus == 0], Reason.SHARE_USED_UP),
            memo=_account(snapshot, allocation.claims, ideal, owed, view, gpus, kinds),
        )


class _View(NamedTuple):
    """The claims and their jobs now."""

    jobs: Rows
    """Candidates that belong to a claim."""
    owner: Ints
    """Index of the claim of each."""
    kind: Rows
    """The GPU type that each asks for; -1: any."""
    ranked: Ints
    """Indices of jobs, longest waiting first."""
    free: Ints
    """GPUs by type."""
    demand: Ints
    """[claim] GPUs that all its active jobs could use."""
    offered_demand: Ints
    """[claim] GPUs that its candidates could use."""
    kept: Ints
    """[claim, type] GPUs that it holds outside the offer."""
    least: Ints
    """[claim, type] the smallest size of its candidates that may run on the type; a large number where none may."""


def _view(snapshot: Snapshot, menus: Menus, offer: Offer, claims: Claims) -> _View:
    of_active = owner_of(snapshot, claims, snapshot.active)
    most = menus.span(snapshot.active)[1]
    count = claims.rows.size
    demand = np.bincount(of_active[of_active >= 0], weights=most[of_active >= 0], minlength=count)
    owner = owner_of(snapshot, claims, offer.candidates)
    jobs, owner = offer.candidates[owner >= 0], owner[owner >= 0]
    offered = np.bincount(owner, weights=menus.span(jobs)[1], minlength=count)
    gpus = np.setdiff1d(np.arange(snapshot.cluster.gpus), offer.gpus)
    holder = owners(snapshot, gpus, Unit.JOB)
    gpus, holder = gpus[holder >= 0], holder[holder >= 0]
    mine = owner_of(snapshot, claims, holder)
    kept = np.zeros((count, len(snapshot.cluster.gpu_types)), np.int64)
    np.add.at(kept, (mine[mine >= 0], snapshot.cluster.gpu_type[gpus[mine >= 0]]), 1)
    return _View(
        jobs=jobs,
        owner=owner,
        kind=snapshot.jobs.gpu_type[jobs],
        ranked=longest_waiting(snapshot, jobs),
        free=free_by_type(snapshot, offer, jobs),
        demand=demand.astype(np.int64),
        offered_demand=offered.astype(np.int64),
        kept=kept,
        least=_least(snapshot, menus, jobs, owner, count),
    )


def _least(snapshot: Snapshot, menus: Menus, jobs: Rows, owner: Ints, claims: int) -> Ints:
    types = len(snapshot.cluster.gpu_types)
    least = np.full((claims, types), np.iinfo(np.int64).max)
    sizes = menus.span(jobs)[0]
    kind = snapshot.jobs.gpu_type[jobs]
    for each in range(types):
        may = (sizes > 0) & ((kind == -1) | (kind == each))
        np.minimum.at(least[:, each], owner[may], sizes[may])
    return least


def _usable(ideal: Reals, demand: Ints) -> Reals:
    """Shares, scaled down to what a claim's jobs could use: a claim without jobs saves nothing up."""
    total = ideal.sum(axis=1)
    part = np.where(total > demand, demand / np.where(total > 0.0, total, 1.0), 1.0)
    usable: Reals = ideal * part[:, None]
    return usable


def _usable_parts(behind: Reals, view: _View) -> Ints:
    """An apportionment in which every claim that gets GPUs has a job that can run on them.

    A part too small for any job of its claim goes to the others, and the claim saves up (OEF §4.3): claims that are
    least behind are left out first, half of them at a time.
    """
    behind = behind.copy()
    while True:
        real = apportion(behind, view.free)
        small = np.flatnonzero((real.sum(axis=1) > 0) & ~(real >= view.least).any(axis=1))
        if small.size == 0:
            return real
        order = small[np.argsort(behind[small].sum(axis=1), kind="stable")]
        behind[order[: (small.size + 1) // 2]] = 0.0


def apportion(behind: Reals, free: Ints) -> Ints:
    """Whole GPUs by claim and type: one by one, each to the claim that is furthest behind.

    Args:
        behind: [claim, type] GPUs that the claim should get now, fractional.
        free: [type] free GPUs.

    Returns:
        [claim, type] GPUs; at most the free ones of each type, and only for claims that are behind for that type.
    """
    real = np.zeros(behind.shape, np.int64)
    for kind in range(free.size):
        queue = [(-lag, claim) for claim, lag in enumerate(behind[:, kind].tolist()) if lag > 1e-9]
        heapq.heapify(queue)
        for _ in range(int(free[kind])):
            if not queue:
                break
            lag, claim = queue[0]
            real[claim, kind] += 1
            if lag + 1.0 < -1e-9:
                heapq.heapreplace(queue, (lag + 1.0, claim))
            else:
                heapq.heappop(queue)
    return real


def _among_jobs(menus: Menus, view: _View, real: Ints, behind: Reals, *, leftovers: bool) -> tuple[Ints, Rows]:
    """By job: GPUs, and their type (-1 with 0 GPUs). A claim with too few GPUs for any of its jobs saves up."""
    gpus, kinds = np.zeros(view.jobs.size, np.int64), np.full(view.jobs.size, -1, np.int32)
    budget, free = real.copy(), view.free.copy()
    for index in view.ranked.tolist():
        _take(menus, view, index, budget[view.owner[index]], free, gpus, kinds)
    if leftovers:
        lag = behind.sum(axis=1) - np.bincount(view.owner, weights=gpus, minlength=behind.shape[0])
        for index in view.ranked[np.argsort(-lag[view.owner[view.ranked]], kind="stable")].tolist():
            if gpus[index] == 0 and free.any():
                _take(menus, view, index, free.copy(), free, gpus, kinds)
    return gpus, kinds


def _take(menus: Menus, view: _View, index: int, budget: Ints, free: Ints, gpus: Ints, kinds: Rows) -> None:
    """Give one job the largest size of the type that its claim has most of; budget and free are used up."""
    asked = int(view.kind[index])
    kind = asked if asked >= 0 else int(np.minimum(budget, free).argmax())
    size = menus.largest_at_most(int(view.jobs[index]), int(min(budget[kind], free[kind])))
    if size:
        gpus[index], kinds[index] = size, kind
        budget[kind] -= size
        free[kind] -= size


def _account(
    snapshot: Snapshot, claims: Claims, ideal: Reals, owed: Reals, view: _View, gpus: Ints, kinds: Rows
) -> Account:
    """The account as of now."""
    keys = claim_keys(snapshot, claims)
    granted = _granted(snapshot, view, gpus, kinds)
    rows = np.flatnonzero(snapshot.jobs.app >= 0).astype(np.int32)
    owner = owner_of(snapshot, claims, rows)
    received = snapshot.ledger.jobs.received
    jobs = {
        str(snapshot.jobs.id[row]): Seen(keys[claim], tuple(received[row].tolist()), tuple(granted[row].tolist()))
        for row, claim in zip(rows.tolist(), owner.tolist(), strict=True)
        if claim >= 0 and (received[row].any() or granted[row].any())
    }
    return Account(
        at=float(snapshot.now),
        ideal=dict(zip(keys, map(tuple, ideal.tolist()), strict=True)),
        owed=dict(zip(keys, map(tuple, owed.tolist()), strict=True)),
        jobs=jobs,
    )


def _granted(snapshot: Snapshot, view: _View, gpus: Ints, kinds: Rows) -> Reals:
    """[job row, type] GPUs from now on: those granted now, and those held outside the offer."""
    granted = np.zeros((snapshot.jobs.app.size, view.free.size))
    holder = owners(snapshot, np.arange(snapshot.cluster.gpus), Unit.JOB)
    kept = np.flatnonzero((holder >= 0) & ~np.isin(holder, view.jobs))
    np.add.at(granted, (holder[kept], snapshot.cluster.gpu_type[kept]), 1.0)
    served = gpus > 0
    granted[view.jobs[served], kinds[served]] = gpus[served]
    return granted
