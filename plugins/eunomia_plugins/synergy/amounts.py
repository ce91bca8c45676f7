"""Choose CPUs and memory for the jobs of a round by Synergy-Opt's first programme, solved per GPU type."""

from typing import NamedTuple

import numpy as np

from eunomia import Allocation, Grants, Offer, Pool, Snapshot, available
from eunomia.model.shapes import builds
from eunomia.units import Bools, Ints, Reals
from eunomia_plugins.synergy.demands import Demands
from eunomia_plugins.synergy.points import Points, instance_of
from eunomia_plugins.synergy.whole_jobs import ChosenPoints, solve


@builds
class Wanted:
    """The columns of a round's claims, one entry per claim."""

    jobs: Ints
    """Row of each claim's job or app."""
    gpus: Ints
    gpu_type: Ints
    """GPU type of each claim; -1: any."""
    served: Bools
    """Whether the claim takes part in the programme; claims on standby or without GPUs do not."""


class Group(NamedTuple):
    """A group of jobs with equal points."""

    points: Points
    claims: Ints


class Chosen(NamedTuple):
    """The chosen amounts of each claim, and the value and upper bound of the programmes."""

    amounts: Reals
    """[claim, 2] CPUs and GiB for all its GPUs together."""
    value: float
    bound: float


def wanted_of(snapshot: Snapshot, allocation: Allocation, grants: Grants) -> Wanted:
    """Return the claims of an allocation; those in its order of service take part."""
    jobs, gpus = allocation.claims.rows.astype(np.int64), grants.gpus.astype(np.int64)
    kind = snapshot.jobs.gpu_type[jobs].astype(np.int64)
    if grants.gpu_type is not None:
        kind = np.where(grants.gpu_type >= 0, grants.gpu_type, kind)
    served: Bools = np.zeros(jobs.size, dtype=bool)
    served[allocation.order] = True
    return Wanted(jobs=jobs, gpus=gpus, gpu_type=kind, served=served & (gpus > 0))


class Programmes:
    """The programmes of a round, one per GPU type."""

    def __init__(self, snapshot: Snapshot, offer: Offer, allocation: Allocation, demands: Demands) -> None:
        self._snapshot, self._demands = snapshot, demands
        self._room = Pool(snapshot, available(snapshot, offer, allocation))

    def choose(self, wanted: Wanted) -> Chosen:
        """Choose a point for each claim that takes part.

        Other claims, and claims without points, get their minimum amounts.
        """
        amounts = self._demands.of_jobs(wanted.jobs, wanted.gpus, wanted.gpu_type)[0]
        groups, takes = self._groups(wanted)
        value = bound = 0.0
        for kind in np.unique(wanted.gpu_type[takes]).tolist():
            mine = [group for group in groups if wanted.gpu_type[group.claims[0]] == kind]
            fixed = amounts[wanted.served & ~takes & (wanted.gpu_type == kind)].sum(axis=0)
            found = self._solve(mine, kind, fixed)
            if found is None:
                continue
            value, bound = value + found.value, bound + found.bound
            for group, jobs in zip(mine, found.jobs, strict=True):
                amounts[group.claims] = group.points.of(jobs)
        return Chosen(amounts, value, bound)

    def _groups(self, wanted: Wanted) -> tuple[list[Group], Bools]:
        """Return the groups of equal jobs, and for each claim whether it is in a group."""
        table, takes = self._snapshot.jobs, wanted.served.copy()
        takes &= np.isnan(table.cpus[wanted.jobs]) & np.isnan(table.memory_gib[wanted.jobs])
        if len(self._snapshot.cluster.gpu_types) > 1:
            takes &= wanted.gpu_type >= 0
        claims, groups = np.flatnonzero(takes), list[Group]()
        if not claims.size:
            return groups, takes
        curve = self._demands.menus.curve[wanted.jobs[claims]].astype(np.int64)
        alike = np.column_stack([curve, wanted.gpus[claims], wanted.gpu_type[claims]])
        _, first, inverse = np.unique(alike, axis=0, return_index=True, return_inverse=True)
        for turn, at in enumerate(claims[first].tolist()):
            mine = claims[inverse.reshape(-1) == turn]
            points = self._demands.points(int(wanted.jobs[at]), int(wanted.gpus[at]), int(wanted.gpu_type[at]))
            if points is None:
                takes[mine] = False
            else:
                groups.append(Group(points, mine))
        return groups, takes

    def _solve(self, groups: list[Group], kind: int, fixed: Reals) -> ChosenPoints | None:
        """Solve the programme on the machines of a GPU type, minus the amounts of claims without points."""
        machines = self._snapshot.cluster.machine_type
        mine = (machines == kind) | (kind < 0)
        room = self._room.cpus[mine].sum() - fixed[0], self._room.memory_gib[mine].sum() - fixed[1]
        if min(room) <= 0.0:
            return None
        count = np.array([group.claims.size for group in groups])
        capacity = float(room[0]), float(room[1])
        return solve(instance_of([group.points for group in groups], count, capacity))
