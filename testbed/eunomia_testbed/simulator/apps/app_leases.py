"""Leases of whole apps, which app masters divide among their jobs."""

from eunomia.units import Seconds
from eunomia_testbed.simulator.executing.gpu_table import NO_HOLDER, GpuTable
from eunomia_testbed.simulator.progress.states import JobStates


class AppLeases:
    """The GPUs of apps' own leases, and the jobs that app masters placed on them.

    Args:
        gpus: processes by GPU.
        jobs: the states of jobs.
    """

    def __init__(self, gpus: GpuTable, jobs: JobStates) -> None:
        self._gpus, self._jobs = gpus, jobs
        self.shared: dict[int, dict[int, int]] = {}
        """By app: GPUs of its own leases that are started, each with its lease."""
        self.placed: dict[int, tuple[int, ...]] = {}
        """By job, the GPUs of its app's own leases that the app master assigned to it."""
        self.dirty: set[int] = set()
        """Apps whose leases or jobs changed since they were divided."""
        self.unreported: set[int] = set()
        """Apps whose division changed since it was last reported to the arbiter."""

    def started(self, app: int, lease: int, gpus: tuple[int, ...]) -> None:
        """Record that an app holds GPUs of its own lease from now on."""
        self.shared.setdefault(app, {}).update((gpu, lease) for gpu in gpus)
        self.dirty.add(app)

    def lose(self, app: int, lease: int, gpus: list[int], jobs: list[int], now: Seconds) -> None:
        """Remove GPUs from an app's own lease; jobs on them lose these GPUs."""
        mine = self.shared.get(app, {})
        for gpu in gpus:
            if mine.get(gpu) == lease:
                del mine[gpu]
        self.dirty.add(app)
        for job in jobs:
            self.displace(app, job, now)

    def displace(self, app: int, job: int, now: Seconds) -> None:
        """Remove a job from the GPUs of its app's own leases, since it lost some of them."""
        self.dirty.add(app)
        if job in self.placed:
            self.take_off(app, job, now)
            self._jobs.left_gpus(job, now)

    def take_off(self, app: int, job: int, now: Seconds) -> tuple[int, ...]:
        """Take a job off the GPUs that its app master assigned to it; returns these GPUs to the app."""
        gpus = self.placed.pop(job, ())
        if gpus:
            self._gpus.assign(NO_HOLDER, [gpu for gpu in gpus if self._gpus.job_on[gpu] == job], now)
            self.unreported.add(app)
        return gpus

    def forget(self, app: int) -> None:
        """Drop an app that has ended."""
        self.dirty.discard(app)
        self.unreported.discard(app)
        self.shared.pop(app, None)
