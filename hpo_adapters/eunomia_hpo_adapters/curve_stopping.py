"""Curve stopping: trials whose curves promise too little are ended early (Themis §4.3.2; Hyperdrive, Google Vizier).

All trials run side by side. At declared milestones a trial's learning curve is extrapolated to its end; if even the
most favourable curve that its points allow ends worse than what another trial has shown already, it is stopped.
Nothing is judged before a milestone, on fewer points than asked, or while too few other trials have curves.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator

from eunomia.errors import InputError
from eunomia_appmaster.tuner import Action, JobInfo, JsonState, Run, Search, Trial, check_grid
from eunomia_hpo_adapters.curves import Curves, Point
from eunomia_hpo_adapters.scoreboard import Scoreboard

MOST_POINTS = 64
"""Points kept of a trial: above that every second one is dropped, never the first or the last."""

Fraction = Annotated[float, Field(gt=0.0, lt=1.0)]


class CurveStoppingOptions(BaseModel):
    """Options of curve stopping."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    milestones: tuple[Fraction, ...] = (0.25, 0.5, 0.75)
    """Parts of max_iterations, ascending, at which trials are judged; nowhere else."""
    least_points: int = Field(default=5, ge=4)
    """Points that a trial must have reported before its curve is trusted."""
    least_curves: int = Field(default=2, ge=2)
    """Trials that must have curves by then, the judged one among them."""
    deviations: float = Field(default=2.0, ge=0.0, le=10.0)
    """Standard deviations by which a curve may be off: the more, the later a trial is stopped."""
    converged: float = Field(default=0.0, ge=0.0, lt=1.0)
    """A trial is done at the first milestone at which its curve has only this part of its way left; 0: never."""

    @field_validator("milestones")
    @classmethod
    def _ascending(cls, milestones: tuple[float, ...]) -> tuple[float, ...]:
        if not milestones or list(milestones) != sorted(set(milestones)):
            raise ValueError("must be at least one, in ascending order")
        return milestones


