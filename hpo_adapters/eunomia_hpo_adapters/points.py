"""The metrics that trials have reported, thinned to a limited number of points for each."""

import math
import statistics
from collections.abc import Sequence

from eunomia_appmaster.tuner import JsonState
from eunomia_hpo_adapters.curves import Point

MOST_POINTS = 100
"""Largest number of points kept per trial; beyond it, every second one is dropped, but never the first or the last."""
RECENT = 3
"""Number of points whose median is a trial's level, so that one lucky evaluation does not determine it."""


class Points:
    """The points of each trial; lower is better."""

    def __init__(self) -> None:
        self._of: dict[int, list[Point]] = {}

    def note(self, trial: int, point: Point) -> None:
        """Store a point, in place of points at the same or later iterations, which a resumed script repeats."""
        kept = self._of.setdefault(trial, [])
        while kept and kept[-1].iteration >= point.iteration:
            kept.pop()
        kept.append(point)
        if len(kept) > MOST_POINTS:
            self._of[trial] = [*kept[:-1:2], kept[-1]]

    def of(self, trial: int) -> Sequence[Point]:
        """Return the points of a trial, in order."""
        return self._of.get(trial, ())

    def trials(self) -> Sequence[int]:
        """Return the trials that have reported a metric."""
        return sorted(self._of)

    def count(self, trial: int) -> int:
        """Return the number of a trial's finite points."""
        return sum(math.isfinite(point.value) for point in self.of(trial))

    def level(self, trial: int) -> float:
        """Return a trial's level, the worse of its last value and the median of the last three; inf if not finite.

        Earlier, better values do not count: a trial is ranked by its last metric.
        """
        values = [point.value for point in self.of(trial)[-RECENT:]]
        if not values or not math.isfinite(values[-1]):
            return math.inf
        return max(values[-1], statistics.median_high([value for value in values if math.isfinite(value)]))

    def spread(self) -> float:
        """Return the range of all finite values in the search; 0 if there are none."""
        values = [point.value for kept in self._of.values() for point in kept if math.isfinite(point.value)]
        return max(values) - min(values) if values else 0.0

    def is_lost(self, trial: int, points: int) -> bool:
        """Return whether none of a trial's last ``points`` points is finite."""
        last = self.of(trial)[-points:]
        return len(last) == points and not any(math.isfinite(point.value) for point in last)

    def state(self) -> JsonState:
        """Return the points by trial; null represents a metric that was not finite."""
        return {
            str(trial): [[one.iteration, one.value if math.isfinite(one.value) else None] for one in kept]
            for trial, kept in self._of.items()
        }

    def restore(self, state: JsonState) -> None:
        """Continue from ``state``."""
        self._of = {
            int(trial): [Point(at, math.nan if metric is None else metric) for at, metric in kept]
            for trial, kept in state.items()
        }
