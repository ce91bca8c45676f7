"""The true progress of jobs if two may share a GPU, so that each job's speed depends on its neighbour.

The simulator's executor, like the arbiter, gives each GPU to a single holder, so no run uses this yet; see
``docs/decisions/0110-two-jobs-on-one-gpu.md`` for what is missing.
"""

import math
from collections.abc import Iterable
from typing import Final

from eunomia.errors import EunomiaError
from eunomia_testbed.simulator.agenda import Agenda
from eunomia_testbed.simulator.executing.saves import PeriodicSaves
from eunomia_testbed.simulator.logs.logs import SegmentLogger
from eunomia_testbed.simulator.progress.truth import Speeds
from eunomia_testbed.simulator.progress.work import Work
from eunomia_testbed.workload import Workload

MOST: Final = 2
"""Largest number of jobs on one GPU, since measurements exist only for pairs."""


class SharedWork(Work):
    """The progress of jobs that may share GPUs; the arguments are those of ``Work``."""

    def __init__(
        self,
        workload: Workload,
        speeds: Speeds,
        agenda: Agenda,
        *,
        checkpoint_every: float = math.inf,
        saves: PeriodicSaves | None = None,
        segments: SegmentLogger | None = None,
    ) -> None:
        super().__init__(workload, speeds, agenda, checkpoint_every=checkpoint_every, saves=saves, segments=segments)
        self._plain = False  # a neighbour slows a job down
        self._there: dict[int, list[int]] = {}
        """The jobs that make steps on each GPU."""

    def neighbours(self, job: int, gpus: Iterable[int]) -> list[int]:
        """Return the other jobs that make steps on any of these GPUs, in order."""
        return sorted({other for gpu in gpus for other in self._there.get(gpu, ())} - {job})

    def go(
        self, job: int, now: float, gpus: tuple[int, ...], cpus: float | None = None, memory_gib: float | None = None
    ) -> None:
        """Start a job as ``Work.go`` does; other jobs on the same GPUs change speed.

        Raises:
            EunomiaError: one of the GPUs has two jobs already.
        """
        for gpu in gpus:
            there = self._there.setdefault(gpu, [])
            if len(there) >= MOST:
                raise EunomiaError(
                    f"a GPU must have at most {MOST} jobs", value=str(len(there) + 1), place=f"GPU {gpu}"
                )
            there.append(job)
        super().go(job, now, gpus, cpus, memory_gib)
        self._update_pace(self.neighbours(job, gpus), now)

    def stop(self, job: int, now: float, *, at_border: bool = False, leaves: bool = True) -> None:
        """Stop a job as ``Work.stop`` does; other jobs on the same GPUs change speed."""
        others = self._part(job)
        super().stop(job, now, at_border=at_border, leaves=leaves)
        self._update_pace(others, now)

    def crash(self, job: int, now: float) -> None:
        """Crash a job as ``Work.crash`` does; its neighbours change speed."""
        others = self._part(job)
        super().crash(job, now)
        if others:
            self._agenda.call(now, lambda then: self._update_pace([other for other in others if self.on[other]], then))

    def _pace(self, job: int, gpus: tuple[int, ...], cpus: float | None, memory_gib: float | None) -> float:
        beside = [self.speeds.called(other, self.present_regime(other)) for other in self.neighbours(job, gpus)]
        return self.speeds.seconds_per_iteration(
            job, gpus, regime=self.present_regime(job), cpus=cpus, memory_gib=memory_gib, beside=beside
        )

    def _part(self, job: int) -> list[int]:
        """Remove a job from its GPUs, and return the other jobs on them."""
        gpus = [gpu for gpu in self.on[job] if job in self._there.get(gpu, ())]
        for gpu in gpus:
            self._there[gpu].remove(job)
        return self.neighbours(job, gpus)

    def _update_pace(self, jobs: Iterable[int], now: float) -> None:
        """Update the speed of running jobs according to their current neighbours."""
        for job in jobs:
            gpus = self.on[job]
            cpus, memory_gib = self._run_shares.get(job, (None, None))
            if self._pace(job, gpus, cpus, memory_gib) != self.pace[job]:
                super().stop(job, now, leaves=False)
                super().go(job, now, gpus, cpus, memory_gib)