class CurveStopping:
    """Stops trials by extrapolated learning curves."""

    options_type: ClassVar[type] = CurveStoppingOptions
    needs_metric: ClassVar[bool] = True
    needs_max_iterations: ClassVar[bool] = True

    def __init__(self, search: Search, options: CurveStoppingOptions, whole: int) -> None:
        self._search, self._options, self._whole = search, options, whole
        self._trials = tuple(search.trial(number) for number in range(1, search.trials + 1))
        self._scores = Scoreboard(search)
        self._points: dict[int, list[Point]] = {}
        self._over: set[int] = set()
        self._judged: dict[int, int] = {}
        """By trial, milestones that it has passed."""
        self._curves: dict[int, tuple[int, Curves | None]] = {}
        """By trial, the last fit and how many points it was made of: a cache."""

    @classmethod
    def create(cls, search: Search, options: CurveStoppingOptions) -> Self:
        """See the port.

        Raises:
            InputError: no metric, no max_iterations, or fewer than two trials.
        """
        if search.metric is None or search.max_iterations is None:
            raise InputError("curve_stopping must know metric and max_iterations", value="none")
        if search.trials < 2:
            raise InputError("trials must be at least 2 for curve_stopping", value=str(search.trials))
        check_grid(search)
        return cls(search, options, search.max_iterations)

    # -- what is told

    def trials(self) -> Sequence[Trial]:
        """See the port."""
        return self._trials

    def on_result(self, trial: int, iteration: int, metric: float) -> Action:
        """See the port; a trial is judged at the first point at or after each milestone."""
        self._scores.note(trial, metric)
        self._keep(trial, Point(iteration, self._lower(metric)))
        passed = sum(iteration >= part * self._whole for part in self._options.milestones)
        if passed <= self._judged.get(trial, 0) or iteration >= self._whole:
            return Action.CONTINUE
        self._judged[trial] = passed
        if not self._is_hopeless(trial) and not self._has_converged(trial, iteration):
            return Action.CONTINUE
        self._over.add(trial)
        return Action.STOP

    def on_paused(self, trial: int, iteration: int, metric: float | None) -> None:
        """See the port; nothing here pauses by itself."""
        self._scores.note(trial, metric)

    def on_finished(self, trial: int, iteration: int, metric: float | None) -> None:
        """See the port."""
        self._scores.note(trial, metric)
        if metric is not None:
            self._keep(trial, Point(iteration, self._lower(metric)))
        self._over.add(trial)

    def on_failed(self, trial: int) -> None:
        """See the port."""
        self._over.add(trial)

    # -- judging

    def _lower(self, metric: float) -> float:
        """The metric as a cost: lower is better."""
        return -metric if self._search.mode == "max" else metric

    def _keep(self, trial: int, point: Point) -> None:
        kept = self._points.setdefault(trial, [])
        if kept and kept[-1].iteration == point.iteration:
            kept.pop()
        kept.append(point)
        if len(kept) > MOST_POINTS:
            self._points[trial] = [*kept[:-1:2], kept[-1]]

    def _curve(self, trial: int) -> Curves | None:
        """The curves of a trial that has reported enough to have one."""
        points = self._points.get(trial, [])
        finite = sum(math.isfinite(point.value) for point in points)
        if finite < self._options.least_points:
            return None
        key = points[-1].iteration
        if trial not in self._curves or self._curves[trial][0] != key:
            self._curves[trial] = (key, Curves.fit(points, deviations=self._options.deviations))
        return self._curves[trial][1]

    def _is_hopeless(self, trial: int) -> bool:
        """Whether even its best plausible end is worse than what another trial has shown."""
        own = self._curve(trial)
        with_curves = [other for other in self._points if self._curve(other) is not None]
        if own is None or len(with_curves) < self._options.least_curves:
            return False
        shown = [
            point.value
            for other in with_curves
            if other != trial
            for point in self._points[other]
            if math.isfinite(point.value)
        ]
        return own.optimistic(self._whole) > min(shown)

    def _has_converged(self, trial: int, iteration: int) -> bool:
        own = self._curve(trial)
        return own is not None and own.last_to_converge(self._options.converged) <= iteration

    # -- what is wanted

    def runs(self) -> Sequence[Run]:
        """See the port: all that are not over, by number."""
        search = self._search
        return [Run(trial=number, least=search.least, most=search.most) for number in self._alive()]

    def ended(self) -> Sequence[int]:
        """See the port."""
        return sorted(self._over)

    def is_done(self) -> bool:
        """See the port."""
        return not self._alive()

    def rung(self, trial: int) -> int | None:
        """See the port: there are none."""
        return None

    def best(self) -> int | None:
        """See the port."""
        return self._scores.best()

    # -- Figure 7

    def num_phases(self) -> int:
        """See the port: all trials run side by side."""
        return 0 if self.is_done() else 1

    def jobs_in_phase(self, phase: int, done: Mapping[int, float]) -> Sequence[JobInfo]:
        """See the port."""
        return self.jobs_remaining(done)

    def jobs_remaining(self, done: Mapping[int, float]) -> Sequence[JobInfo]:
        """See the port; a trial goes on to where the slowest plausible curve has converged, at most to its end."""
        search = self._search
        return [
            JobInfo(
                trial=number,
                iterations_left=max(self._end(number) - done.get(number, 0.0), 0.0),
                least=search.least,
                most=search.most,
            )
            for number in self._alive()
        ]

    def _end(self, trial: int) -> float:
        """The first milestone at which its slowest plausible curve has converged; its whole work without one."""
        own = self._curve(trial) if self._options.converged else None
        if own is None:
            return float(self._whole)
        converged = own.last_to_converge(self._options.converged)
        ahead = self._options.milestones[self._judged.get(trial, 0) :]
        return next((part * self._whole for part in ahead if part * self._whole >= converged), float(self._whole))

    def _alive(self) -> list[int]:
        return [trial.number for trial in self._trials if trial.number not in self._over]

    # -- memory

    def state(self) -> JsonState:
        """See the port; null stands for a metric that was not finite."""
        return {
            "over": sorted(self._over),
            "judged": {str(trial): passed for trial, passed in self._judged.items()},
            "points": {
                str(trial): [[one.iteration, one.value if math.isfinite(one.value) else None] for one in points]
                for trial, points in self._points.items()
            },
            "scores": self._scores.state(),
        }

    def restore(self, state: JsonState) -> None:
        """See the port."""
        self._over = set(state["over"])
        self._judged = {int(trial): passed for trial, passed in state["judged"].items()}
        self._points = {
            int(trial): [Point(at, math.nan if metric is None else metric) for at, metric in points]
            for trial, points in state["points"].items()
        }
        self._curves = {}
        self._scores.restore(state["scores"])
