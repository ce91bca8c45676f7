"""What a simulated app master may ask the simulation: what its app is, what its jobs did, what it would report."""

from typing import Protocol

from eunomia.events import AppArrived, JobAdded
from eunomia.units import AppId, JobId


class Desk(Protocol):
    """Answers for rows of the workload. What is named ``reported`` holds the errors and lies of the options."""

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
        """Whether a job's arrival is past."""
        ...

    def gang(self, job: int) -> tuple[int, int]:
        """Least and most GPUs."""
        ...

    def iterations_done(self, job: int) -> float:
        """Iterations that a job has done by now, those since its last start among them."""
        ...

    def iterations(self, job: int) -> float:
        """The job's whole work."""
        ...

    def running_gpus(self, job: int) -> int:
        """GPUs on which it makes steps now; 0: it makes none."""
        ...

    def useful_gpus(self, job: int, most: int) -> int:
        """On how many of at most so many GPUs a job would go on if it were given them; one that stands: all."""
        ...

    def reported_left(self, job: int) -> float:
        """Iterations that a job is said to have left."""
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
        """Have a job run on to so many iterations from its start, at most its whole work."""
        ...
