"""The running trials in order of priority, updated incrementally, since a report changes few of them."""

from bisect import bisect_left, insort

from eunomia_appmaster.tuner import TrialRun


class RunOrder:
    """Runs in order of priority: trials at higher rungs first, then by number."""

    def __init__(self) -> None:
        self._order: list[tuple[int, int]] = []
        """The negative rung and the trial of each run, sorted."""
        self._runs: dict[int, tuple[tuple[int, int], TrialRun]] = {}

    def put(self, level: int, run: TrialRun) -> None:
        """Add a run, or replace the same trial's run; ``level`` is the rung to which it runs."""
        self.drop(run.trial)
        place = (-level, run.trial)
        insort(self._order, place)
        self._runs[run.trial] = (place, run)

    def drop(self, trial: int) -> None:
        """Remove a trial's run, if there is one."""
        known = self._runs.pop(trial, None)
        if known is not None:
            del self._order[bisect_left(self._order, known[0])]

    def runs(self) -> list[TrialRun]:
        """Return all runs in order of priority."""
        return [self._runs[trial][1] for _, trial in self._order]
