"""The interface through which simulated app masters query their app, its jobs' progress, and reported values."""

from typing import Protocol

from eunomia.contract.events import AppArrived, JobAdded
from eunomia.units import AppId, JobId


class Desk(Protocol):
    """The answers to app masters' queries, by row of the workload; ``reported`` methods include misreports."""

    def app_id(self, app: int) -> AppId:
        """Return the app's id."""
        ...

    def job_id(self, job: int) -> JobId:
        """Return the job's id."""
        ...

    def row(self, job: JobId) -> int:
        """Return the job's row."""
        ...

    def arrived(self, app: int) -> AppArrived:
        """Return the event that registers an app."""
        ...

    def added(self, job: int) -> JobAdded:
        """Return the event that adds a job."""
        ...

    def has_arrived(self, job: int) -> bool:
        """Return whether a job has arrived."""
        ...

    def gang(self, job: int) -> tuple[int, int]:
        """Return the least and most GPUs of a job."""
        ...

    def iterations_done(self, job: int) -> float:
        """Return the iterations that a job has done so far, including those since its last start."""
        ...

    def iterations(self, job: int) -> float:
        """Return the job's total work in iterations."""
        ...

    def running_gpus(self, job: int) -> int:
        """Return the number of GPUs on which a job runs now; 0: the job is stopped."""
        ...

    def useful_gpus(self, job: int, most: int) -> int:
        """Return how many of up to ``most`` GPUs a job would benefit from; a stopped job from all."""
        ...

    def reported_left(self, job: int) -> float:
        """Return the iterations that a job has left, as reported."""
        ...

    def reported_serial(self, job: int) -> float:
        """Return the serial seconds of an iteration, as reported."""
        ...

    def reported_gpu_seconds(self, job: int) -> float:
        """Return the job's total work in serial GPU-seconds, as reported."""
        ...

    def reported_slowdown(self, job: int) -> tuple[float, float, float, float] | None:
        """Return the slowdown S by locality, as reported; None: it is unknown."""
        ...

    def aim(self, job: int, iterations: float) -> None:
        """Let a job run up to this number of iterations in total, at most its total work."""
        ...
