"""The queries of simulated app masters: their app, the progress of its jobs, and reported values."""

from typing import Protocol

from eunomia.contract.events import AppArrived, JobAdded
from eunomia.units import AppId, JobId


class Desk(Protocol):
    """Answers app masters by rows of the workload. ``reported`` methods include the errors and lies of the options."""

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
        """Return the event that reports a job."""
        ...

    def has_arrived(self, job: int) -> bool:
        """Return whether a job has arrived."""
        ...

    def gang(self, job: int) -> tuple[int, int]:
        """Return the least and most GPUs of a job."""
        ...

    def iterations_done(self, job: int) -> float:
        """Return the iterations that a job has done by now, including those since its last start."""
        ...

    def iterations(self, job: int) -> float:
        """Return the job's whole work in iterations."""
        ...

    def running_gpus(self, job: int) -> int:
        """Return the number of GPUs on which a job makes steps now; 0: the job is stopped."""
        ...

    def useful_gpus(self, job: int, most: int) -> int:
        """Return how many of at most ``most`` GPUs a job would use; a stopped job uses all."""
        ...

    def reported_left(self, job: int) -> float:
        """Return the iterations that a job has left, as reported."""
        ...

    def reported_serial(self, job: int) -> float:
        """Return the serial seconds of an iteration, as reported."""
        ...

    def reported_gpu_seconds(self, job: int) -> float:
        """Return the job's whole work in serial GPU-seconds, as reported."""
        ...

    def reported_slowdown(self, job: int) -> tuple[float, float, float, float] | None:
        """Return S by locality, as reported; None: not known."""
        ...

    def aim(self, job: int, iterations: float) -> None:
        """Lets a job run to this many iterations from its start, at most its whole work."""
        ...
