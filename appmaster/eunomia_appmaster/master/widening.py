"""Decides whether more GPUs speed a running job up by more than the restart costs."""

from collections.abc import Iterable
from statistics import median

from eunomia.model.cluster import Cluster
from eunomia_appmaster.master.division import NO_NODES, Nodes, Wish, extra_slots, widening
from eunomia_appmaster.master.jobs import Job

RESTART_SECONDS = 2.0
"""Assumed seconds that widening a running job costs, until starts are measured."""
SAVE_SECONDS = 0.5
"""The part of that cost for saving and leaving."""
STARTS_KEPT = 20


class Widening:
    """Measures what a restart costs: the seconds from the last starts to their first steps."""

    def __init__(self) -> None:
        self._starts: list[float] = []

    def note_start(self, seconds: float) -> None:
        """Record the seconds from a gang's start to its first step."""
        self._starts = [*self._starts[-STARTS_KEPT:], seconds]

    @property
    def restart_seconds(self) -> float:
        """The seconds that it costs to stop a gang and start it on more slots."""
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
        """Return the free GPUs that a running job should gain; none: that does not pay, or is not known to.

        Args:
            job: with a gang.
            wish: of the job, with the GPUs of its gang.
            goal: the iteration at which it pauses or ends; None: not known.
            free: GPUs that no other job of the app can use.
            cluster: where the GPUs are.
            nodes: see ``division.Nodes``.
        """
        seconds = _seconds_left(job, goal)
        if seconds is None:
            return ()
        return widening(wish, free, cluster, nodes, seconds_left=seconds, restart_seconds=self.restart_seconds)

    def useful(self, job: Job, most: int, goal: int | None) -> int:
        """Return how many GPUs more are of use to a running job where they are as near as those it has.

        Args:
            job: with a gang.
            most: the most GPUs of its gang.
            goal: the iteration at which it pauses or ends; None: not known.
        """
        seconds, size = _seconds_left(job, goal), len(job.gang.gpus) if job.gang is not None else 0
        if seconds is None:
            return 0
        return extra_slots(size=size, most=most, seconds_left=seconds, restart_seconds=self.restart_seconds)


def _seconds_left(job: Job, goal: int | None) -> float | None:
    """Return the seconds until a running job reaches its goal as it runs now; None: not known."""
    gang = job.gang
    if gang is None or not gang.running or job.seconds_per_step is None or goal is None:
        return None
    return max(goal - job.step, 0) * job.seconds_per_step
