"""Answers the queries of simulated app masters (``desk.Desk``)."""

from eunomia.contract.events import AppArrived, JobAdded
from eunomia.units import AppId, JobId
from eunomia_appmaster.master.division import extra_slots
from eunomia_testbed.simulator.simulation_state import SimulationState


class SimulatedDesk:
    """Answers queries from the true progress of jobs and from the reported values of the run.

    Args:
        sim: the state of the simulation.
    """

    def __init__(self, sim: SimulationState) -> None:
        self._sim = sim
        costs = sim.options.costs
        self.restart_seconds = costs.checkpoint + costs.start + costs.restore
        """Seconds that it takes to restart a job."""

    def app_id(self, app: int) -> AppId:
        """Return the id of an app."""
        return self._sim.rows.app_ids[app]

    def job_id(self, job: int) -> JobId:
        """Return the id of a job."""
        return self._sim.rows.job_ids[job]

    def row(self, job: JobId) -> int:
        """Return the workload row of a job id."""
        return self._sim.rows.jobs[job]

    def arrived(self, app: int) -> AppArrived:
        """Return the event that registers an app."""
        return self._sim.reporter.apps.arrived(app)

    def added(self, job: int) -> JobAdded:
        """Return the event that adds a job."""
        return self._sim.reporter.jobs.added(job)

    def has_arrived(self, job: int) -> bool:
        """Return whether a job has arrived."""
        return self._sim.has_arrived(job)

    def gang(self, job: int) -> tuple[int, int]:
        """Return the least and most GPUs of a job."""
        return self._sim.reporter.jobs.gang(job)

    def iterations_done(self, job: int) -> float:
        """Return the iterations that a job has done so far, including those since its last start."""
        return self._sim.work.done_at(job, self._sim.now)

    def iterations(self, job: int) -> float:
        """Return the job's total work in iterations."""
        return self._sim.work.total[job]

    def running_gpus(self, job: int) -> int:
        """Return the number of GPUs on which a job runs now; 0: the job is stopped."""
        return len(self._sim.work.on[job])

    def useful_gpus(self, job: int, most: int) -> int:
        """Return ``Desk.useful_gpus``; if a first extra GPU is useless, so are more: the app would release it."""
        size = len(self._sim.work.on[job])
        if not size:
            return most
        if size >= most:
            return size
        left, restart = self.seconds_left(job), self.restart_seconds
        one, whole = (
            extra_slots(size=size, most=sizes, seconds_left=left, restart_seconds=restart) for sizes in (size + 1, most)
        )
        return size + (whole if one else 0)

    def seconds_left(self, job: int) -> float:
        """Return the seconds until a running job reaches its goal at its current speed."""
        work = self._sim.work
        return (work.goal[job] - work.done_at(job, self._sim.now)) * work.pace[job]

    def reported_left(self, job: int) -> float:
        """Return the iterations that a job has left, as reported."""
        return self._sim.reporter.left(job, self._sim.now)

    def reported_serial(self, job: int) -> float:
        """Return the serial seconds (GPU-seconds) of a job's iteration, as reported."""
        return self._sim.reporter.jobs.serial(job)

    def reported_gpu_seconds(self, job: int) -> float:
        """Return the job's total work in serial GPU-seconds, as reported."""
        return self._sim.reporter.work_of(job)

    def reported_slowdown(self, job: int) -> tuple[float, float, float, float] | None:
        """Return the slowdown S by locality, as reported; None: it is unknown."""
        return self._sim.reporter.slowdown(job)

    def aim(self, job: int, iterations: float) -> None:
        """Set the iteration up to which a job runs, capped at its total work."""
        self._sim.work.aim(job, iterations, self._sim.now)
