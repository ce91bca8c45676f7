"""Max-min fairness among users or apps: all hold the same number of GPUs on average, unless they can use fewer."""

import dataclasses
from typing import Final, Literal

import numpy as np

from eunomia import (
    Allocation,
    Cause,
    Claims,
    Cluster,
    Contract,
    DeviceShares,
    Feature,
    Menus,
    Offer,
    PluginOptions,
    Promise,
    Seconds,
    Snapshot,
    Stage,
    Triggers,
    Unit,
    hookimpl,
)
from eunomia.contract.contracts import Contracts
from eunomia.units import Bools, Ints, Reals, Rows
from eunomia_plugins.allocations.filling import allowed, water_fill
from eunomia_plugins.allocations.ranking import EVENTS

_CONTRACT: Final = Contract(
    gives=frozenset({Feature.DEVICE_SHARES}), promises=frozenset({Promise.READS_NO_VALUATION}), weighs_users=True
)
_CONTRACTS: Final[Contracts] = {Stage.ALLOCATION: _CONTRACT}


class MaxMinUsersOptions(PluginOptions):
    """Options of ``max_min_users``."""

    among: Literal["users", "apps"] = "users"
    """The owners among which GPUs are shared in proportion to their weights: users or apps."""


class MaxMinUsers:
    """Weighted max-min fairness: no user gets more GPUs while a user with fewer could use them (a baseline of OEF §6).

    Only the number of GPUs of each type that a user (or app) can use counts, not how fast a type is for its jobs.
    """

    name = "max_min_users"
    api = 1
    options_type = MaxMinUsersOptions
    contracts: Contracts = _CONTRACTS

    def __init__(self, options: MaxMinUsersOptions) -> None:
        self.options = options
        weighs_users = options.among == "users"
        self.contracts = {Stage.ALLOCATION: dataclasses.replace(_CONTRACT, weighs_users=weighs_users)}

    @hookimpl
    def eunomia_triggers(self, cluster: Cluster) -> Triggers:
        """Request a round at every arrival and whenever GPUs become free.

        With several GPU types, rounds requested by a refiner also move running jobs; otherwise a job that got a slow
        type would stay on it once no job waits.
        """
        moves = frozenset({Cause.LEASE_ENDED, Cause.WAKE, Cause.BOUNDARY})
        return Triggers(on=EVENTS, all_on=moves if len(cluster.gpu_types) > 1 else frozenset())

    @hookimpl
    def eunomia_allocation(self, snapshot: Snapshot, menus: Menus, offer: Offer) -> Allocation:
        """Share the whole cluster among all users (or apps) with waiting or running jobs."""
        jobs = snapshot.active
        claims, owner = self._claims(snapshot, jobs)
        most = menus.span(jobs)[1]
        may = allowed(snapshot.jobs.gpu_type[jobs], most, offer.capacity)
        usable = may.sum(axis=1) > 0
        demand = np.bincount(owner[usable], weights=most[usable], minlength=claims.rows.size).astype(np.int64)
        able: Bools = np.zeros((claims.rows.size, offer.capacity.size), dtype=bool)
        np.logical_or.at(able, owner, may)
        weight = np.ones(claims.rows.size) if claims.weight is None else claims.weight
        gpus = water_fill(able, demand, weight, offer.capacity) * demand[:, None]
        if offer.capacity.size > 1:  # the refiner keeps the GPUs that jobs can use, fastest types first
            gpus += _spare(able & (demand > 0)[:, None], weight, offer.capacity - gpus.sum(axis=0))
        return Allocation(
            claims=claims,
            amount=DeviceShares(gpus=gpus, since=Seconds(snapshot.now)),
            order=np.flatnonzero(demand > 0).astype(np.int32),
        )

    def _claims(self, snapshot: Snapshot, jobs: Rows) -> tuple[Claims, Ints]:
        """Return one claim per user or app, and the index of each job's claim."""
        apps = snapshot.jobs.app[jobs]
        if self.options.among == "apps":
            rows, owner = np.unique(apps, return_inverse=True)
            claims = Claims(unit=Unit.APP, rows=rows.astype(np.int32), weight=snapshot.apps.weight[rows])
            return claims, owner.astype(np.int64)
        rows, owner = np.unique(snapshot.apps.user[apps], return_inverse=True)
        claims = Claims(unit=Unit.USER, rows=rows.astype(np.int32), weight=snapshot.users.weight[rows])
        return claims, owner.astype(np.int64)


def _spare(able: Bools, weight: Reals, left: Reals) -> Reals:
    """Return the GPUs that no share uses, [claim, type], divided among claims that can use them by weight."""
    part = able * weight[:, None]
    spare: Reals = part / np.maximum(part.sum(axis=0), 1e-300) * np.maximum(left, 0.0)
    return spare
