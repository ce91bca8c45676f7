"""The offsets from the arbiter's clock of the clocks of nodes, which time-stamp the jobs' logs."""

from eunomia_appmaster.master.gangs import Surroundings
from eunomia_appmaster.master.jobs import Job
from eunomia_appmaster.master.logs import JobLogs
from eunomia_appmaster.profiler.rates import STEP_SECONDS_TAG, is_too_far_off


class LogClocks:
    """Stores the clock offset of each gang's logs, and adds a notice if it is too large to measure a rate.

    Args:
        around: the jobs' shared surroundings, with the offsets of the nodes' clocks.
    """

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._said: set[tuple[int, int]] = set()
        """Jobs and incarnations whose missing rate was already reported to users."""

    def note(self, job: Job, logs: JobLogs) -> None:
        """Store the clock offset of the node of a gang's rank 0, which logs; offsets of earlier gangs are kept."""
        if job.gang is None or not job.gang.nodes:
            return
        node = job.gang.nodes[0]
        ahead = self._around.runtimes.clock_ahead(node)
        if ahead != job.clocks.get(job.incarnation, 0.0):
            known = {number: each for number, each in job.clocks.items() if number != job.incarnation}
            job.clocks = known | ({job.incarnation: ahead} if ahead else {})
        key = (job.number, job.incarnation)
        if is_too_far_off(ahead) and key not in self._said and logs.has_time_stamps_alone(job.incarnation):
            self._said.add(key)
            far = f"{abs(ahead):.0f} s {'ahead of' if ahead > 0.0 else 'behind'}"
            self._around.notices.add(
                f"{self._around.app}/{job.number}: its speed is not measured: the clock of {node} is {far} the "
                f"arbiter's, and its logs have no step times ({STEP_SECONDS_TAG})"
            )

    def since(self, job: Job, changed_at: float) -> float:
        """Return the Unix time by the arbiter's clock since which a job's samples count.

        Args:
            job: the job, with the time of its last announced batch size.
            changed_at: when its CPUs or memory changed, by this process's clock; -inf: never.
        """
        changed_at -= self._around.runtimes.clock_ahead(self._around.runtimes.own_node)
        return changed_at if job.adapted_at is None else max(changed_at, job.adapted_at)
