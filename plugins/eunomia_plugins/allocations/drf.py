"""Dominant resource fairness (Ghodsi et al., NSDI'11): equalize the owners' shares of their dominant resources."""

import dataclasses
import heapq
from typing import Final, Literal, NamedTuple

import numpy as np

from eunomia import (
    Allocation,
    Claims,
    Contract,
    Feature,
    Grants,
    Menus,
    Offer,
    PluginOptions,
    Pool,
    Promise,
    Reason,
    Scores,
    Snapshot,
    Stage,
    Triggers,
    Unit,
    Valuations,
    Verdicts,
    hookimpl,
)
from eunomia.contract.contracts import Contracts
from eunomia.contract.pools import usable
from eunomia.units import Bools, Ints, Reals, Rows
from eunomia_plugins.allocations.ranking import EVENTS, ranked, reasons

SLACK = 1e-9


_CONTRACT: Final = Contract(
    needs=frozenset({Feature.SCORES}),
    gives=frozenset({Feature.GRANTS, Feature.JOB_CLAIMS}),
    promises=frozenset({Promise.WORK_CONSERVING}),
    weighs_users=True,
)
_CONTRACTS: Final[Contracts] = {Stage.ALLOCATION: _CONTRACT}


class DrfOptions(PluginOptions):
    """Options of ``drf``."""

    among: Literal["users", "apps"] = "users"
    """The owners whose dominant shares, divided by their weights, are equalized."""


class Drf:
    """Progressive filling: the owner with the smallest dominant share of GPUs, CPUs and memory is served next."""

    name = "drf"
    api = 1
    options_type = DrfOptions
    contracts: Contracts = _CONTRACTS

    def __init__(self, options: DrfOptions) -> None:
        self.options = options
        weighs_users = options.among == "users"
        self.contracts = {Stage.ALLOCATION: dataclasses.replace(_CONTRACT, weighs_users=weighs_users)}

    @hookimpl
    def eunomia_triggers(self) -> Triggers:
        """Request a round at every arrival and whenever GPUs become free."""
        return Triggers(on=EVENTS)

    @hookimpl
    def eunomia_allocation(self, snapshot: Snapshot, menus: Menus, offer: Offer, valuations: Valuations) -> Allocation:
        """Serve owners by dominant share, each owner's jobs in the valuation's order at the largest size that fits."""
        jobs = ranked(snapshot, offer.candidates, valuations.form(Scores), valuations.claims)
        claims = Claims(unit=Unit.JOB, rows=jobs)
        gpus = usable(snapshot, offer, claims)
        why = reasons(menus.span(jobs)[0], snapshot.jobs.gpu_type[jobs], offer.capacity)
        filling = _Filling(snapshot, menus, jobs, gpus, among=self.options.among)
        filling.run(np.flatnonzero(why == int(Reason.OUTRANKED)))
        for index, reason in filling.refused.items():
            why[index] = int(reason)
        late = np.flatnonzero(filling.sizes == 0)
        return Allocation(
            claims=claims,
            amount=Grants(gpus=filling.sizes, gpu_type=filling.kinds if offer.capacity.size > 1 else None),
            order=np.array(filling.order, np.int32),
            verdicts=Verdicts(rows=jobs[late], reasons=why[late]),
        )


class Totals(NamedTuple):
    """The cluster's total GPUs, CPUs and memory; inf if an amount is not known, so that shares of it are 0."""

    amounts: Reals

    @classmethod
    def of(cls, snapshot: Snapshot) -> "Totals":
        """Return the totals of the whole cluster."""
        cluster = snapshot.cluster
        sums = np.array([cluster.capacity.sum(), cluster.machine_cpus.sum(), cluster.machine_memory_gib.sum()])
        return cls(np.where(np.isnan(sums), np.inf, sums))

    def per_gpu(self) -> Reals:
        """Return the amount of each resource per GPU of the cluster; 0 if it is not known."""
        amounts = self.amounts / self.amounts[0]
        return np.where(np.isfinite(amounts), amounts, 0.0)


