"""Simulated hyperparameter searches: the app master of a search, with the same tuner as in a live search.

The trials are the app's jobs, in order. The workload gives each trial a curve of its metric; as in a live search, the
tuner receives a point of the curve whenever the trial has done enough iterations.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from eunomia.contract.events import AppArrived, AppFinished, Event, JobAdded, JobFinished, JobPaused, JobResumed
from eunomia.errors import InputError
from eunomia.model.forecasts import Forecast, JobForecast, LossCurve, Phase
from eunomia.units import JobId
from eunomia_appmaster.tuner import Action, JobInfo, Search, Speed, TrialRun, Tuner, demand, forecast, load_tuner
from eunomia_testbed.simulator.apps.desk import Desk
from eunomia_testbed.workload import SimulatedSearch, Workload

FORECAST_CHANGE = 0.005
"""Least change of progress or estimate, as a fraction of the total work, that causes a new forecast, as in a live
search."""
SURELY = 0.999
"""Fraction of that change below which rounding errors cannot matter."""


def make_tuner(
    search: SimulatedSearch, gangs: Sequence[tuple[int, int]], iterations: Sequence[float], seed: int
) -> Tuner:
    """Create the tuner of a simulated search, as from an app file's ``[tuner]``.

    Args:
        search: kind and options of the tuner.
        gangs: least and most GPUs of each trial.
        iterations: total work of each trial; the search uses the largest for all.
        seed: seed of the search.

    Raises:
        InputError: the tuner is unknown, options are invalid, or the numbers of curves and trials differ.
    """
    place = f"search of {len(gangs)} trials"
    if search.curves and len(search.curves) != len(gangs):
        raise InputError("a search must have a curve for each trial", value=str(len(search.curves)), place=place)
    if search.mode not in ("min", "max"):
        raise InputError('mode must be "min" or "max"', value=f'"{search.mode}"', place=place)
    kind = load_tuner(search.tuner, place=place)
    if not getattr(kind, "simulates", True):
        rule = "the tuner of a simulated search must decide by itself, not follow what happens outside"
        raise InputError(rule, value=f'"{search.tuner}"', place=place)
    whole = Search(
        space={},
        metric=search.metric,
        mode="max" if search.mode == "max" else "min",
        trials=len(gangs),
        sampler="random",
        seed=seed,
        least=min(least for least, _ in gangs),
        most=max(most for _, most in gangs),
        max_iterations=math.ceil(max(iterations)),
    )
    return kind.create(whole, _options(kind.options_type, search.options, place))


def _options(kind: type, given: object, place: str) -> object:
    """Return a tuner's options, validated like a plugin's options."""
    from pydantic import ValidationError

    try:
        return kind.model_validate(given)  # type: ignore[attr-defined]
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InputError(
            f"tuner option {where} must be valid: {first['msg']}", value=str(first["input"]), place=place
        ) from error


def check_searches(workload: Workload) -> None:
    """Check that the tuner of every search in a workload can be created.

    Raises:
        InputError: a tuner cannot be created; the error names the app.
    """
    rows: dict[int, list[int]] = {app: [] for app in workload.searches}
    for job, app in enumerate(workload.jobs.app.tolist()):
        if app in rows:
            rows[app].append(job)
    seen = set()
    for app, search in workload.searches.items():
        jobs = rows[app]
        alike = (search.tuner, search.mode, repr(search.options), len(search.curves), len(jobs))
        if jobs and alike not in seen:
            seen.add(alike)
            _check_search(workload, app, jobs)


def _check_search(workload: Workload, app: int, jobs: Sequence[int]) -> None:
    columns = workload.jobs
    gangs = [(int(columns.least[job]), int(columns.most[job])) for job in jobs]
    try:
        make_tuner(workload.searches[app], gangs, [float(columns.iterations[job]) for job in jobs], 0)
    except InputError as error:
        place = f"{workload.name}, app {workload.apps.id[app]}"
        raise InputError(error.rule, value=error.value, place=place) from error


class _Looked(NamedTuple):
    """The progress of a search's trials at its last forecast."""

    done: Mapping[int, float]
    """Iterations done, by trial."""
    useful: Mapping[int, int]
    """Number of GPUs from which each trial benefits."""
    change: float
    """Difference in work between that forecast and the last reported one, in serial GPU-seconds."""


