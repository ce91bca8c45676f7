"""Decides whether more slots speed a running job up by more than the restart costs."""

from statistics import median

from eunomia_appmaster.master.division import extra_slots
from eunomia_appmaster.master.jobs import Job
from eunomia_appmaster.tuner import Run

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

    def extra(self, job: Job, run: Run, goal: int | None, free: int) -> int:
        """Return by how many of ``free`` slots a running job should be widened; 0: it does not pay, or is not known.

        Args:
            job: with a gang.
            run: the tuner's request for it.
            goal: the iteration at which it pauses or ends; None: not known.
            free: slots that no other job of the app can use.
        """
        gang = job.gang
        if gang is None or not gang.running or job.seconds_per_step is None or goal is None:
            return 0
        return extra_slots(
            size=len(gang.gpus),
            most=run.most,
            free=free,
            seconds_left=max(goal - job.step, 0) * job.seconds_per_step,
            restart_seconds=self.restart_seconds,
        )
