"""The CPUs and memory with which jobs ran at each size, and the measurements that the arbiter asked for."""

import math
from collections.abc import Mapping

from eunomia_appmaster.master.jobs import Job
from eunomia_appmaster.master.slots import Slot
from eunomia_appmaster.profiler.rates import Rate

Amounts = tuple[float | None, float | None]


class AmountsSeen:
    """By job and size: CPUs and memory in GiB, and when they changed."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, int, int], Amounts] = {}
        self._changed_at: dict[int, float] = {}
        self._answered: dict[int, int] = {}
        """By job, the last incarnation whose rate was reported because it was asked for."""

    def note(self, job: Job, slots: Mapping[int, Slot], now: float) -> float:
        """Note what a job has now; returns since when, in Unix seconds, its rates hold: -inf: they always did."""
        size = job.sizes.get(job.incarnation)
        if job.gang is not None and size is not None and all(gpu in slots for gpu in job.gang.gpus):
            mine = [slots[gpu] for gpu in job.gang.gpus]
            cpus, memory_gib = sum(slot.cpus for slot in mine), sum(slot.memory_gib for slot in mine)
            have: Amounts = (cpus or None, memory_gib or None)
            if self._seen.get((job.number, *size), have) != have:
                self._changed_at[job.number] = now
            self._seen[job.number, size[0], size[1]] = have
        return self._changed_at.get(job.number, -math.inf)

    def of(self, job: Job, rate: Rate) -> Amounts:
        """What the job had, or has, at the size of a rate; None: not known."""
        return self._seen.get((job.number, rate.gpus, int(rate.locality)), (None, None))

    def answers(self, job: Job) -> bool:
        """Whether the job's present incarnation has not answered yet; it counts as answered from now on."""
        if self._answered.get(job.number) == job.incarnation:
            return False
        self._answered[job.number] = job.incarnation
        return True

    def forget_answers(self) -> None:
        """Let everything be reported again: at registration."""
        self._answered.clear()
