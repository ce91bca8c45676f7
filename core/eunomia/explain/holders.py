"""Find the leases whose GPUs a waiting job could use, their holders and ends, and which of them the job needs."""

import math
from collections.abc import Sequence

import numpy as np

from eunomia.explain.what_if import Trials, finishes_at
from eunomia.model.leases import LeaseState
from eunomia.store.state import State
from eunomia.units import NONE, JobId

LEASES_TRIED = 8
"""Maximum number of leases that a search tries to end, first one by one, then together."""


class Holders:
    """The holders of GPUs that one waiting job could use.

    Args:
        state: a copy of the state at the moment of the explanation, for lookups.
        trials: dry runs in which leases end.
        row: the job's row.
        gpu_type: index of the GPU type that the job requests; -1: any.
    """

    def __init__(self, state: State, trials: Trials, row: int, gpu_type: int) -> None:
        self._state, self._trials, self._row, self._gpu_type = state, trials, row, gpu_type
        self._app = int(state.jobs.live.app[row])
        self._job = JobId(str(state.job_id(row)))

    def usable(self) -> list[int]:
        """Return the numbers of up to ``LEASES_TRIED`` leases with GPUs that the job could use, soonest end first."""
        of_type = [
            lease
            for lease in self._state.leases.values()
            if lease.state is not LeaseState.LEAVING
            and lease.gpus
            and lease.job != self._row
            and (lease.job != NONE or lease.app != self._app)
            and (self._gpu_type == NONE or (self._state.cluster.gpu_type[lease.gpus] == self._gpu_type).any())
        ]
        of_type.sort(key=lambda lease: (min(float(lease.ends_at), self.done_at(lease.id)), lease.granted_at, lease.id))
        return [lease.id for lease in of_type[:LEASES_TRIED]]

    def needed_together(self, leases: Sequence[int]) -> list[int]:
        """Return leases whose ends together let the job start, without any that is not needed; empty: none found."""
        for many in range(2, len(leases) + 1):
            if self._trials.released(self._job, leases[:many]) is not None:
                chosen = list(leases[:many])
                for one in leases[:many]:
                    rest = [other for other in chosen if other != one]
                    if rest and self._trials.released(self._job, rest) is not None:
                        chosen = rest
                return chosen
        return []

    def done_at(self, number: int) -> float:
        """Return the time in seconds at which a lease's work is done at its present rate; inf: not known."""
        lease = self._state.leases[number]
        on = self._state.holdings.live.job[lease.gpus]
        return max((finishes_at(self._state, int(job)) for job in set(on.tolist()) if job != NONE), default=math.inf)

    def over_in(self, leases: Sequence[int]) -> float | None:
        """Return the seconds until the work on all these leases is done at its present rate; None: not known."""
        end = max(self.done_at(lease) for lease in leases) - self._trials.now
        return end if math.isfinite(end) else None

    def name(self, number: int) -> str:
        """Return the name of a lease's job, or of its app where the app divides the lease among its jobs."""
        lease = self._state.leases[number]
        return str(self._state.app_id(lease.app) if lease.job == NONE else self._state.job_id(lease.job))

    def gpus_gained(self, leases: Sequence[int]) -> int:
        """Return how many more GPUs of the job's type would become free if these leases ended."""
        gpus = np.array([gpu for number in leases for gpu in self._state.leases[number].gpus], np.int64)
        return (
            gpus.size if self._gpu_type == NONE else int((self._state.cluster.gpu_type[gpus] == self._gpu_type).sum())
        )
