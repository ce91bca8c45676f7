"""The queries of a simulated app master: its app, the progress of its jobs, and what it would report."""

from typing import Protocol

from eunomia.contract.events import AppArrived, JobAdded
from eunomia.units import AppId, JobId


class Desk(Protocol):
    """Answers for rows of the workload. Methods named ``reported`` include the errors and lies of the options."""

    def app_id(self, app: int) -> AppId:
        """The app's id."""
        ...

    def job_id(self, job: int) -> JobId:
        """The job's id."""
        ...

    def row(self, job: JobId) -> int:
        """The job's row."""
        ...

    def arrived(self, app: int) -> AppArrived:
        """The registration of an app."""
        ...

    def added(self, job: int) -> JobAdded:
        """A job as it is reported."""
        ...

    def has_arrived(self, job: int) -> bool:
        """Whether a job has arrived."""
        ...

    def gang(self, job: int) -> tuple[int, int]:
        """Least and most GPUs."""
        ...

    def iterations_done(self, job: int) -> float:
        """Iterations that a job has done by now, including those since its last start."""
        ...

    def iterations(self, job: int) -> float:
        """The job's whole work."""
        ...

    def running_gpus(self, job: int) -> int:
        """GPUs on which a job makes steps now; 0: it is stopped."""
        ...

    def useful_gpus(self, job: int, most: int) -> int:
        """How many of at most ``most`` GPUs a job would use; a stopped job uses all."""
        ...

    def reported_left(self, job: int) -> float:
        """Iterations that a job has left, as reported."""
        ...

    def reported_serial(self, job: int) -> float:
        """Serial seconds of an iteration, as reported."""
        ...

    def reported_gpu_seconds(self, job: int) -> float:
        """The job's whole work in serial GPU-seconds, as reported."""
        ...

    def reported_slowdown(self, job: int) -> tuple[float, float, float, float] | None:
        """S by locality, where it is known."""
        ...

    def aim(self, job: int, iterations: float) -> None:
        """Lets a job run to this many iterations from its start, at most its whole work."""
        ...
