"""The state index: waiting jobs, free GPUs and other sets derived from the tables.

It is updated with every change, so that no step searches the tables. ``Standing.of`` rebuilds it from the tables: a
state that was loaded or written directly has no index until its first use, and ``--strict-plugins`` compares the
index with a rebuilt one after every step.
"""

from typing import Protocol, Self

import numpy as np

from eunomia.contract.verdicts import Reason
from eunomia.model.cluster import Cluster
from eunomia.model.columns import Table
from eunomia.model.leases import GpuState, Holdings, Lease, LeaseState
from eunomia.model.space import Space
from eunomia.model.workload import JobState
from eunomia.state.machine_shares import MachineShares
from eunomia.store.tables import AppRows, JobRows
from eunomia.units import NONE, AppId, Ints, Seconds


class Tables(Protocol):
    """The tables that the index is built from; ``State`` implements this."""

    now: Seconds
    cluster: Cluster
    machine_shares: MachineShares
    leases: dict[int, Lease]
    app_rows: dict[AppId, int]

    @property
    def jobs(self) -> Table[JobRows]:
        """One row per job."""
        ...

    @property
    def apps(self) -> Table[AppRows]:
        """One row per app."""
        ...

    @property
    def holdings(self) -> Table[Holdings]:
        """One row per GPU."""
        ...

    def size_of(self, job: int) -> int:
        """Number of GPUs that a job runs on or is about to run on."""
        ...


class Standing:
    """The state index: sets and sums over the tables.

    Attributes:
        waiting: rows of waiting jobs.
        asked: sum of the waiting jobs' maximum sizes, in GPUs.
        short: rows of jobs that run, or are about to run, below their maximum size.
        stale_verdicts: rows of waiting jobs whose last verdict may differ from ``default_verdict``.
        default_verdict: reason, stage and plugin of the verdict on jobs that no stage turned down; None: none yet.
        backing_off: by row, the time when a failed job is tried again.
        present: number of apps that have not ended.
        shared: leases that name no job; their apps divide them.
        jobs_of: rows of jobs by app.
        leases_of: leases by app.
        uneven: whether any job asks for, or any lease holds, CPUs or memory other than its GPUs' share of the machine.
        space: free GPUs.
        capacity: GPUs by type, without the GPUs that are down; None: to be counted again.
    """

    __slots__ = (
        "asked",
        "backing_off",
        "capacity",
        "default_verdict",
        "jobs_of",
        "leases_of",
        "present",
        "shared",
        "short",
        "space",
        "stale_verdicts",
        "uneven",
        "waiting",
    )

    def __init__(self, space: Space) -> None:
        self.waiting: set[int] = set()
        self.asked = 0
        self.short: set[int] = set()
        self.stale_verdicts: set[int] = set()
        self.default_verdict: tuple[int, int, str] | None = None
        self.backing_off: dict[int, float] = {}
        self.present = 0
        self.shared: set[int] = set()
        self.jobs_of: dict[int, set[int]] = {}
        self.leases_of: dict[int, set[int]] = {}
        self.space = space
        self.capacity: Ints | None = None
        self.uneven = False

    @classmethod
    def of(cls, state: Tables) -> Self:
        """Build the index from the tables."""
        jobs, used = state.jobs.live, state.jobs.used
        held = state.holdings.live.state[: state.cluster.gpus]
        made = cls(Space(state.cluster, held == GpuState.FREE))
        for row in np.flatnonzero(jobs.state[:used] != JobState.EMPTY).tolist():
            made.jobs_of.setdefault(int(jobs.app[row]), set()).add(row)
        waiting = np.flatnonzero(jobs.state[:used] == JobState.WAITING)
        made.waiting = set(waiting.tolist())
        made.stale_verdicts = set(made.waiting)
        made.asked = int(jobs.most[waiting].sum())
        for row in np.flatnonzero(jobs.reason[:used] == Reason.BACKING_OFF).tolist():
            made.backing_off[row] = float(jobs.ready_at[row])
        made.present = int(np.count_nonzero(state.apps.live.ended[list(state.app_rows.values())] == 0))
        asked = np.isfinite(jobs.cpus[:used]) | np.isfinite(jobs.memory_gib[:used])
        cpus, memory_gib = state.machine_shares.by_gpu
        others = state.holdings.live.lease[: state.cluster.gpus] != NONE
        uneven = (state.holdings.live.cpus[: state.cluster.gpus] != cpus) & others
        uneven |= (state.holdings.live.memory_gib[: state.cluster.gpus] != memory_gib) & others
        uneven |= (state.holdings.live.cpus_in_use[: state.cluster.gpus] > cpus) & others
        uneven |= (state.holdings.live.memory_gib_in_use[: state.cluster.gpus] > memory_gib) & others
        made.uneven = bool(asked.any() or uneven.any())
        for lease in state.leases.values():
            made.leases_of.setdefault(lease.app, set()).add(lease.id)
            if lease.job == NONE and lease.state is not LeaseState.LEAVING:
                made.shared.add(lease.id)
        runs = (jobs.state[:used] == JobState.RUNNING) | (jobs.state[:used] == JobState.STARTING)
        for row in np.flatnonzero(runs).tolist():
            if state.size_of(row) < jobs.most[row]:
                made.short.add(row)
        return made

    def stale_verdicts_for(self, default: tuple[int, int, str]) -> set[int]:
        """Rows of waiting jobs whose last verdict may differ from a round's default."""
        if default != self.default_verdict:
            self.default_verdict = default
            self.stale_verdicts = set(self.waiting)
        return self.stale_verdicts

    def same(self, other: Self) -> bool:
        """Return whether both indexes are equal; which verdicts are stale is not compared."""
        mine = (self.waiting, self.asked, self.short, self.backing_off, self.present)
        others = (other.waiting, other.asked, other.short, other.backing_off, other.present)
        owned = (_filled(self.jobs_of), _filled(self.leases_of), self.shared)
        owned_there = (_filled(other.jobs_of), _filled(other.leases_of), other.shared)
        return mine == others and owned == owned_there and self.space.same(other.space)


def _filled(sets: dict[int, set[int]]) -> dict[int, set[int]]:
    return {key: items for key, items in sets.items() if items}
