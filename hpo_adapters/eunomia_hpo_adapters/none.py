"""No early stopping: a random or grid search whose trials all run to their end, and the single job."""

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar, Self

from pydantic import BaseModel, ConfigDict

from eunomia_appmaster.tuner import Action, JobInfo, JsonState, Run, Search, Trial, check_grid
from eunomia_hpo_adapters.scoreboard import Scoreboard
from eunomia_hpo_adapters.trials import Trials


class NoTunerOptions(BaseModel):
    """``none`` has no options of its own."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class NoTuner:
    """Runs every trial to its end, in order of number."""

    options_type: ClassVar[type] = NoTunerOptions
    needs_metric: ClassVar[bool] = False
    needs_max_iterations: ClassVar[bool] = False
    listens: ClassVar[bool] = False
    """Points between pauses change nothing; a simulator need not make them."""

    def __init__(self, search: Search) -> None:
        self._search = search
        self._trials = Trials(search)
        self._scores = Scoreboard(search)
        self._over: set[int] = set()

    @classmethod
    def create(cls, search: Search, options: NoTunerOptions) -> Self:
        """See the port."""
        check_grid(search)
        return cls(search)

    def trials(self) -> Sequence[Trial]:
        """See the port."""
        return self._trials.made

    def on_result(self, trial: int, iteration: int, metric: float) -> Action:
        """See the port."""
        self._scores.note(trial, metric)
        return Action.CONTINUE

    def on_paused(self, trial: int, iteration: int, metric: float | None) -> None:
        """See the port; nothing here pauses by itself."""
        self._scores.note(trial, metric)

    def on_finished(self, trial: int, iteration: int, metric: float | None) -> None:
        """See the port."""
        self._scores.note(trial, metric)
        self._end(trial, self._scores.last(trial))

    def on_failed(self, trial: int) -> None:
        """See the port."""
        self._end(trial, None)

    def _end(self, trial: int, metric: float | None) -> None:
        """Let a trial be over; a sampler that learns hears of its metric."""
        self._over.add(trial)
        self._trials.tell(trial, metric)

    def runs(self) -> Sequence[Run]:
        """See the port."""
        search = self._search
        return [Run(trial=number, least=search.least, most=search.most) for number in self._alive()]

    def ended(self) -> Sequence[int]:
        """See the port."""
        return sorted(self._over)

    def is_done(self) -> bool:
        """See the port."""
        return len(self._over) == self._search.trials

    def rung(self, trial: int) -> int | None:
        """See the port."""
        return None

    def best(self) -> int | None:
        """See the port."""
        return self._scores.best()

    def num_phases(self) -> int:
        """See the port: all trials run side by side, those that are still to be suggested after them."""
        return 0 if self.is_done() else 1 + len(self._trials.waves)

    def jobs_in_phase(self, phase: int, done: Mapping[int, float]) -> Sequence[JobInfo]:
        """See the port."""
        return (
            self.jobs_remaining(done) if phase == 0 else self._trials.to_come(self._whole, self._search.most)[phase - 1]
        )

    def jobs_remaining(self, done: Mapping[int, float]) -> Sequence[JobInfo]:
        """See the port; NaN iterations where the app file names no ``max_iterations``."""
        search, whole = self._search, self._whole
        return [
            JobInfo(
                trial=number,
                iterations_left=whole if math.isnan(whole) else max(whole - done.get(number, 0.0), 0.0),
                least=search.least,
                most=search.most,
            )
            for number in self._alive()
        ]

    @property
    def _whole(self) -> float:
        return math.nan if self._search.max_iterations is None else float(self._search.max_iterations)

    def state(self) -> JsonState:
        """See the port."""
        return {"over": sorted(self._over), "scores": self._scores.state(), "trials": self._trials.state()}

    def restore(self, state: JsonState) -> None:
        """See the port."""
        self._over = set(state["over"])
        self._scores.restore(state["scores"])
        self._trials.restore(state["trials"])

    def _alive(self) -> list[int]:
        return [trial.number for trial in self._trials.made if trial.number not in self._over]
