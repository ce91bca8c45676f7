"""The CPUs and memory of jobs at each size, and the measurements that the arbiter requested."""

import math
from collections.abc import Mapping

from eunomia_appmaster.master.jobs import Job
from eunomia_appmaster.master.slots import Slot
from eunomia_appmaster.profiler.rates import Rate

Amounts = tuple[float | None, float | None]


class AmountsSeen:
    """CPUs and memory (GiB) by job and size, and when they last changed."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, int, int], Amounts] = {}
        self._changed_at: dict[int, float] = {}
        self._answered: dict[int, int] = {}
        """The last incarnation of a job that reported a requested measurement, by job."""

    def note(self, job: Job, slots: Mapping[int, Slot], now: float) -> float:
        """Store a job's current CPUs and memory; returns the Unix time since which its rates hold (-inf: always)."""
        size = job.sizes.get(job.incarnation)
        if job.gang is not None and size is not None and all(gpu in slots for gpu in job.gang.member_gpus):
            mine = [slots[gpu] for gpu in job.gang.member_gpus]
            cpus, memory_gib = sum(slot.cpus for slot in mine), sum(slot.memory_gib for slot in mine)
            have: Amounts = (cpus or None, memory_gib or None)
            if self._seen.get((job.number, *size), have) != have:
                self._changed_at[job.number] = now
            self._seen[job.number, size[0], size[1]] = have
        changed_at = self._changed_at.get(job.number, -math.inf)
        if job.gang is not None and job.gang.changed_at is not None:  # at another size in the same logs
            return max(changed_at, job.gang.changed_at)
        return changed_at

    def of(self, job: Job, rate: Rate) -> Amounts:
        """Return the job's CPUs and memory (GiB) at the size and locality of a rate; None: not known."""
        return self._seen.get((job.number, rate.gpus, int(rate.locality)), (None, None))

    def answers(self, job: Job) -> bool:
        """Return True the first time that a job's incarnation reports a requested measurement; False afterwards."""
        if self._answered.get(job.number) == job.incarnation:
            return False
        self._answered[job.number] = job.incarnation
        return True

    def forget_answers(self) -> None:
        """Forget which incarnations have reported, so that measurements are reported again after a registration."""
        self._answered.clear()
