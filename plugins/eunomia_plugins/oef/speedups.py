"""The plugin ``oef_speedups``: value each group of jobs by its speed on each GPU type."""

from typing import ClassVar, Literal

import numpy as np

from eunomia import (
    ByType,
    Claims,
    Contract,
    Feature,
    Menus,
    Offer,
    PluginOptions,
    Snapshot,
    Stage,
    Unit,
    Valuations,
    hookimpl,
)
from eunomia.contract.contracts import Contracts
from eunomia.units import Ints, Reals, Rows


class SpeedupOptions(PluginOptions):
    """Options of ``oef_speedups``."""

    relative_to: Literal["slowest", "nothing"] = "slowest"
    """Whether speeds are relative to the group's own slowest type (§3.1), or in iterations per second."""
    kinds: Literal["equal", "priority"] = "equal"
    """How a user's weight is divided among its kinds of jobs (§4.2.4): equally, or by the weights of their apps."""


class OefSpeedups:
    """A claim for each kind of job of a user (a virtual user of §4.2.4), with its speed on each GPU type.

    The speed of a kind is the rate per GPU of its first job to arrive, at that job's largest size. A kind without known
    rates counts as equally fast on all types.
    """

    name = "oef_speedups"
    api = 1
    options_type = SpeedupOptions
    contracts: ClassVar[Contracts] = {Stage.VALUATION: Contract(gives=frozenset({Feature.BY_TYPE}), weighs_users=True)}

    def __init__(self, options: SpeedupOptions) -> None:
        self.options = options

    @hookimpl
    def eunomia_valuation(self, snapshot: Snapshot, menus: Menus, offer: Offer) -> Valuations:
        """Return the speedup vectors of all groups with jobs that fit on this cluster."""
        jobs = snapshot.active
        if offer.apps is not None:
            jobs = jobs[np.isin(snapshot.jobs.app[jobs], offer.apps)]
        size = menus.span(jobs)[1]
        speed = _rates(snapshot, menus, jobs, size, offer.capacity)
        runs = speed.max(axis=1, initial=0.0) > 0.0
        kept, speed = jobs[runs], speed[runs] / np.maximum(size[runs], 1)[:, None]
        users = snapshot.apps.user[snapshot.jobs.app[kept]]
        keys = np.column_stack([users, snapshot.jobs.job_kind[kept]])
        groups, owner = np.unique(keys.astype(np.int64), axis=0, return_inverse=True)
        owner = owner.ravel()
        first = _first(snapshot, kept, owner, groups.shape[0])
        speedup = speed[first]
        if self.options.relative_to == "slowest" and speedup.size:
            least = np.where(speedup > 0.0, speedup, np.inf).min(axis=1, keepdims=True)
            speedup = speedup / least
        claims = Claims(
            unit=Unit.GROUP,
            rows=groups[:, 0].astype(np.int32),
            job_kind=groups[:, 1].astype(np.int32),
            weight=self._weights(snapshot, kept, owner, groups),
        )
        return Valuations(claims=claims, forms=(ByType(speedup=speedup),))

    def _weights(self, snapshot: Snapshot, jobs: Rows, owner: Ints, groups: Ints) -> Reals:
        """Return the weight of each group, [group]: the user's weight, divided among the user's kinds of jobs."""
        count = groups.shape[0]
        part: Reals = np.ones(count)
        if self.options.kinds == "priority":
            apps = snapshot.jobs.app[jobs].astype(np.int64)
            pairs = np.unique(np.column_stack([owner, apps]), axis=0)
            part = np.bincount(pairs[:, 0], weights=snapshot.apps.weight[pairs[:, 1]], minlength=count).astype(float)
        users, user = np.unique(groups[:, 0], return_inverse=True)
        user = user.ravel()
        total = np.bincount(user, weights=part, minlength=users.size)
        found: Reals = snapshot.users.weight[users][user] * part / total[user]
        return found


def _first(snapshot: Snapshot, jobs: Rows, owner: Ints, groups: int) -> Ints:
    """Return the index of the first job to arrive of each group, [group]."""
    order = np.lexsort((jobs, snapshot.jobs.arrived[jobs]))[::-1]
    found = np.zeros(groups, np.int64)
    found[owner[order]] = order  # the earliest is written last
    return found


def _rates(snapshot: Snapshot, menus: Menus, jobs: Rows, size: Ints, capacity: Ints) -> Reals:
    """Return the rate of each job at its largest size within one machine, [job, type]; 0: it cannot run there.

    The rate is 1 on all types if no rate is known.
    """
    kind = snapshot.jobs.gpu_type[jobs]
    types = np.arange(capacity.size)
    able = ((kind[:, None] == -1) | (kind[:, None] == types)) & (size[:, None] > 0) & (size[:, None] <= capacity)
    rate = np.zeros(able.shape)
    known: dict[tuple[int, int], Reals] = {}
    for index, (job, gpus) in enumerate(zip(jobs.tolist(), size.tolist(), strict=True)):
        key = (int(menus.curve[job]), gpus)
        if key not in known:
            known[key] = _by_type(menus, *key, capacity.size)
        rate[index] = known[key]
    found: Reals = np.where(able, rate, 0.0)
    return found


def _by_type(menus: Menus, curve: int, gpus: int, types: int) -> Reals:
    """Return the rate of a curve at a size, [type].

    It is taken at the closest locality; a rate for the type takes precedence over one for any type.
    """
    points = menus.points
    if curve < 0:
        return np.zeros(types)
    span = slice(int(points.start[curve]), int(points.start[curve + 1]))
    here = np.flatnonzero((points.gpus[span] == gpus) & ~np.isnan(points.rate[span])) + span.start
    if here.size == 0:
        return np.ones(types)
    order = here[np.argsort(np.maximum(points.locality[here], 0), kind="stable")][::-1]  # the closest is written last
    found = np.full(types + 1, np.nan)
    found[points.gpu_type[order]] = points.rate[order]  # -1, any type, is the last entry
    rates: Reals = np.nan_to_num(np.where(np.isnan(found[:types]), found[types], found[:types]))
    return rates
