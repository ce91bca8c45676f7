"""The refiner ``rounding``: turn shares into grants of whole GPUs.

Over time each claim receives its promised share (OEF §4.3, §4.4).
"""

from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from eunomia import (
    Allocation,
    Claims,
    Contract,
    DeviceShares,
    Duration,
    Feature,
    Grants,
    Memo,
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
from eunomia.contract.contracts import Contracts
from eunomia.contract.pools import owners
from eunomia.units import NONE, Ints, Reals, Rows
from eunomia_plugins.refine.accounts import Account, Seen, claim_keys
from eunomia_plugins.refine.apportion import apportion
from eunomia_plugins.refine.claimants import View, summed, view_of
from eunomia_plugins.refine.demand import on_faster_gpus, usable
from eunomia_plugins.refine.gangs import among_jobs
from eunomia_plugins.refine.mixing import pins_of
from eunomia_plugins.refine.pooling import pooled
from eunomia_plugins.refine.turns import owner_of, turn

_NEEDS = {"devices": Feature.DEVICE_SHARES, "time": Feature.TIME_SHARES}
_GIVES = frozenset({Feature.GRANTS, Feature.JOB_CLAIMS})
_CONTRACTS: Contracts = {Stage.REFINE: Contract(needs=frozenset({Feature.DEVICE_SHARES}), gives=_GIVES)}


class RoundingOptions(PluginOptions):
    """Options of ``rounding``."""

    round_length: Annotated[Duration, Field(gt=0.0)] = Seconds(300.0)
    """Duration of a round; GPUs granted in a round are leased until its end."""
    shares: Literal["devices", "time"] = "devices"
    """The shares that the allocation gives: average GPUs of claims, or time shares of jobs (Gavel, Gandiva-fair).

    Time shares are summed by user and kind of job.
    """
    leftovers: bool = True
    """Whether GPUs that a claim cannot use are granted to other claims, whose deficits they reduce."""
    mixed: bool = False
    """Whether a gang may run on two types, at the speed of the slower one, if its claim's GPUs cannot be used
    otherwise. The placement must then honour pins."""


class Rounding:
    """Rounds shares by cumulative deviation: GPU time promised to a claim minus GPU time received, over all rounds.

    OEF rounds each claim independently, which in most rounds requests more GPUs than exist. Here the GPUs of a type go
    gang by gang to the claim with the largest deficit. Within a claim, the job that has not run for longest comes
    first. Jobs are listed by size, so that a placement finds room for large gangs on one machine (§4.3).
    """

    name = "rounding"
    api = 1
    options_type = RoundingOptions
    contracts: Contracts = _CONTRACTS
    memo_types: ClassVar[dict[Stage, type[Memo]]] = {Stage.REFINE: Account}

    def __init__(self, options: RoundingOptions) -> None:
        self.options = options
        gives = _GIVES | {Feature.PINNED} if options.mixed else _GIVES
        pools = options.shares == "time"  # by user and kind of job
        needs = frozenset({_NEEDS[options.shares]})
        self.contracts = {Stage.REFINE: Contract(needs=needs, gives=gives, weighs_users=pools)}

    @hookimpl
    def eunomia_refine(self, snapshot: Snapshot, menus: Menus, offer: Offer, allocation: Allocation) -> Allocation:
        """Apportion the offered GPUs among claims, and divide each claim's GPUs among its jobs."""
        if self.options.shares == "time":
            allocation = pooled(snapshot, menus, allocation)
        shares = allocation.amount
        if not isinstance(shares, DeviceShares):
            raise PluginError(f"{self.name} must get device shares", value=type(shares).__name__)
        last = snapshot.memos.of(self.name, Stage.REFINE)
        types = len(snapshot.cluster.gpu_types)
        account = last.widened(types) if isinstance(last, Account) else Account.opened(float(snapshot.now))
        view = view_of(snapshot, menus, offer, allocation.claims)
        owed = account.owed_now(snapshot, allocation.claims)
        ideal = usable(shares.gpus, view)
        behind = ideal + owed / self.options.round_length - view.kept
        gang = np.minimum(view.gang, np.maximum(view.free, 1)) if self.options.mixed else view.gang
        real = apportion(np.minimum(behind, view.offered_demand[:, None]), gang, view.free)
        granted = among_jobs(menus, view, real, behind, leftovers=self.options.leftovers, mixed=self.options.mixed)
        if self.options.leftovers:
            before, granted = granted, on_faster_gpus(view, granted, ideal)
            ideal = ideal + summed(granted - before, view.owner, ideal.shape[0])  # spare GPUs cause no deficit
        memo = _account(snapshot, allocation.claims, ideal, owed, view, granted)
        return self._answer(snapshot, offer, allocation, view, granted, memo)

    def _answer(
        self, snapshot: Snapshot, offer: Offer, allocation: Allocation, view: View, granted: Ints, memo: Account
    ) -> Allocation:
        gpus, types = granted.sum(axis=1), (granted > 0).sum(axis=1)
        kinds = np.where(types == 1, granted.argmax(axis=1), NONE).astype(np.int32)
        served = np.flatnonzero(gpus)
        order = served[
            np.lexsort((served, -gpus[served], types[served] == 1))
        ]  # mixed gangs have pins: they come first
        now = turn(snapshot.now, self.options.round_length)
        return Allocation(
            claims=Claims(unit=Unit.JOB, rows=view.jobs),
            amount=Grants(
                gpus=gpus,
                gpu_type=kinds if view.free.size > 1 else None,
                pins=pins_of(snapshot, offer, view.jobs, granted) if (types > 1).any() else None,
            ),
            order=order.astype(np.int32),
            on_misfit=allocation.on_misfit,
            rest=allocation.rest,
            lease=now.lease,
            protected=now.lease,
            wake_at=min(allocation.wake_at, now.ends_at),
            verdicts=turned_down(view.jobs[gpus == 0], Reason.SHARE_USED_UP),
            memo=memo,
        )


def _account(snapshot: Snapshot, claims: Claims, ideal: Reals, owed: Reals, view: View, granted: Ints) -> Account:
    """Return the account as of now."""
    keys = claim_keys(snapshot, claims)
    held = _held(snapshot, view.jobs, granted)
    rows = np.flatnonzero(snapshot.jobs.app >= 0).astype(np.int32)
    owner = owner_of(snapshot, claims, rows)
    received = snapshot.ledger.jobs.received
    jobs = {
        str(snapshot.jobs.id[row]): Seen(keys[claim], tuple(received[row].tolist()), tuple(held[row].tolist()))
        for row, claim in zip(rows.tolist(), owner.tolist(), strict=True)
        if claim >= 0 and (received[row].any() or held[row].any())
    }
    return Account(
        at=float(snapshot.now),
        ideal=dict(zip(keys, map(tuple, ideal.tolist()), strict=True)),
        owed=dict(zip(keys, map(tuple, owed.tolist()), strict=True)),
        jobs=jobs,
    )


def _held(snapshot: Snapshot, jobs: Rows, granted: Ints) -> Reals:
    """Return the GPUs held from now on, [job row, type]: those granted now and those outside the offer."""
    held = np.zeros((snapshot.jobs.app.size, granted.shape[1]))
    holder = owners(snapshot, np.arange(snapshot.cluster.gpus), Unit.JOB)
    kept = np.flatnonzero((holder >= 0) & ~np.isin(holder, jobs))
    np.add.at(held, (holder[kept], snapshot.cluster.gpu_type[kept]), 1.0)
    served = granted.any(axis=1)
    held[jobs[served]] = granted[served]
    return held
