"""Leases that apps hold themselves; their app masters divide the GPUs among jobs."""

from eunomia.units import Seconds
from eunomia_testbed.simulator.executing.gpu_table import NO_HOLDER, GpuTable
from eunomia_testbed.simulator.progress.states import JobStates


class AppLeases:
    """The GPUs of leases that apps hold themselves, and the jobs that app masters placed on them.

    Args:
        gpus: the processes on each GPU.
        jobs: the states of jobs.
    """

    def __init__(self, gpus: GpuTable, jobs: JobStates) -> None:
        self._gpus, self._jobs = gpus, jobs
        self.shared: dict[int, dict[int, int]] = {}
        """The lease of each GPU that an app holds, by app row and GPU."""
        self.placed: dict[int, tuple[int, ...]] = {}
        """The GPUs that the app master assigned to each job, by job row."""
        self.dirty: set[int] = set()
        """Apps whose leases or jobs have changed since the last division."""
        self.unreported: set[int] = set()
        """Apps whose division has changed since it was last reported to the arbiter."""

    def started(self, app: int, lease: int, gpus: tuple[int, ...]) -> None:
        """Record that an app holds the GPUs of a lease from now on."""
        self.shared.setdefault(app, {}).update((gpu, lease) for gpu in gpus)
        self.dirty.add(app)

    def lose(self, app: int, lease: int, gpus: list[int], jobs: list[int], now: Seconds) -> None:
        """Remove GPUs from an app's lease; the jobs on them lose these GPUs."""
        mine = self.shared.get(app, {})
        for gpu in gpus:
            if mine.get(gpu) == lease:
                del mine[gpu]
        self.dirty.add(app)
        for job in jobs:
            self.displace(app, job, now)

    def displace(self, app: int, job: int, now: Seconds) -> None:
        """Remove a job that lost some of its GPUs from all GPUs of its app's leases."""
        self.dirty.add(app)
        if job in self.placed:
            self.take_off(app, job, now)
            self._jobs.left_gpus(job, now)

    def take_off(self, app: int, job: int, now: Seconds) -> tuple[int, ...]:
        """Remove a job from the GPUs that its app master assigned to it, and return these GPUs to the app."""
        gpus = self.placed.pop(job, ())
        if gpus:
            self._gpus.assign(NO_HOLDER, [gpu for gpu in gpus if self._gpus.job_on[gpu] == job], now)
            self.unreported.add(app)
        return gpus

    def forget(self, app: int) -> None:
        """Delete the entries of an app that has ended."""
        self.dirty.discard(app)
        self.unreported.discard(app)
        self.shared.pop(app, None)
