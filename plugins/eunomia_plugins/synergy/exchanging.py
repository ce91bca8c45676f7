"""Exchanges in a placement: starting jobs are swapped, and CPUs and memory are divided by the jobs' rates."""

import numpy as np

from eunomia import Menus, Snapshot
from eunomia.units import NONE
from eunomia_plugins.synergy.demands import Demands
from eunomia_plugins.synergy.exchanges import Exchangeable, Exchanges, Machines
from eunomia_plugins.synergy.matrices import Matrix
from eunomia_plugins.synergy.packing import Packing
from eunomia_plugins.synergy.points import Points
from eunomia_plugins.synergy.room import SLACK, Holder


class Exchanging:
    """The jobs of a placement whose CPUs and memory may change, and the resources of their machines.

    Jobs on several machines keep their GPUs and amounts; running jobs keep their GPUs.

    Args:
        packing: the placement, with claims of jobs.
        snapshot: the current state.
        menus: menus with points by CPUs and memory.
    """

    def __init__(self, packing: Packing, snapshot: Snapshot, menus: Menus) -> None:
        self._packing, self._rows = packing, packing.allocation.claims.rows
        self._menus, self._demands = menus, Demands(snapshot, menus, 1.0, {})
        self._holders: list[Holder] = []
        self._jobs: list[Exchangeable] = []
        for holder in packing.in_turn():
            if len(holder.counts) == 1:
                self._holders.append(holder)
                self._jobs.append(self._exchangeable(holder))

    def _exchangeable(self, holder: Holder) -> Exchangeable:
        gpus, ((machine, _),) = holder.gpus.size, holder.counts
        if not holder.is_claim:
            points = self._points(holder, holder.key, int(self._packing.room.cluster.machine_type[machine]))
            return Exchangeable(points, gpus, NONE, machine, moves=False)
        claim = self._packing.claims.claim(holder.key)
        points = self._points(holder, int(self._rows[holder.key]), claim.gpu_type)
        starts = not claim.pins and not np.isin(holder.gpus, claim.held).any()
        return Exchangeable(points, gpus, claim.gpu_type, machine, moves=starts)

    def _points(self, holder: Holder, job: int, gpu_type: int) -> Points:
        """Return the points of a job within its range, its minimum first; without known rates, its present amounts."""
        gpus = holder.gpus.size
        matrix, points = Matrix.of(self._menus, job, gpus, gpu_type), self._demands.points(job, gpus, gpu_type)
        if matrix is None or points is None:
            now = [np.array([amount * gpus]) for amount in holder.now]
            return Points(now[0], now[1], np.ones(1))
        share = [amount * gpus for amount in self._demands.share(gpu_type)]
        least = [min(low, now) * gpus for low, now in zip(holder.least, holder.now, strict=True)]
        inside = (points.cpus >= least[0] - SLACK) & (points.memory_gib >= least[1] - SLACK)
        inside &= (points.cpus <= holder.most[0] * gpus + SLACK) & (points.memory_gib <= holder.most[1] * gpus + SLACK)
        floor = matrix.at(*least) / matrix.at(*share)
        columns = (np.append(low, column[inside]) for low, column in zip((*least, floor), points, strict=True))
        return Points(*columns)

    def run(self, tries: int) -> None:
        """Run the exchanges, then apply the new machines and amounts to the placement."""
        if not self._jobs:
            return
        exchanges = Exchanges(self._jobs, self._machines())
        before = [job.machine for job in self._jobs]
        exchanges.run(tries)
        moved = [at for at, job in enumerate(self._jobs) if job.machine != before[at]]
        for at in moved:
            self._packing.room.drop(self._holders[at])
        for at in moved:
            holder, job = self._holders[at], self._jobs[at]
            self._packing.place(self._packing.claims.claim(holder.key), ([(job.machine, job.gpus)], holder.least))
            self._holders[at] = self._packing.placed[holder.key]
        for machine in sorted({*before, *(job.machine for job in self._jobs)}):
            for at, (cpus, memory_gib) in exchanges.divided(machine):
                gpus = self._jobs[at].gpus
                self._packing.room.change(self._holders[at], (cpus / gpus, memory_gib / gpus))

    def _machines(self) -> Machines:
        room = self._packing.room
        amounts = np.column_stack([room.cpus, room.memory_gib])
        for holder, job in zip(self._holders, self._jobs, strict=True):
            amounts[job.machine] += np.array(holder.now) * job.gpus
        return Machines(room.free.astype(np.int64), amounts, room.cluster.machine_type.astype(np.int64))
