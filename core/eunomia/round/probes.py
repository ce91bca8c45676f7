"""Check the settings that an elasticity requests to measure, and order those for which there are free GPUs.

A job that is measured holds its own GPUs and those of the setting, so that none of them is reassigned meanwhile.
"""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from eunomia.contract.decisions import ProbeOrder, Renewal, Transition, TransitionKind
from eunomia.contract.menus import Probes
from eunomia.model.gpu_sets import NO_GPUS, joined, without
from eunomia.model.leases import GpuState, Lease, LeaseState
from eunomia.model.workload import JobState
from eunomia.round.answers import PlanError
from eunomia.store.state import State
from eunomia.units import NONE, Epoch, Ints, JobId, LeaseId, Locality, Reals, Seconds, Stage

_ELASTICITY = Stage.ELASTICITY
_ROUNDING = 1.0 + 1e-9
_KINDS: Final = {"cpus": "iuf", "memory_gib": "iuf"}
"""Allowed numpy type kinds of columns that need not contain integers."""


def check_probes(state: State, probes: Probes) -> None:
    """Check that jobs can be measured at the requested settings.

    Raises:
        PlanError: a job has ended, a size is out of bounds, the cluster has too few GPUs of a type, or an amount is
            not a positive number.
    """
    many = probes.jobs.size
    for name in ("gpus", "gpu_type", "locality", "cpus", "memory_gib"):
        column = getattr(probes, name)
        if column is None:
            continue
        if not isinstance(column, np.ndarray) or column.dtype.kind not in _KINDS.get(name, "iu"):
            rule = f"{name} of probes must be an array of {'numbers' if name in _KINDS else 'whole numbers'}"
            raise PlanError(_ELASTICITY, rule, value=str(getattr(column, "dtype", type(column).__name__)))
        if column.shape != probes.jobs.shape:
            raise PlanError(_ELASTICITY, f"probes must have {name} for each row", value=f"{column.size} for {many}")
    if not probes.iterations >= 1 or not probes.limit > 0.0 or not probes.again > 0.0:
        value = f"{probes.iterations}, {probes.limit:g} s and {probes.again:g} s"
        raise PlanError(_ELASTICITY, "iterations, limit and again of probes must be above 0", value=value)
    for job, gpus, kind, locality, cpus, memory_gib in _rows(probes):
        if not 0 <= job < state.jobs.used or state.jobs.cells.id[job] is None:
            raise PlanError(_ELASTICITY, "a probe must be of a job that has not ended", value=f"row {job}")
        place = state.job_id(job)
        _check_size(state, job, gpus, kind, place)
        if locality != NONE and not 0 <= locality < len(Locality):
            rule = f"the locality of a probe must be from 0 to {len(Locality) - 1}"
            raise PlanError(_ELASTICITY, rule, value=str(locality), place=place)
        for name, amount in (("CPUs", cpus), ("memory", memory_gib)):
            if not (math.isnan(amount) or 0.0 < amount < math.inf):
                raise PlanError(_ELASTICITY, f"{name} of a probe must be above 0", value=str(amount), place=place)


def _check_size(state: State, job: int, gpus: int, kind: int, place: JobId) -> None:
    jobs, types = state.jobs.cells, state.cluster.gpu_types
    least, most, wanted = jobs.least[job], jobs.most[job], jobs.gpu_type[job]
    if not least <= gpus <= most:
        rule = f"a probe must be of a size that the job can have, {least} to {most} GPUs"
        raise PlanError(_ELASTICITY, rule, value=str(gpus), place=place)
    if kind != NONE and not 0 <= kind < len(types):
        rule = f"a probe must be of a GPU type of the cluster, {', '.join(types)}"
        raise PlanError(_ELASTICITY, rule, value=f"number {kind}", place=place)
    if kind != NONE and wanted not in (NONE, kind):
        rule = f"a probe must be of the GPU type that the job asks for, {types[wanted]}"
        raise PlanError(_ELASTICITY, rule, value=types[kind], place=place)
    if gpus > state.capacity.installed(kind):
        rule = f"a probe must be of at most the {state.capacity.installed(kind)} GPUs of its type"
        raise PlanError(_ELASTICITY, rule, value=str(gpus), place=place)


_Row = tuple[int, int, int, int, float, float]


def _rows(probes: Probes) -> list[_Row]:
    """Return job, GPUs, GPU type, locality, CPUs and memory of each setting."""
    many = probes.jobs.size
    none, unknown = [NONE] * many, [math.nan] * many
    columns: tuple[list[int], ...] = tuple(
        none if column is None else column.tolist() for column in (probes.gpu_type, probes.locality)
    )
    amounts: tuple[list[float], ...] = tuple(
        unknown if column is None else column.tolist() for column in (probes.cpus, probes.memory_gib)
    )
    return list(zip(probes.jobs.tolist(), probes.gpus.tolist(), *columns, *amounts, strict=True))


