"""The processes on each GPU: their lease and their job."""

import math
from collections.abc import Sequence

from eunomia.errors import EunomiaError
from eunomia.units import Seconds
from eunomia_testbed.simulator.logs.logs import LeaseLogger

NO_HOLDER = -1
"""The value for no lease, no job and no app."""


class TwoHoldersError(EunomiaError):
    """Two leases had processes on the same GPU."""


class GpuTable:
    """The processes on GPUs, as plain lists by GPU, since reading one costs less than reading a numpy scalar.

    Args:
        gpus: number of GPUs.
        jobs: number of jobs.
        log: the log of GPUs held by leases; None: not kept.
    """

    def __init__(self, gpus: int, jobs: int, log: LeaseLogger | None) -> None:
        self.holder = [NO_HOLDER] * gpus
        """The lease whose processes are on each GPU."""
        self.job_on = [NO_HOLDER] * gpus
        """The row of the job on each GPU; -1: none."""
        self.app_on = [NO_HOLDER] * gpus
        self.since = [math.nan] * gpus
        """Time in seconds at which the current job got each GPU."""
        self.fence = [0] * gpus
        """The epoch of the newest order that reached each GPU; older orders are ignored."""
        self.there = gpus
        """Number of GPUs on machines that are part of the cluster."""
        self.busy = 0
        """Number of GPUs with a holder."""
        self.slot_seconds = [0.0] * jobs
        """GPU-seconds held by each job up to its last change."""
        self.log = log

    def standing(self) -> set[int]:
        """Return the jobs that hold GPUs."""
        return set(self.job_on) - {NO_HOLDER}

    def raise_fence(self, gpus: Sequence[int], epoch: int) -> None:
        """Make GPUs ignore orders older than an epoch."""
        fence = self.fence
        for gpu in gpus:
            if fence[gpu] < epoch:
                fence[gpu] = epoch

    def occupy(self, gpus: Sequence[int], lease: int, epoch: int, app: int, job: int, now: Seconds) -> bool:
        """Put the processes of a lease on GPUs; if one of the GPUs has a newer order, do nothing and return False.

        Raises:
            TwoHoldersError: another lease has processes on one of the GPUs.
        """
        holder, fence, job_on, app_on, since = self.holder, self.fence, self.job_on, self.app_on, self.since
        for gpu in gpus:
            if fence[gpu] > epoch:
                return False
        for gpu in gpus:
            fence[gpu] = epoch
            if holder[gpu] == lease:
                continue
            if holder[gpu] != NO_HOLDER:
                raise TwoHoldersError("a GPU must have one holder", value=f"GPU {gpu}: leases {holder[gpu]}, {lease}")
            holder[gpu] = lease
            app_on[gpu], job_on[gpu], since[gpu] = app, job, now
            self.busy += 1
        return True

    def vacate(self, lease: int, gpus: Sequence[int], now: Seconds, why: str, *, fence: int = 0) -> None:
        """Remove the processes of a lease from GPUs; from now on these ignore orders older than the epoch ``fence``."""
        holder, job_on, app_on, held, log = self.holder, self.job_on, self.app_on, self.since, self.log
        fences, reason = self.fence, 0 if log is None else log.reasons[why]
        for gpu in gpus:
            if fences[gpu] < fence:
                fences[gpu] = fence
            if holder[gpu] == lease:
                since, job = held[gpu], job_on[gpu]
                if job != NO_HOLDER:
                    self.slot_seconds[job] += now - since
                if log is not None and now > since:
                    records = log.records
                    records.rows += records.pack(app_on[gpu], job, gpu, lease, since, now, reason)
                holder[gpu] = job_on[gpu] = NO_HOLDER
                self.busy -= 1

    def assign(self, job: int, gpus: Sequence[int], now: Seconds) -> None:
        """Assign an app's job to GPUs of the app's leases; with job -1, remove the current job from them."""
        for gpu in gpus:
            if self.job_on[gpu] != job and self.holder[gpu] != NO_HOLDER:
                since, before = self.since[gpu], self.job_on[gpu]
                if before != NO_HOLDER:
                    self.slot_seconds[before] += now - since
                if self.log is not None and now > since:
                    reason = self.log.reasons["divided"]
                    self.log.records.add(self.app_on[gpu], before, gpu, self.holder[gpu], since, now, reason)
                self.job_on[gpu], self.since[gpu] = job, now

    def settle(self, now: Seconds) -> None:
        """Add the GPU-seconds of GPUs that are still held to each job's total at the end of the run."""
        for gpu, lease in enumerate(self.holder):
            if lease != NO_HOLDER:
                job = self.job_on[gpu]
                if job != NO_HOLDER:
                    self.slot_seconds[job] += now - self.since[gpu]
                if self.log is not None:
                    reason = self.log.reasons[""]
                    self.log.records.add(self.app_on[gpu], job, gpu, lease, self.since[gpu], math.nan, reason)
