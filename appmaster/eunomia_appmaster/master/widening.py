"""Decides whether more GPUs would speed up a running job by more than the cost of a restart."""

from collections.abc import Iterable
from statistics import median

from eunomia.model.cluster import Cluster
from eunomia_appmaster.master.division import NO_NODES, Nodes, Wish, extra_slots, widening
from eunomia_appmaster.master.jobs import Job

RESTART_SECONDS = 2.0
"""Assumed cost of widening a running job in seconds, before restarts are measured."""
SAVE_SECONDS = 0.5
"""The part of that cost for saving and stopping, in seconds."""
STARTS_KEPT = 20


class Widening:
    """Measures the seconds that widening a job costs, from the last starts or live changes, and weighs the gain."""

    def __init__(self) -> None:
        self._starts: list[float] = []
        self._changes: list[float] = []

    def note_start(self, seconds: float) -> None:
        """Record the seconds from a gang's start to its first step."""
        self._starts = [*self._starts[-STARTS_KEPT:], seconds]

    def note_change(self, seconds: float) -> None:
        """Record the seconds that a live change took; further changes are then assumed to be live."""
        self._changes = [*self._changes[-STARTS_KEPT:], seconds]

    @property
    def restart_seconds(self) -> float:
        """The cost in seconds of stopping a gang and starting it on more slots, or of changing it live."""
        if self._changes:
            return median(self._changes)
        return SAVE_SECONDS + median(self._starts) if self._starts else RESTART_SECONDS

    def extra(
        self,
        job: Job,
        wish: Wish,
        goal: int | None,
        free: Iterable[int],
        cluster: Cluster,
        nodes: Nodes = NO_NODES,
    ) -> tuple[int, ...]:
        """Return the free GPUs by which to widen a running job; empty: it does not pay, or this is not known.

        Args:
            job: a job with a gang.
            wish: the job's wish, with the GPUs of its gang.
            goal: the iteration at which the job pauses or ends; None: not known.
            free: GPUs that no other job of the app can use.
            cluster: the cluster, with the locations of the GPUs.
            nodes: see ``division.Nodes``.
        """
        seconds = _seconds_left(job, goal)
        if seconds is None:
            return ()
        return widening(wish, free, cluster, nodes, seconds_left=seconds, restart_seconds=self.restart_seconds)

    def useful(self, job: Job, most: int, goal: int | None) -> int:
        """Return how many more GPUs would be useful to a running job, if they were as near as its present ones.

        Args:
            job: a job with a gang.
            most: the most GPUs of its gang.
            goal: the iteration at which the job pauses or ends; None: not known.
        """
        seconds, size = _seconds_left(job, goal), len(job.gang.gpus) if job.gang is not None else 0
        if seconds is None:
            return 0
        return extra_slots(size=size, most=most, seconds_left=seconds, restart_seconds=self.restart_seconds)


def _seconds_left(job: Job, goal: int | None) -> float | None:
    """Return the seconds until a running job reaches its goal at its present speed; None: not known."""
    gang = job.gang
    if gang is None or not gang.running or job.seconds_per_step is None or goal is None:
        return None
    return max(goal - job.step, 0) * job.seconds_per_step