class Prober:
    """Orders the measurements that are possible after a round's other transitions.

    Args:
        state: the present state, which is not changed.
        probes: the checked settings.
        transitions: transitions of the round so far.
        renewals: renewals of the round so far; a renewed lease is measured under its new terms.

    Attributes:
        waits: whether a job to be measured has or gets GPUs, so that a later round can order more.
    """

    def __init__(
        self, state: State, probes: Probes, transitions: Sequence[Transition], renewals: Sequence[Renewal] = ()
    ) -> None:
        self._state, self._probes = state, probes
        self._terms = {int(renewal.lease): (renewal.ends_at, renewal.protected_until) for renewal in renewals}
        cluster, held = state.cluster, state.holdings.live
        self._changed = {int(order.lease) for order in transitions}
        self._epoch = max([state.counters.last_epoch, *(int(order.epoch) for order in transitions)])
        self._free = held.state[: cluster.gpus] == GpuState.FREE
        promised = (held.lease != NONE) | (held.successor != NONE)
        self._amounts = [np.where(promised, column, 0.0)[: cluster.gpus] for column in (held.cpus, held.memory_gib)]
        for order in transitions:
            self._free[order.gpus] = False
            for column, given in zip(self._amounts, (order.cpus, order.memory_gib), strict=True):
                column[order.leaving] = 0.0
                column[order.gpus] = given

        started = {order.job for order in transitions if order.kind.effect.starts}
        leases = state.jobs.cells.lease
        self.waits = any(leases[job] != NONE or state.job_id(job) in started for job in probes.jobs.tolist())

    def orders(self) -> list[Transition]:
        """Return an order for each setting that can be measured now, at most one per job."""
        orders = map(self._order, _rows(self._probes))
        return [order for order in orders if order is not None]

    def _order(self, row: _Row) -> Transition | None:
        state, (job, size, kind, locality, cpus, memory_gib) = self._state, row
        lease = self._ready(job)
        own = NO_GPUS if lease is None else np.array(lease.gpus, np.int64)
        gpus = None if lease is None else self._gpus(own, size, kind, locality)
        if lease is None or gpus is None:
            return None
        if np.array_equal(gpus, own) and math.isnan(cpus) and math.isnan(memory_gib):
            return None  # the job's app master measures the rate on the job's own GPUs
        whole = np.array(joined(own.tolist(), gpus.tolist()), np.int64)
        amounts = self._given(own, gpus, (cpus, memory_gib))
        if amounts is None:
            return None
        self._free[whole] = False
        self._changed.add(lease.id)
        self._epoch += 1
        until = Seconds(state.now + self._probes.limit)
        ends_at, protected_until = self._terms.get(lease.id, (lease.ends_at, lease.protected_until))
        return Transition(
            kind=TransitionKind.PROBE,
            lease=LeaseId(lease.id),
            epoch=Epoch(self._epoch),
            fence=Epoch(0),
            app=state.app_id(lease.app),
            job=state.job_id(job),
            gpus=whole,
            cpus=amounts[0][whole],
            memory_gib=amounts[1][whole],
            ends_at=ends_at,
            protected_until=Seconds(max(until, protected_until)),
            leaving=NO_GPUS,
            after=NO_GPUS,
            probe=ProbeOrder(
                gpus=gpus, cpus=cpus, memory_gib=memory_gib, iterations=self._probes.iterations, until=until
            ),
        )

    def _ready(self, job: int) -> Lease | None:
        """Return the lease of a job that keeps running on its own GPUs in this round; None if there is none."""
        state = self._state
        lease = state.leases.get(state.jobs.cells.lease[job])
        if lease is None or lease.id in self._changed or state.jobs.cells.state[job] != JobState.RUNNING:
            return None
        busy = lease.state is not LeaseState.ACTIVE or lease.probe is not None or lease.tuned != NONE
        waits = lease.id in state.amounts.tight or bool(state.owners.leaving.get(lease.id))
        return None if busy or waits else lease

    def _gpus(self, own: Ints, size: int, kind: int, locality: int) -> Ints | None:
        """Return GPUs for a setting: some of the job's own, its own plus free ones, or free ones; None: too few."""
        cluster = self._state.cluster
        types = cluster.gpu_type[own]
        kind = int(types[0]) if kind == NONE else kind
        mine = own[types == kind]
        free = np.flatnonzero(self._free & (cluster.gpu_type == kind))
        for parts in ((mine,), (mine, free), (free,)):
            found = self._nearest(parts, size)
            if found is not None and locality in (NONE, int(cluster.locality(found))):
                return found
        return None

    def _nearest(self, parts: Sequence[Ints], size: int) -> Ints | None:
        """Return ``size`` GPUs as close together as possible, preferably from the first part; None: too few."""
        cluster = self._state.cluster
        gpus = np.concatenate(parts)
        if gpus.size < size:
            return None
        everywhere = np.zeros(cluster.gpus, np.int32)
        for group in (cluster.island, cluster.machine, cluster.rack, everywhere):
            counts = np.bincount(group[gpus])
            first = np.bincount(group[parts[0]], minlength=counts.size)
            fit = np.flatnonzero(counts >= size)
            if fit.size:
                best = fit[np.lexsort((counts[fit], -first[fit]))[0]]
                return np.sort(gpus[group[gpus] == best][:size]).astype(np.int64)
        return None

    def _given(self, own: Ints, gpus: Ints, asked: tuple[float, float]) -> list[Reals] | None:
        """Return the CPUs, and the GiB, of every GPU of the cluster, raised where the setting needs more.

        Returns None if a machine has too little.
        """
        cluster, made = self._state.cluster, []
        limits = (cluster.machine_cpus, cluster.machine_memory_gib)
        shares, more = self._state.amounts.shares.by_gpu, without(gpus.tolist(), own.tolist())
        for column, share, wanted, limit in zip(self._amounts, shares, asked, limits, strict=True):
            new = column.copy()
            new[more] = share[more]
            if not math.isnan(wanted):
                new[more] = 0.0
                new[gpus] = np.maximum(new[gpus], wanted / gpus.size)
            total = np.bincount(cluster.machine, weights=new, minlength=len(cluster.machines))
            if np.any(total > np.where(np.isnan(limit), np.inf, limit) * _ROUNDING):
                return None
            made.append(new)
        self._amounts = made
        return made
