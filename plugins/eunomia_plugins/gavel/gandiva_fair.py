"""Gandiva-fair (EuroSys'20): users hold tickets for shares of each GPU type, and trade GPUs of different types."""

import dataclasses
from collections.abc import Mapping
from typing import Final, Literal

import numpy as np

from eunomia import Cluster, Snapshot, Stage, Triggers, hookimpl
from eunomia.contract.contracts import Contracts
from eunomia.units import Ints, Reals
from eunomia_plugins.gavel.filling import pooled_level
from eunomia_plugins.gavel.instance import Instance
from eunomia_plugins.gavel.programmes import spread
from eunomia_plugins.gavel.sharing import EVENTS, GIVES_TIME, Row, SharingOptions, Solved, TimeSharing
from eunomia_plugins.gavel.trading import Price, trade

_CONTRACT: Final = dataclasses.replace(GIVES_TIME[Stage.ALLOCATION], weighs_users=True)
_CONTRACTS: Final[Contracts] = {Stage.ALLOCATION: _CONTRACT}


class GandivaFairOptions(SharingOptions):
    """Options of ``gandiva_fair``."""

    performance: bool = True
    """Whether a job's rates on the GPU types are used; without them no user has a reason to trade."""
    tickets: Literal["equal", "size"] = "equal"
    """The tickets of users, and of a user's jobs among each other: equal, or the number of GPUs requested."""
    trading: Literal["on", "off"] = "on"
    """Whether users trade GPUs of different types."""
    price: Price = "paper"
    """Price of a GPU if there is one buyer: as in OEF's tables, or the second-highest speedup (the seller's)."""
    among: Literal["users", "apps"] = "users"
    """Whether users or apps have tickets."""


class GandivaFair(TimeSharing[GandivaFairOptions]):
    """Divides each GPU type by tickets, lets users trade at second prices, and divides each user's GPUs among its jobs.

    The part that an owner cannot use goes to the others. GPUs that are still left are spread over the jobs that can use
    them. No programme is solved, so ``solver`` has no effect.
    """

    name = "gandiva_fair"
    options_type = GandivaFairOptions
    contracts: Contracts = _CONTRACTS

    def __init__(self, options: GandivaFairOptions) -> None:
        super().__init__(options)
        weighs_users = options.among == "users"
        self.contracts = {Stage.ALLOCATION: dataclasses.replace(_CONTRACT, weighs_users=weighs_users)}

    @hookimpl
    def eunomia_triggers(self, cluster: Cluster) -> Triggers:
        """Request a round at every arrival and whenever GPUs become free."""
        return EVENTS

    def _solve(self, snapshot: Snapshot, instance: Instance, names: list[str], notes: Mapping[str, Row]) -> Solved:
        apps = snapshot.jobs.app[instance.jobs]
        among_apps = self.options.among == "apps"
        rows = apps if among_apps else snapshot.apps.user[apps]
        owners, owner = np.unique(rows, return_inverse=True)
        weight = (snapshot.apps if among_apps else snapshot.users).weight[owners]
        if not self.options.weighted:
            weight = np.ones(owners.size)
        return Solved(self._solution(instance, owner.ravel(), weight))

    def _solution(self, instance: Instance, owner: Ints, weight: Reals) -> Reals:
        if weight.size == 0:
            return np.zeros(instance.rate.shape)
        demand: Reals = np.bincount(owner, weights=instance.gpus, minlength=weight.size).astype(float)
        sized = self.options.tickets == "size"
        part = parts(demand, weight * demand if sized else weight, float(instance.capacity.sum()))
        gpus = part[:, None] * instance.capacity
        if self.options.trading == "on" and instance.capacity.size > 1:
            gpus = trade(gpus, _speeds(instance, owner, demand), self.options.price)
        share = np.zeros(instance.rate.shape)
        for number in range(weight.size):
            mine = owner == number
            share[mine] = _among_jobs(instance.gpus[mine], gpus[number], sized=sized)
        return spread(instance, np.where(instance.able, share, 0.0))


def parts(demand: Reals, tickets: Reals, total: float) -> Reals:
    """Return each owner's fraction of the GPUs by tickets, [owner], at most its demand; others get the remainder."""
    if float(demand.sum()) <= total:
        return demand / total
    return pooled_level(demand, demand / tickets, total) * demand / total


def _speeds(instance: Instance, owner: Ints, demand: Reals) -> Reals:
    """Return the mean speed of each owner's jobs, [owner, type], weighted by GPUs, relative to each job's best type."""
    best = instance.rate.max(axis=1, keepdims=True)
    relative = instance.rate / np.where(best > 0.0, best, 1.0)
    columns = [np.bincount(owner, weights=column * instance.gpus, minlength=demand.size) for column in relative.T]
    found: Reals = np.column_stack(columns) / demand[:, None]
    return found


def _among_jobs(sizes: Reals, gpus: Reals, *, sized: bool) -> Reals:
    """Return the time shares of an owner's jobs, [job, type]: equal GPUs on average, or equal time shares."""
    total = float(gpus.sum())
    if total <= 0.0:
        return np.zeros((sizes.size, gpus.size))
    time = pooled_level(sizes, np.ones(sizes.size) if sized else sizes, total)
    found: Reals = time[:, None] * (gpus / total)
    return found
