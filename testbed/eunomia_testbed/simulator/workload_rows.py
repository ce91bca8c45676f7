"""The rows of a workload's jobs and apps: their ids, the app of each job, and the arrival of each job."""

from eunomia.units import AppId, JobId
from eunomia_testbed.workload import Workload


class WorkloadRows:
    """Columns of a workload as plain lists: reading one costs less than reading a numpy scalar.

    Args:
        workload: the workload.
    """

    def __init__(self, workload: Workload) -> None:
        columns = workload.jobs
        self.job_ids: list[JobId] = list(map(JobId, columns.id))
        self.app_ids: list[AppId] = list(map(AppId, workload.apps.id))
        self.jobs: dict[str, int] = {name: row for row, name in enumerate(columns.id)}
        """The row of each job, by id."""
        self.apps: dict[str, int] = {name: row for row, name in enumerate(workload.apps.id)}
        """The row of each app, by id."""
        self.app_of: list[int] = columns.app.tolist()
        """The row of each job's app."""
        self.arrival: list[float] = columns.arrival_seconds.tolist()
        """Time of arrival of each job, in seconds."""

    def app_id_of(self, job: JobId) -> AppId:
        """Return the app of a job."""
        return self.app_ids[self.app_of[self.jobs[job]]]
