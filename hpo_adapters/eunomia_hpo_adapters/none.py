"""No early stopping: a single job, or a random or grid search in which every trial runs to its end."""

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar, Self

from pydantic import BaseModel, ConfigDict

from eunomia_appmaster.tuner import Action, JobInfo, JsonState, Search, Trial, TrialRun, check_grid
from eunomia_hpo_adapters.scoreboard import Scoreboard
from eunomia_hpo_adapters.trials import Trials


class NoTunerOptions(BaseModel):
    """Options of ``none``, which has none."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class NoTuner:
    """A tuner that runs every trial to its end, in order of number."""

    options_type: ClassVar[type] = NoTunerOptions
    needs_metric: ClassVar[bool] = False
    needs_max_iterations: ClassVar[bool] = False
    takes_more_trials: ClassVar[bool] = True
    listens: ClassVar[bool] = False
    """Whether metrics between pauses have an effect; if not, a simulator need not compute them."""
    falls_with_work: ClassVar[bool] = True
    """Whether, between decisions, the work left in each phase falls only by the work that trials do."""

    def __init__(self, search: Search) -> None:
        self._search = search
        self._trials = Trials(search)
        self._scores = Scoreboard(search)
        self._over: set[int] = set()

    @classmethod
    def create(cls, search: Search, options: NoTunerOptions) -> Self:
        """See ``Tuner``."""
        check_grid(search)
        return cls(search)

    def trials(self) -> Sequence[Trial]:
        """See ``Tuner``."""
        return self._trials.made

    def on_result(self, trial: int, iteration: int, metric: float) -> Action:
        """See ``Tuner``."""
        self._scores.note(trial, metric)
        return Action.CONTINUE

    def on_paused(self, trial: int, iteration: int, metric: float | None) -> None:
        """See ``Tuner``; this tuner does not pause trials."""
        self._scores.note(trial, metric)

    def on_finished(self, trial: int, iteration: int, metric: float | None) -> None:
        """See ``Tuner``."""
        self._scores.note(trial, metric)
        self._end(trial, self._scores.last(trial))

    def on_failed(self, trial: int) -> None:
        """See ``Tuner``."""
        self._end(trial, None)

    def _end(self, trial: int, metric: float | None) -> None:
        """End a trial, and pass its metric to a sampler that learns."""
        self._over.add(trial)
        self._trials.tell(trial, metric)

    def runs(self) -> Sequence[TrialRun]:
        """See ``Tuner``."""
        search = self._search
        return [TrialRun(trial=number, least=search.least, most=search.most) for number in self._alive()]

    def ended(self) -> Sequence[int]:
        """See ``Tuner``."""
        return sorted(self._over)

    def is_done(self) -> bool:
        """See ``Tuner``."""
        return len(self._over) == self._search.trials

    def rung(self, trial: int) -> int | None:
        """See ``Tuner``."""
        return None

    def best(self) -> int | None:
        """See ``Tuner``."""
        return self._scores.best()

    def num_phases(self) -> int:
        """See ``Tuner``; all trials run concurrently, followed by trials that are not suggested yet."""
        return 0 if self.is_done() else 1 + len(self._trials.waves)

    def jobs_in_phase(self, phase: int, done: Mapping[int, float]) -> Sequence[JobInfo]:
        """See ``Tuner``."""
        return (
            self.jobs_remaining(done) if phase == 0 else self._trials.to_come(self._whole, self._search.most)[phase - 1]
        )

    def jobs_remaining(self, done: Mapping[int, float]) -> Sequence[JobInfo]:
        """See ``Tuner``; iterations are NaN if the app file has no ``max_iterations``."""
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
        """See ``Tuner``."""
        return {"over": sorted(self._over), "scores": self._scores.state(), "trials": self._trials.state()}

    def restore(self, state: JsonState) -> None:
        """See ``Tuner``."""
        self._over = set(state["over"])
        self._scores.restore(state["scores"])
        self._trials.restore(state["trials"])

    def _alive(self) -> list[int]:
        return [trial.number for trial in self._trials.made if trial.number not in self._over]
