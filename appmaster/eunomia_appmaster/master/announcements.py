"""Converts a script's announcements of batch sizes into adaptations of its job."""

from collections.abc import Iterator

import structlog

from eunomia.model.adaptations import MOST_BATCH_SIZE, is_batch_size
from eunomia.units import JobId
from eunomia_appmaster.master.jobs import Job
from eunomia_appmaster.master.outbox import AdaptationReport
from eunomia_appmaster.runtimes.runtime import ContainerStatus

log = structlog.get_logger()


class Announcements:
    """Reads each announcement of a job's workers once.

    A restarted app master reads those of a running worker again; the arbiter ignores adaptations that it knows.
    """

    def __init__(self) -> None:
        self._heard: dict[str, int] = {}
        """The number of a container's last announcement that was read, by container id."""

    def hear(
        self, job: Job, name: JobId, status: ContainerStatus, *, ahead: float = 0.0
    ) -> Iterator[tuple[int, AdaptationReport]]:
        """Yield new adaptations with their numbers, in order, and store the last batch size with the job.

        Args:
            job: the worker's job; its last batch size is set.
            name: id of the job.
            status: the status of the worker's container.
            ahead: seconds by which the clock of the worker's node is ahead of the arbiter's.
        """
        for one in status.announcements:
            if one.number <= self._heard.get(status.container_id, 0):
                continue
            self._heard[status.container_id] = one.number
            if "batch_size" not in one.regime:
                continue
            batch_size = one.regime["batch_size"]
            if not is_batch_size(batch_size):
                rule = f"batch_size must be a number above 0, at most {MOST_BATCH_SIZE:g}"
                log.warning("announcement.ignored", job=name, rule=rule, value=str(batch_size)[:100])
                continue
            job.batch_size, job.adapted_at = float(batch_size), one.at - ahead
            done = None if one.step is None else float(one.step)
            yield (
                one.number,
                AdaptationReport(job=name, batch_size=job.batch_size, iterations_done=done, at=job.adapted_at),
            )
