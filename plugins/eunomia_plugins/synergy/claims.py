"""The claims of a round as Synergy's placements use them, and the running jobs that are not claims."""

import dataclasses
from collections import Counter
from typing import Final

import numpy as np

from eunomia import Allocation, AmountRange, GpuState, Grants, JobState, Offer, PluginError, Snapshot, Unit, available
from eunomia.contract.pools import holders
from eunomia.units import NONE, Ints
from eunomia_plugins.synergy.room import Counts, Holder, Room, Vector

NO_GPUS: Final[Ints] = np.empty(0, np.int64)


@dataclasses.dataclass(slots=True, eq=False)
class Claim:
    """A claim to be placed."""

    index: int
    gpus: int
    gpu_type: int
    """Requested GPU type; -1: any."""
    least: Vector
    """Minimum CPUs and GiB per GPU."""
    most: Vector
    held: Ints
    """GPUs of the offer that the claim holds."""
    pins: Counts
    """Machines to which the claim is pinned, with the number of GPUs on each; empty: any machines."""
    gang: bool
    """Whether all its GPUs must have the same type."""


class Claims:
    """The claims of an allocation, with their ranges of CPUs and memory."""

    def __init__(self, snapshot: Snapshot, offer: Offer, allocation: Allocation) -> None:
        if not isinstance(allocation.amount, Grants):
            raise PluginError("a placement must get whole GPUs", value=type(allocation.amount).__name__)
        self.snapshot, self.allocation, self.grants = snapshot, allocation, allocation.amount
        self.gpus = available(snapshot, offer, allocation)
        self.room = Room(snapshot, self.gpus)
        self._held = _by_claim(holders(snapshot, allocation.claims, self.gpus), self.gpus)
        self._pins = _pins(self.grants)
        cluster = snapshot.cluster
        sizes = np.diff(cluster.machine_start)
        self._each = cluster.machine_cpus / sizes, cluster.machine_memory_gib / sizes
        jobs = allocation.claims.unit is Unit.JOB
        self.fixed: dict[int, Ints] = {} if jobs else {index: self._fixed(index) for index in self._held}
        """GPUs that an app keeps, by its claim; they keep their CPUs and memory, since the app divides
        these among its jobs."""

    @property
    def holding(self) -> list[int]:
        """Return the indices of the claims that hold GPUs of the offer."""
        return list(self._held)

    def missing(self, index: int) -> int:
        """Return the number of GPUs granted to a claim beyond those that it keeps."""
        return int(self.grants.gpus[index]) - (self.fixed[index].size if index in self.fixed else 0)

    def claim(self, index: int) -> Claim:
        """Return a claim by its index; a claim of an app excludes the GPUs that the app keeps."""
        gpus, job = int(self.grants.gpus[index]), self._job(index)
        kind = NONE if job == NONE else int(self.snapshot.jobs.gpu_type[job])
        if self.grants.gpu_type is not None and self.grants.gpu_type[index] >= 0:
            kind = int(self.grants.gpu_type[index])
        least, most = self._range(index, max(1, gpus), kind, job)
        if index in self.fixed:
            return Claim(index, self.missing(index), kind, least, most, NO_GPUS, self._open_pins(index), gang=False)
        held = self._held.get(index, NO_GPUS)
        return Claim(index, gpus, kind, least, most, held, self._pins.get(index, []), job != NONE)

    def _fixed(self, index: int) -> Ints:
        """Return the GPUs that an app holds and keeps.

        These are at most as many as granted, of the granted type and on its pinned machines.
        """
        cluster, held = self.snapshot.cluster, self._held[index]
        keeps = self.snapshot.holdings.successor[held] == NONE
        if self.grants.gpu_type is not None and self.grants.gpu_type[index] >= 0:
            keeps &= cluster.gpu_type[held] == self.grants.gpu_type[index]
        held = held[keeps]
        if index in self._pins:
            parts = [held[cluster.machine[held] == machine][:count] for machine, count in self._pins[index]]
            held = np.concatenate([NO_GPUS, *parts])
        return held[: int(self.grants.gpus[index])]

    def _open_pins(self, index: int) -> Counts:
        has = dict(self.counts(self.fixed[index]))
        left = ((machine, count - has.get(machine, 0)) for machine, count in self._pins.get(index, []))
        return [(machine, count) for machine, count in left if count > 0]

    def _job(self, index: int) -> int:
        claims = self.allocation.claims
        return int(claims.rows[index]) if claims.unit is Unit.JOB else NONE

    def _range(self, index: int, gpus: int, kind: int, job: int) -> tuple[Vector, Vector]:
        """Return the range per GPU: that of the grant, else the job's request, else the proportional share."""
        table, mine = self.snapshot.jobs, self.room.of_type(kind)
        asked = (np.nan, np.nan) if job == NONE else (float(table.cpus[job]), float(table.memory_gib[job]))
        parts = []
        for bounds, wanted, each in zip((self.grants.cpus, self.grants.memory_gib), asked, self._each, strict=True):
            share = float(np.min(each[mine], initial=np.inf)) if np.isnan(wanted) else wanted
            parts.append(_bounds(bounds, index, gpus, share if np.isfinite(share) else 0.0))
        (cpus, most_cpus), (memory, most_memory) = parts
        return (cpus, memory), (most_cpus, most_memory)

    def stays(self, claim: Claim) -> bool:
        """Return whether a claim already holds exactly the granted GPUs, and its grant allows it to keep them."""
        cluster = self.snapshot.cluster
        if claim.held.size != claim.gpus or not claim.gpus:
            return False
        if claim.gpu_type != NONE and (cluster.gpu_type[claim.held] != claim.gpu_type).any():
            return False
        if claim.pins and dict(self.counts(claim.held)) != dict(claim.pins):
            return False
        return bool(self.room.pool.holds(claim.held).all())

    def current(self, gpus: Ints) -> Vector:
        """Return the smallest CPUs and GiB per GPU among these GPUs, as held now."""
        held = self.snapshot.holdings
        return float(np.nan_to_num(held.cpus[gpus]).min()), float(np.nan_to_num(held.memory_gib[gpus]).min())

    def counts(self, gpus: Ints) -> Counts:
        """Return the machines of these GPUs, with the number of GPUs on each."""
        return sorted(Counter(self.snapshot.cluster.machine[gpus].tolist()).items())

    def peers(self) -> list[Holder]:
        """Return the running jobs that are not claims and keep their GPUs, in order of arrival."""
        held, state = self.snapshot.holdings, self.snapshot.jobs.state
        inside = np.zeros(self.snapshot.cluster.gpus, dtype=bool)
        inside[self.gpus] = True
        owned = (held.job[: inside.size] != NONE) & (held.state[: inside.size] == int(GpuState.HELD))
        by_job: dict[int, list[int]] = {}
        for gpu in np.flatnonzero(owned).tolist():
            by_job.setdefault(int(held.job[gpu]), []).append(gpu)
        named = set(self.allocation.claims.rows.tolist()) if self.allocation.claims.unit is Unit.JOB else set()
        return [
            self._peer(job, np.array(gpus, np.int64))
            for job, gpus in ((job, by_job.get(job)) for job in self.snapshot.active.tolist())
            if gpus is not None
            and job not in named
            and state[job] == int(JobState.RUNNING)
            and job not in self.snapshot.measuring
            and not inside[gpus].any()
            and self._whole(job, gpus)
        ]

    def _whole(self, job: int, gpus: list[int]) -> bool:
        """Return whether the job has a single lease with exactly these GPUs, all with the same range and amounts."""
        held = self.snapshot.holdings
        lease = held.lease[gpus]
        if (lease != lease[0]).any() or (held.lease == lease[0]).sum() != len(gpus):
            return False
        columns = (held.least_cpus, held.most_cpus, held.least_memory_gib, held.most_memory_gib)
        return all(bool(np.isfinite(column[gpus]).all()) and np.ptp(column[gpus]) == 0.0 for column in columns)

    def _peer(self, job: int, gpus: Ints) -> Holder:
        held, first = self.snapshot.holdings, int(gpus[0])
        return Holder(
            key=job,
            is_claim=False,
            gpus=gpus,
            counts=self.counts(gpus),
            now=self.current(gpus),
            least=(float(held.least_cpus[first]), float(held.least_memory_gib[first])),
            most=(float(held.most_cpus[first]), float(held.most_memory_gib[first])),
        )


def _bounds(bounds: AmountRange | None, index: int, gpus: int, share: float) -> tuple[float, float]:
    if bounds is None:
        return share, share
    return float(bounds.least[index]) / gpus, float(bounds.most[index]) / gpus


def _by_claim(index: Ints, gpus: Ints) -> dict[int, Ints]:
    """Return the GPUs of the offer that each claim holds."""
    owned: dict[int, list[int]] = {}
    for claim, gpu in zip(index.tolist(), gpus.tolist(), strict=True):
        if claim >= 0:
            owned.setdefault(claim, []).append(gpu)
    return {claim: np.array(owned[claim], np.int64) for claim in sorted(owned)}


def _pins(grants: Grants) -> dict[int, Counts]:
    pinned: dict[int, Counter[int]] = {}
    if grants.pins is not None:
        columns = (grants.pins.claim, grants.pins.machine, grants.pins.gpus)
        for claim, machine, gpus in zip(*(column.tolist() for column in columns), strict=True):
            if gpus > 0:
                pinned.setdefault(claim, Counter())[machine] += gpus
    return {claim: sorted(counts.items()) for claim, counts in pinned.items()}
