"""Detects jobs without progress: a reported rate is valid for at most three report intervals."""

from dataclasses import dataclass

from eunomia_appmaster.master.jobs import Job

PROGRESS_SECONDS = 1.0
"""Seconds between two reports of a worker with the helper, and between two to the arbiter; longer for slow steps."""
INTERVALS = 3
"""Number of report intervals without a report after which a job counts as stalled."""
FIRST_LOG_SECONDS = 120.0
"""Assumed report interval in seconds of a script without the helper, before its logs show one: TensorBoard's default
flush interval."""


@dataclass(slots=True)
class _Seen:
    """The last report of a job, its time, and the interval since the report before."""

    news: tuple[int, int, int, bool]
    at: float
    gap: float


class Pace:
    """Tracks when each job last showed progress: a step, a checkpoint, or a log entry."""

    def __init__(self) -> None:
        self._seen: dict[int, _Seen] = {}

    def rate(self, job: Job, rate: float, now: float) -> float:
        """Return a job's rate of progress in iterations per second: 0 if its workers have been silent for too long.

        Args:
            job: the running job.
            rate: last measured iterations per second.
            now: seconds of a monotonic clock.
        """
        news = (job.incarnation, job.step, job.signs, job.gang is not None and job.gang.running)
        seen = self._seen.get(job.number)
        if seen is None or seen.news != news:
            gap = FIRST_LOG_SECONDS if seen is None or seen.news[0] != news[0] else now - seen.at
            seen = self._seen[job.number] = _Seen(news, now, gap)
        steps = 1.0 / rate if rate > 0.0 else 0.0
        interval = max(PROGRESS_SECONDS, steps, 0.0 if job.has_helper else seen.gap)
        return rate if now - seen.at <= INTERVALS * interval else 0.0
