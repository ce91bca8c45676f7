"""Median stopping (Google Vizier; Golovin et al. 2017, §3.1.2): stops trials worse than the median of the others.

A trial is stopped at an iteration if its best metric so far is strictly worse than the median of the other trials'
running averages, each over the metrics that the trial had reported up to the same iteration. Vizier uses only completed
trials; here, as in Ray Tune and Syne Tune, every trial that has reached the iteration counts, since trials run
concurrently.
"""

import math
from bisect import bisect_right
from statistics import median
from typing import ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from eunomia.errors import InputError
from eunomia_appmaster.tuner import Action, JsonState, Search, check_grid
from eunomia_hpo_adapters.none import NoTuner

MOST_AVERAGES = 256
"""Largest number of running averages kept per trial; beyond it, every second one is dropped, but never the last."""


class MedianStoppingOptions(BaseModel):
    """Options of median stopping."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    grace_iterations: int = Field(default=0, ge=0)
    """Number of iterations before which no trial is stopped."""
    least_trials: int = Field(default=3, ge=1)
    """Number of other trials that must have reached an iteration before a trial is judged there."""
    judged_by: Literal["best", "average"] = "best"
    """The value of a trial that is compared with the median: its best metric so far, or its own running average."""


class _Averages:
    """The reports of a trial: its running average by iteration, and its best cost."""

    def __init__(self) -> None:
        self.iterations: list[int] = []
        self.means: list[float] = []
        self.total, self.count = 0.0, 0
        self.best: float | None = None

    def add(self, iteration: int, cost: float) -> None:
        """Add a metric as a cost (lower is better), unless it is not finite or a resumed script repeats it."""
        if not math.isfinite(cost) or (self.iterations and iteration <= self.iterations[-1]):
            return
        self.total, self.count = self.total + cost, self.count + 1
        self.best = cost if self.best is None else min(self.best, cost)
        self.iterations.append(iteration)
        self.means.append(self.total / self.count)
        if len(self.iterations) > MOST_AVERAGES:
            self.iterations = [*self.iterations[:-1:2], self.iterations[-1]]
            self.means = [*self.means[:-1:2], self.means[-1]]

    def until(self, iteration: int) -> float | None:
        """Return the average up to an iteration; None: the trial has not reached it."""
        if not self.iterations or self.iterations[-1] < iteration:
            return None
        index = bisect_right(self.iterations, iteration)
        return self.means[index - 1] if index else None

    def state(self) -> JsonState:
        """Return the averages as plain values."""
        return {
            "iterations": list(self.iterations), "means": list(self.means),
            "total": self.total, "count": self.count, "best": self.best,
        }  # fmt: skip

    @classmethod
    def of(cls, state: JsonState) -> "_Averages":
        """Restore the averages from the result of ``state``."""
        averages = cls()
        for key, kept in state.items():
            setattr(averages, key, kept)
        return averages


class MedianStopping(NoTuner):
    """A tuner that stops trials that are worse than the median of the others."""

    options_type: ClassVar[type] = MedianStoppingOptions
    needs_metric: ClassVar[bool] = True
    listens: ClassVar[bool] = True

    def __init__(self, search: Search, options: MedianStoppingOptions) -> None:
        super().__init__(search)
        self._options = options
        self._averages: dict[int, _Averages] = {}

    @classmethod
    def create(cls, search: Search, options: MedianStoppingOptions) -> Self:  # type: ignore[override]
        """See ``Tuner``.

        Raises:
            InputError: there is no metric, or there are fewer than two trials.
        """
        if search.metric is None:
            raise InputError("median_stopping must know metric", value="none")
        if search.trials < 2:
            raise InputError("trials must be at least 2 for median_stopping", value=str(search.trials))
        check_grid(search)
        return cls(search, options)

    def on_result(self, trial: int, iteration: int, metric: float) -> Action:
        """See ``Tuner``; a trial at its last iteration is not stopped."""
        self._scores.note(trial, metric)
        self._averages.setdefault(trial, _Averages()).add(iteration, -metric if self._search.mode == "max" else metric)
        at_end = self._search.max_iterations is not None and iteration >= self._search.max_iterations
        if trial in self._over or at_end or iteration < self._options.grace_iterations:
            return Action.CONTINUE
        if not self._is_behind(trial, iteration):
            return Action.CONTINUE
        self._end(trial, metric)
        return Action.STOP

    def _is_behind(self, trial: int, iteration: int) -> bool:
        """Return whether a trial is worse than the median of the others; a trial without a finite metric is."""
        others = [
            mean
            for other, averages in self._averages.items()
            if other != trial and (mean := averages.until(iteration)) is not None
        ]
        if len(others) < self._options.least_trials:
            return False
        own = self._averages[trial]
        cost = own.best if self._options.judged_by == "best" else (own.means[-1] if own.means else None)
        return cost is None or cost > median(others)

    def state(self) -> JsonState:
        """See ``Tuner``."""
        averages = {str(trial): averages.state() for trial, averages in self._averages.items()}
        return super().state() | {"averages": averages}

    def restore(self, state: JsonState) -> None:
        """See ``Tuner``."""
        super().restore(state)
        self._averages = {int(trial): _Averages.of(kept) for trial, kept in state["averages"].items()}
