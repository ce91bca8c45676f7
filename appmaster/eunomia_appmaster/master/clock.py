"""The app master's clock: the Unix time at the start of the process, advanced by the monotonic clock."""

from collections.abc import Iterable

from eunomia_appmaster.master.job_lives import LONGEST_RETRY_SECONDS
from eunomia_appmaster.master.jobs import Job
from eunomia_appmaster.node.system import MACHINE, System


class SteadyClock:
    """A clock of Unix seconds that advances evenly, even if the machine's time is set."""

    def __init__(self, system: System = MACHINE) -> None:
        self._system = system
        self._offset = system.unix_time() - system.monotonic()

    def now(self) -> float:
        """Return the time in Unix seconds."""
        return self._system.monotonic() + self._offset


def forget_future(jobs: Iterable[Job], now: float) -> None:
    """Cap an earlier attempt's time stamps: starts of gangs at ``now``, retries at the longest pause after ``now``."""
    for job in jobs:
        job.retry_at = min(job.retry_at, now + LONGEST_RETRY_SECONDS)
        if job.gang is not None:
            job.gang.began_at = min(job.gang.began_at, now)
