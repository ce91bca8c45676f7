"""Curve stopping: ends trials with unpromising learning curves early (Themis §4.3.2; Hyperdrive, Google Vizier).

All trials run concurrently. At configured milestones, a trial's learning curve is extrapolated to its end, as a
distribution of its last metric (``curves.py``). The trial is stopped if its probability of reaching the best other
trial's current metric is too small, both by all families of curves together and by several of them separately. No trial
is judged before a milestone, within the grace period, with too few points, or while too few other trials have curves.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator

from eunomia.errors import InputError
from eunomia_appmaster.tuner import Action, JobInfo, JsonState, Search, Trial, TrialRun, check_grid
from eunomia_hpo_adapters.curves import Curves, Point, Seen
from eunomia_hpo_adapters.points import Points
from eunomia_hpo_adapters.predictions import Prediction
from eunomia_hpo_adapters.scoreboard import Scoreboard
from eunomia_hpo_adapters.trials import Trials

GROWTH = 1.1
"""Factor by which the number of a trial's points grows from one forecast to the next."""

Fraction = Annotated[float, Field(gt=0.0, lt=1.0)]


class CurveStoppingOptions(BaseModel):
    """Options of curve stopping."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    milestones: tuple[Fraction, ...] = (0.25, 0.5, 0.75)
    """Fractions of max_iterations, ascending; trials are judged only at these iterations."""
    grace: int = Field(default=0, ge=0)
    """Grace period in iterations: milestones before it are skipped, as are those before the job's last drop of the
    learning rate."""
    least_points: int = Field(default=8, ge=5)
    """Number of finite points that a trial must have reported before its curve is used."""
    least_curves: int = Field(default=2, ge=2)
    """Number of trials, including the judged one, that must have curves before a trial is judged."""
    chance: float = Field(default=0.05, gt=0.0, lt=0.5)
    """A trial is stopped if its probability of coming near the best trial is below this."""
    tolerance: float = Field(default=0.005, ge=0.0, lt=1.0)
    """Largest difference from the best metric, as a fraction of it, at which a metric is near the best."""
    agree: int = Field(default=2, ge=2, le=5)
    """Number of families of curves that must each agree separately."""
    converged: float = Field(default=0.0, ge=0.0, lt=1.0)
    """A trial ends at the first milestone at which at most this fraction of its curve's total fall remains; 0:
    never."""
    optimism: float = Field(default=0.95, ge=0.5, lt=1.0)
    """Quantile of the predicted iteration of convergence at which a trial counts as converged; larger values are
    later."""

    @field_validator("milestones")
    @classmethod
    def _ascending(cls, milestones: tuple[float, ...]) -> tuple[float, ...]:
        if not milestones or list(milestones) != sorted(set(milestones)):
            raise ValueError("must be at least one, in ascending order")
        return milestones


class CurveStopping:
    """A tuner that stops trials based on extrapolated learning curves."""

    options_type: ClassVar[type] = CurveStoppingOptions
    needs_metric: ClassVar[bool] = True
    needs_max_iterations: ClassVar[bool] = True
    takes_more_trials: ClassVar[bool] = True

    def __init__(self, search: Search, options: CurveStoppingOptions, whole: int) -> None:
        self._search, self._options, self._whole = search, options, whole
        grace = max([options.grace, *search.milestones])
        self._milestones = [part * whole for part in options.milestones if part * whole >= grace]
        self._trials = Trials(search)
        self._scores = Scoreboard(search)
        self._points = Points()
        self._over: set[int] = set()
        self._judged: dict[int, int] = {}
        """Number of milestones that each trial has passed."""
        self._expected: dict[int, tuple[Sequence[Point], float]] = {}
        """A cache of the points of each trial's last forecast, and the expected iteration of its convergence."""

    @classmethod
    def create(cls, search: Search, options: CurveStoppingOptions) -> Self:
        """See ``Tuner``.

        Raises:
            InputError: there is no metric or no max_iterations, fewer than two trials, or the grace period never ends.
        """
        if search.metric is None or search.max_iterations is None:
            raise InputError("curve_stopping must know metric and max_iterations", value="none")
        if search.trials < 2:
            raise InputError("trials must be at least 2 for curve_stopping", value=str(search.trials))
        if options.grace >= search.max_iterations:
            rule = f"grace must be below max_iterations {search.max_iterations}"
            raise InputError(rule, value=str(options.grace))
        check_grid(search)
        return cls(search, options, search.max_iterations)

    # -- results

    def trials(self) -> Sequence[Trial]:
        """See ``Tuner``."""
        return self._trials.made

    def on_result(self, trial: int, iteration: int, metric: float) -> Action:
        """See ``Tuner``; a trial is judged at the first point at or after each milestone."""
        self._scores.note(trial, metric)
        self._points.note(trial, Point(iteration, self._lower(metric)))
        passed = sum(iteration >= milestone for milestone in self._milestones)
        if passed <= self._judged.get(trial, 0) or iteration >= self._whole:
            return Action.CONTINUE
        self._judged[trial] = passed
        if not self._is_hopeless(trial) and not self._has_converged(trial, iteration):
            return Action.CONTINUE
        self._end(trial, metric)
        return Action.STOP

    def on_paused(self, trial: int, iteration: int, metric: float | None) -> None:
        """See ``Tuner``; this tuner does not pause trials."""
        self._scores.note(trial, metric)

    def on_finished(self, trial: int, iteration: int, metric: float | None) -> None:
        """See ``Tuner``."""
        self._scores.note(trial, metric)
        if metric is not None:
            self._points.note(trial, Point(iteration, self._lower(metric)))
        self._end(trial, metric)

    def on_failed(self, trial: int) -> None:
        """See ``Tuner``."""
        self._end(trial, None)

    def _end(self, trial: int, metric: float | None) -> None:
        self._over.add(trial)
        self._trials.tell(trial, metric)

    def _lower(self, metric: float) -> float:
        """Return the metric as a cost: lower is better."""
        return -metric if self._search.mode == "max" else metric

    # -- judging

    def _is_hopeless(self, trial: int) -> bool:
        """Return whether a trial is unlikely to reach the current level of the best other trial."""
        options, points = self._options, self._points
        others = [other for other in points.trials() if other != trial]
        best = min((points.level(other) for other in others), default=math.inf)
        if not math.isfinite(best):
            return False
        if points.is_lost(trial, options.least_points):
            return True
        near = best + options.tolerance * abs(best)
        with_curves = sum(points.count(other) >= options.least_points for other in others)
        if with_curves < options.least_curves - 1 or points.level(trial) <= near:
            return False
        curves = self._curves(points.of(trial), Seen(best=best, spread=points.spread()))
        return curves is not None and self.is_unlikely(curves.predict(self._whole), near)

    def _curves(self, points: Sequence[Point], seen: Seen | None = None) -> Curves | None:
        """Return the curves fitted to a trial's points; None: it has too few finite points."""
        if sum(math.isfinite(point.value) for point in points) < self._options.least_points:
            return None
        return Curves.fit(points, seen=seen)

    def is_unlikely(self, end: Prediction, near: float) -> bool:
        """Return whether a trial is unlikely to end below a value, by all families and by enough of them alone."""
        alone = sum(chance < self._options.chance for chance in end.below_by_family(near).values())
        return alone >= self._options.agree and end.below(near) < self._options.chance

    def _has_converged(self, trial: int, iteration: int) -> bool:
        options = self._options
        if not options.converged:
            return False
        curves = self._curves(self._points.of(trial))
        return curves is not None and self._convergence(curves) <= iteration

    def _convergence(self, curves: Curves) -> float:
        return curves.convergence(self._whole, part=self._options.converged, probability=self._options.optimism)

    # -- runs

    def runs(self) -> Sequence[TrialRun]:
        """See ``Tuner``; all trials that have not ended, by number."""
        search = self._search
        return [TrialRun(trial=number, least=search.least, most=search.most) for number in self._alive()]

    def ended(self) -> Sequence[int]:
        """See ``Tuner``."""
        return sorted(self._over)

    def is_done(self) -> bool:
        """See ``Tuner``."""
        return len(self._over) >= self._search.trials

    def rung(self, trial: int) -> int | None:
        """See ``Tuner``; there are no rungs."""
        return None

    def best(self) -> int | None:
        """See ``Tuner``."""
        return self._scores.best()

    def _alive(self) -> list[int]:
        return [trial.number for trial in self._trials.made if trial.number not in self._over]

    # -- forecasts (Themis, Figure 7)

    def num_phases(self) -> int:
        """See ``Tuner``; the trials that run concurrently, then waves of trials that are not suggested yet."""
        return 0 if self.is_done() else 1 + len(self._trials.waves)

    def jobs_in_phase(self, phase: int, done: Mapping[int, float]) -> Sequence[JobInfo]:
        """See ``Tuner``."""
        return [self._jobs_now(done), *self._trials.to_come(float(self._whole), self._search.most)][phase]

    def jobs_remaining(self, done: Mapping[int, float]) -> Sequence[JobInfo]:
        """See ``Tuner``; a trial runs until its slowest plausible curve has converged, at most to its end."""
        return [info for phase in range(self.num_phases()) for info in self.jobs_in_phase(phase, done)]

    def _jobs_now(self, done: Mapping[int, float]) -> list[JobInfo]:
        search = self._search
        return [
            JobInfo(
                trial=number,
                iterations_left=max(self._last_iteration(number) - done.get(number, 0.0), 0.0),
                least=search.least,
                most=search.most,
            )
            for number in self._alive()
        ]

    def _last_iteration(self, trial: int) -> float:
        """Return the milestone after the convergence of a trial's most optimistic curve, or else its last iteration.

        Themis §4.3.2 over-estimates: "the most optimistic convergence curve that results in the maximum forecasted
        completion time". An early stop of the trial is not anticipated.
        """
        if not self._options.converged:
            return float(self._whole)
        points = self._points.of(trial)
        points = points[: _points_of_forecast(len(points), self._options.least_points)]
        if trial not in self._expected or self._expected[trial][0] != points:
            curves = self._curves(points)
            self._expected[trial] = (points, math.inf if curves is None else self._convergence(curves))
        ahead = self._milestones[self._judged.get(trial, 0) :]
        return next((each for each in ahead if each >= self._expected[trial][1]), float(self._whole))

    # -- persistence

    def state(self) -> JsonState:
        """See ``Tuner``; null represents a metric that was not finite."""
        return {
            "over": sorted(self._over),
            "judged": {str(trial): passed for trial, passed in self._judged.items()},
            "points": self._points.state(),
            "scores": self._scores.state(),
            "trials": self._trials.state(),
        }

    def restore(self, state: JsonState) -> None:
        """See ``Tuner``."""
        self._over = set(state["over"])
        self._judged = {int(trial): passed for trial, passed in state["judged"].items()}
        self._points.restore(state["points"])
        self._expected = {}
        self._scores.restore(state["scores"])
        self._trials.restore(state.get("trials", {}))


def _points_of_forecast(points: int, least: int) -> int:
    """Return the largest term of a growing series that is at most ``points``; only its terms make new forecasts."""
    count = least
    while (larger := max(count + 1, int(count * GROWTH))) <= points:
        count = larger
    return count