class _Filling:
    """Progressive filling within one round."""

    def __init__(self, snapshot: Snapshot, menus: Menus, jobs: Rows, gpus: Ints, *, among: str) -> None:
        cluster, table = snapshot.cluster, snapshot.jobs
        self.menus, self.jobs = menus, jobs
        totals = Totals.of(snapshot)
        self.total: list[float] = totals.amounts.tolist()
        asked = np.column_stack([np.ones(jobs.size), table.cpus[jobs], table.memory_gib[jobs]])
        named: Bools = ~np.isnan(asked)
        self.named: list[list[bool]] = named.tolist()
        self.per_gpu: list[list[float]] = np.where(named, asked, totals.per_gpu()).tolist()
        self.kind = table.gpu_type[jobs].tolist()
        apps = table.app[jobs]
        of = (apps if among == "apps" else snapshot.apps.user[apps]) if jobs.size else apps
        self.owner = of.tolist()
        self.weight: list[float] = (snapshot.apps if among == "apps" else snapshot.users).weight.tolist()
        self.used: list[list[float]] = _held(snapshot, gpus, among).tolist()
        pool = Pool(snapshot, gpus)
        usable_machines = pool.free > 0
        cpus, memory_gib = pool.cpus[usable_machines], pool.memory_gib[usable_machines]
        self.left = [np.inf, float(cpus.sum()), float(memory_gib.sum())]
        self.free = np.bincount(cluster.gpu_type[gpus], minlength=len(cluster.gpu_types)).tolist()
        self.sizes: Ints = np.zeros(jobs.size, np.int64)
        self.kinds: Rows = np.full(jobs.size, -1, np.int32)
        self.order: list[int] = []
        self.refused: dict[int, Reason] = {}

    def run(self, able: Ints) -> None:
        """Serve jobs, given as indices in order; the next job always belongs to the owner with the smallest share."""
        queues: dict[int, list[int]] = {}
        for index in able.tolist()[::-1]:
            queues.setdefault(self.owner[index], []).append(index)
        heap = [(self._share(owner), queues[owner][-1], owner) for owner in queues]
        heapq.heapify(heap)
        while heap and any(self.free):
            _, index, owner = heapq.heappop(heap)
            self._serve(index, owner)
            queues[owner].pop()
            if queues[owner]:
                heapq.heappush(heap, (self._share(owner), queues[owner][-1], owner))

    def _share(self, owner: int) -> float:
        """Return the owner's dominant share, divided by its weight."""
        return (
            max([used / total for used, total in zip(self.used[owner], self.total, strict=True)]) / self.weight[owner]
        )

    def _serve(self, index: int, owner: int) -> None:
        kind = self.kind[index] if self.kind[index] >= 0 else self.free.index(max(self.free))
        fits = self._most(index)
        size = self.menus.largest_at_most(self.jobs.item(index), int(min(self.free[kind], *fits)))
        if size == 0:
            short = self.menus.largest_at_most(self.jobs.item(index), self.free[kind]) > 0
            if short:
                self.refused[index] = Reason.CPUS_SHORT if fits[0] <= fits[1] else Reason.MEMORY_SHORT
            return
        self.sizes[index], self.kinds[index] = size, kind
        self.order.append(index)
        self.free[kind] -= size
        used, named = self.used[owner], self.named[index]
        for resource, amount in enumerate(self.per_gpu[index]):
            used[resource] += size * amount
            if named[resource] and resource:
                self.left[resource] -= size * amount

    def _most(self, index: int) -> tuple[float, float]:
        """Return the number of GPUs for which the cluster's CPUs, and its memory, suffice.

        A resource that the job does not request sets no limit.
        """
        per_gpu, named = self.per_gpu[index], self.named[index]
        most = [
            self.left[resource] / per_gpu[resource] + SLACK if named[resource] and per_gpu[resource] > 0.0 else 1e9
            for resource in (1, 2)
        ]
        return min(most[0], 1e9), min(most[1], 1e9)


def _held(snapshot: Snapshot, offered: Ints, among: str) -> Reals:
    """Return the amounts that owners hold outside the offer, [owner row, resource]."""
    held, cluster = snapshot.holdings, snapshot.cluster
    size = (snapshot.apps if among == "apps" else snapshot.users).weight.size
    used = np.zeros((size, 3))
    kept = held.app[: cluster.gpus] >= 0
    kept[offered] = False
    gpus = np.flatnonzero(kept)
    owner = held.app[gpus] if among == "apps" else snapshot.apps.user[held.app[gpus]]
    amounts = [np.ones(gpus.size), np.nan_to_num(held.cpus[gpus]), np.nan_to_num(held.memory_gib[gpus])]
    np.add.at(used, owner, np.column_stack(amounts))

    return used
