"""The interface through which simulated app masters query their app, its jobs' progress, and reported values."""

from typing import Protocol

from eunomia.contract.events import AppArrived, JobAdded
from eunomia.units import AppId, JobId


class Desk(Protocol):
    """Answers app masters' queries, by rows of the workload; ``reported`` methods include misreports."""

    def app_id(self, app: int) -> AppId:
        """Return the id of an app."""
        ...

    def job_id(self, job: int) -> JobId:
        """Return the id of a job."""
        ...

    def row(self, job: JobId) -> int:
        """Return the workload row of a job id."""
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
        """Return how many of up to ``most`` GPUs would speed a job up; for a stopped job, ``most``."""
        ...

    def reported_left(self, job: int) -> float:
        """Return the iterations that a job has left, as reported."""
        ...

    def reported_serial(self, job: int) -> float:
        """Return the serial seconds (GPU-seconds) of a job's iteration, as reported."""
        ...

    def reported_gpu_seconds(self, job: int) -> float:
        """Return the job's total work in serial GPU-seconds, as reported."""
        ...

    def reported_slowdown(self, job: int) -> tuple[float, float, float, float] | None:
        """Return the slowdown S by locality, as reported; None: it is unknown."""
        ...

    def aim(self, job: int, iterations: float) -> None:
        """Set the iteration up to which a job runs, capped at its total work."""
        ...