class SearchAppMaster:
    """The app master of a search; without a clock, its state changes only when one of its methods is called.

    Args:
        app: row of the app in the workload.
        jobs: rows of its jobs, one for each trial, in order of number.
        desk: answers the app master's queries.
        search: tuner and curves.
        seed: seed of the search.
        reports: whether the app master reports forecasts.
    """

    def __init__(
        self, app: int, jobs: Sequence[int], desk: Desk, search: SimulatedSearch, *, seed: int, reports: bool = True
    ) -> None:
        self._app, self._jobs, self._desk, self._search, self._reports = app, list(jobs), desk, search, reports
        self._number = {job: number for number, job in enumerate(self._jobs, start=1)}
        gangs = [desk.gang(job) for job in self._jobs]
        self.tuner = make_tuner(search, gangs, [desk.iterations(job) for job in self._jobs], seed)
        phases = [self.tuner.jobs_in_phase(phase, {}) for phase in range(self.tuner.num_phases())]
        self._demand = demand(phases)
        wholes = {number: desk.iterations(job) for job, number in self._number.items()}
        self._own_work: Any = _OwnWork(self.tuner, wholes)
        # A tuner that judges no trial between pauses sees only the points at pauses.
        self._every = search.every if getattr(self.tuner, "listens", True) else 0
        self._falls_with_work = bool(getattr(self.tuner, "falls_with_work", False))
        self._aims = dict.fromkeys(self._number.values(), 0)
        self._paused: set[int] = set()
        self._over: set[int] = set()
        self._runs: dict[int, TrialRun] = {}
        self._budget: float | None = None
        self._known: Forecast | None = None
        self._looked: _Looked | None = None

    # --- what happens ------------------------------------------------------------------------------------------------

    def arrive(self, now: float) -> Sequence[Event]:
        """Return the registration with all trials; each runs up to its first point."""
        arrived: AppArrived = self._desk.arrived(self._app)
        self._look()
        for number in self._runs:
            self._aim(number)
        return [arrived, *(self._added(number) for number in self._number.values())]

    def reached(self, job: int, now: float) -> Sequence[Event]:
        """Pass a point of the trial's curve to the tuner, and return the events of its decisions."""
        number = self._number[job]
        at, goal = self._aims[number], self._goal(number)
        metric = self.metric(number, at)
        action = self.tuner.on_result(number, at, metric)
        stands = action is Action.PAUSE
        if at >= goal and number not in self.tuner.ended():
            stands = True
            if at >= self._whole(number):
                self.tuner.on_finished(number, at, metric)
            else:
                self.tuner.on_paused(number, at, metric)
        return self._follow(number, stands=stands)

    def hear(self, event: Event, now: float) -> Sequence[Event]:
        """Return no events, since the progress of a trial is queried when needed."""
        self._looked = None
        return ()

    def _follow(self, number: int, *, stands: bool) -> list[Event]:
        """Return the events of the tuner's decisions after a point of a trial; they may affect other trials too."""
        ended = [one for one in self.tuner.ended() if one not in self._over]
        self._over.update(ended)
        self._paused.difference_update(ended)
        self._look()
        unwanted = self._number.values() - self._runs.keys() - self._over - self._paused
        pauses = unwanted | ({number} if stands and number not in self._over else set())
        self._paused |= pauses
        resumed = [one for one in self._runs if one in self._paused]
        self._paused.difference_update(resumed)
        for one in resumed if stands or number not in self._runs else [*resumed, number]:
            self._aim(one)
        events: list[Event] = [JobFinished(job=self._id(one)) for one in ended]
        events += [JobPaused(job=self._id(one)) for one in sorted(pauses)]
        events += map(self._resumed, resumed)
        if self.tuner.is_done() and len(self._over) == len(self._jobs):
            events.append(AppFinished(app=self._desk.app_id(self._app)))
        return events

    # --- points ------------------------------------------------------------------------------------------------------

    def metric(self, number: int, iterations: float) -> float:
        """Return a trial's metric after some iterations; without curves, trials with lower numbers are better."""
        if not self._search.curves:
            return float(number if self._search.mode == "min" else -number)
        asymptote, amplitude, exponent = self._search.curves[number - 1]
        return float(asymptote + amplitude * (iterations + 1.0) ** -exponent)

    def _aim(self, number: int) -> None:
        """Let a trial run to its next point, or to the end of its current phase if that comes first."""
        goal, every = self._goal(number), self._every
        point = goal if every <= 0 else (self._aims[number] // every + 1) * every
        self._aims[number] = min(point, goal)
        self._desk.aim(self._jobs[number - 1], float(self._aims[number]))

    def _goal(self, number: int) -> int:
        """Return the iteration at which a trial's run ends: its next rung, or its last iteration."""
        run = self._runs.get(number)
        whole = self._whole(number)
        return whole if run is None or run.stop_at is None else min(run.stop_at, whole)

    def _whole(self, number: int) -> int:
        return math.ceil(self._desk.iterations(self._jobs[number - 1]))

    def _look(self) -> None:
        """Read the runs that the tuner currently requests."""
        self._runs = {run.trial: run for run in self.tuner.runs()}
        self._looked = None
        self.__dict__.pop("_most_now", None)

    # --- reports -----------------------------------------------------------------------------------------------------

    def wishes(self) -> Sequence[int]:
        """Return the trials that should run now, in the tuner's order."""
        return [self._jobs[number - 1] for number in self._runs if number not in self._over]

    def span(self, job: int) -> tuple[int, int]:
        """Return the fewest and most GPUs that a trial can use in its current phase."""
        least, most = self._desk.gang(job)
        run = self._runs.get(self._number[job])
        return (least, most) if run is None else (max(least, run.least), max(least, min(most, run.most)))

    def _id(self, number: int) -> JobId:
        return self._desk.job_id(self._jobs[number - 1])

    def _added(self, number: int) -> JobAdded:
        """Return the event that adds a trial, with the work and GPUs of its current run."""
        added = self._desk.added(self._jobs[number - 1])
        most = self.span(self._jobs[number - 1])[1]
        return dataclasses.replace(added, iterations=self._goal(number) * self._factor, most=most)

    def _resumed(self, number: int) -> JobResumed:
        """Return the event that resumes a trial, with the work and GPUs of its next phase."""
        most = self.span(self._jobs[number - 1])[1]
        return JobResumed(job=self._id(number), iterations=self._goal(number) * self._factor, most=most)

    @cached_property
    def _factor(self) -> float:
        """Return the ratio of reported to true work; errors and misreports are the same for all jobs of an app."""
        first = self._jobs[0]
        reported = self._desk.iterations(first) * self._desk.reported_serial(first)
        return self._desk.reported_gpu_seconds(first) / reported if reported > 0.0 else 1.0

    @cached_property
    def _speeds(self) -> dict[int, Speed]:
        """Return the reported speed of each trial; a trial's time per iteration is constant."""
        desk = self._desk
        return {
            number: Speed(seconds_per_iteration=desk.reported_serial(job), slowdown=desk.reported_slowdown(job))
            for job, number in self._number.items()
        }

    def forecast(self, now: float) -> Forecast | None:
        """Return the remaining phases as the tuner forecasts them (Figure 7); None: they have not changed.

        The total work stays as at the beginning: a search is entitled to its budget, however its trials end (§4.3.2).
        """
        if not self._reports or self.tuner.is_done():
            return None
        desk, factor = self._desk, self._factor
        done = {number: desk.iterations_done(job) for job, number in self._number.items()}
        useful = {number: desk.useful_gpus(self._jobs[number - 1], most) for number, most in self._most_now.items()}
        if self._is_near(done, useful):
            return None
        made = forecast(self._own_work, done, self._speeds, otherwise=self._speeds[1], useful=useful)
        if made is None:
            return None
        if self._budget is None:
            self._budget = made.total_gpu_seconds * factor
        phases = tuple(Phase(jobs=tuple(_scaled(job, factor) for job in phase.jobs)) for phase in made.phases)
        known = self._known
        if known is not None and _shape(phases) == _shape(known.phases):
            change = abs(_work(phases) - _work(known.phases))
            if change <= FORECAST_CHANGE * self._budget:
                self._looked = _Looked(done=done, useful=useful, change=change)
                return None
        self._looked = _Looked(done=done, useful=useful, change=0.0)
        self._known = Forecast(
            phases=phases, total_gpu_seconds=self._budget, most=max(made.most, self._demand), losses=self._losses()
        )
        return self._known

    def _is_near(self, done: Mapping[int, float], useful: Mapping[int, int]) -> bool:
        """Return whether a new forecast would differ too little from the last reported one to be needed.

        The tuner has decided nothing since the last forecast, so the work left has fallen exactly by the work done.
        """
        last = self._looked if self._falls_with_work else None
        if last is None or self._budget is None or last.useful != useful:
            return False
        before, speeds = last.done, self._speeds
        moved = sum(
            abs(at - before[number]) * speeds[number].seconds_per_iteration
            for number, at in done.items()
            if at != before[number]
        )
        return last.change + moved * self._factor < SURELY * FORECAST_CHANGE * self._budget

    @cached_property
    def _most_now(self) -> dict[int, int]:
        """Return the most GPUs that each running trial can use in its current phase."""
        return {number: self.span(self._jobs[number - 1])[1] for number in self._runs}

    def _losses(self) -> tuple[LossCurve, ...]:
        """Return the curves of trials that have not ended, known in advance (Themis §6.1); empty unless minimising."""
        if not self._search.curves or self._search.mode != "min":
            return ()
        return tuple(
            LossCurve(job=self._id(number), asymptote=curve[0], amplitude=curve[1], exponent=curve[2])
            for number, curve in enumerate(self._search.curves, start=1)
            if number not in self._over
        )


class _OwnWork:
    """A tuner for trials of different lengths: caps its estimate for each trial at the work that the trial has left.

    Args:
        tuner: the tuner of the search.
        wholes: total work of each trial in iterations.
    """

    def __init__(self, tuner: Tuner, wholes: Mapping[int, float]) -> None:
        self._tuner, self._wholes = tuner, wholes
        self.num_phases, self.ended = tuner.num_phases, tuner.ended

    def jobs_in_phase(self, phase: int, done: Mapping[int, float]) -> Sequence[JobInfo]:
        """Return ``Tuner.jobs_in_phase`` with each trial's iterations capped at the work that the trial has left."""
        return [self._own(info, done) for info in self._tuner.jobs_in_phase(phase, done)]

    def _own(self, info: JobInfo, done: Mapping[int, float]) -> JobInfo:
        if info.trial is None:
            return info
        left = max(0.0, self._wholes[info.trial] - done.get(info.trial, 0.0))
        if info.iterations_left <= left:
            return info
        return JobInfo(trial=info.trial, iterations_left=left, least=info.least, most=info.most)


def _scaled(job: JobForecast, factor: float) -> JobForecast:
    if factor == 1.0:
        return job
    return JobForecast(
        iterations_left=job.iterations_left * factor,
        seconds_per_iteration=job.seconds_per_iteration,
        least=job.least,
        most=job.most,
        slowdown=job.slowdown,
    )


def _shape(phases: Sequence[Phase]) -> tuple[object, ...]:
    return tuple(tuple((job.iterations_left > 0, job.least, job.most) for job in phase.jobs) for phase in phases)


def _work(phases: Sequence[Phase]) -> float:
    return sum(job.iterations_left * job.seconds_per_iteration for phase in phases for job in phase.jobs)
