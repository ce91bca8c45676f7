"""The last metric of each trial, and the best trial."""

import math

from eunomia_appmaster.tuner import JsonState, Search


class Scoreboard:
    """The last metric of each trial; metrics that are not finite rank last, and ties go to the lower number."""

    def __init__(self, search: Search) -> None:
        self._search = search
        self._last: dict[int, float] = {}

    def note(self, trial: int, metric: float | None) -> None:
        """Store a trial's last metric; None has no effect."""
        if metric is not None:
            self._last[trial] = metric

    def ranking(self, trials: "list[int]") -> list[int]:
        """Return trials sorted, best first; those without a metric come last."""
        return sorted(trials, key=lambda trial: (self._search.better_first(self._last.get(trial, math.nan)), trial))

    def last(self, trial: int) -> float:
        """Return a trial's last metric; NaN: it has none."""
        return self._last.get(trial, math.nan)

    def is_finite(self, trial: int) -> bool:
        """Return whether the trial's last metric is a finite number."""
        return math.isfinite(self._last.get(trial, math.nan))

    def best(self) -> int | None:
        """Return the best trial; None: no finite metric was reported."""
        finite = [trial for trial in self._last if self.is_finite(trial)]
        return self.ranking(finite)[0] if finite else None

    def state(self) -> JsonState:
        """Return the last metrics by trial; null represents a metric that is not finite."""
        return {str(trial): metric if math.isfinite(metric) else None for trial, metric in self._last.items()}

    def restore(self, state: JsonState) -> None:
        """Continue from ``state``."""
        self._last = {int(trial): math.nan if metric is None else metric for trial, metric in state.items()}
