"""The tuner interface between a hyperparameter search and the app master, after Syne Tune and Themis' Figure 7.

A tuner is a state machine without a clock, threads or files. The app master calls it from one thread: it reports the
results and ends of trials, and asks which trials run now and up to which iteration. ``state()`` returns the whole state
of a tuner as plain values for JSON, so that a restarted app master loses nothing. A simulator drives the same object in
virtual time.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from enum import Enum
from importlib import import_module
from statistics import median_high
from typing import Any, ClassVar, Literal, Protocol, Self, runtime_checkable

import structlog

from eunomia.errors import InputError
from eunomia.model.forecasts import Forecast, JobForecast, Phase
from eunomia.model.shapes import value
from eunomia.platform.checking import hooks_of
from eunomia.platform.registry import Registry, default_registry
from eunomia_appmaster.app.space import (
    OPTUNA_SAMPLERS,
    Parameter,
    Parameters,
    Sampler,
    Space,
    grid_point,
    grid_size,
    random_point,
    trial_seed,
)

log = structlog.get_logger()

Mode = Literal["min", "max"]
JsonState = dict[str, Any]
"""Plain values: dicts, lists, strings, numbers (no NaN), booleans, None."""

TUNERS: Mapping[str, str] = {
    "none": "eunomia_hpo_adapters.none:NoTuner",
    "curve_stopping": "eunomia_hpo_adapters.curve_stopping:CurveStopping",
    "external": "eunomia_hpo_adapters.external:External",
    "hyperband": "eunomia_hpo_adapters.hyperband:Hyperband",
    "median_stopping": "eunomia_hpo_adapters.median_stopping:MedianStopping",
    "successive_halving": "eunomia_hpo_adapters.successive_halving:SuccessiveHalving",
}
"""Built-in tuners as ``module:class``, by the kind in an app file; plugins add others by ``eunomia_tuners``."""

CONCURRENT_TRIALS = 4
"""Default number of trials that an Optuna sampler suggests before their predecessors' results are known."""


MOST_DRAWS = 100
"""Maximum number of draws of a trial's parameters to get a point that no earlier trial has."""


class Action(Enum):
    """The tuner's decision about a trial that has just reported a metric."""

    CONTINUE = "continue"
    PAUSE = "pause"
    """Suspend the trial now; it resumes from its checkpoint when the tuner lists it again."""
    STOP = "stop"
    """End the trial permanently."""


@value
class Trial:
    """A point of the search space, run as one job."""

    number: int
    """Number of the trial, from 1."""
    parameters: Parameters
    seed: int


@value
class TrialRun:
    """A trial that the tuner requests to run now."""

    trial: int
    stop_at: int | None = None
    """Iteration at which the trial pauses (a rung), counted from its start; None: it runs to its end."""
    least: int = 1
    most: int = 1
    """Maximum number of slots that the trial can use now."""


@value
class JobInfo:
    """One job of a phase (Themis' ``JobInfo``); ``forecast`` fills in its time per iteration."""

    trial: int | None
    """Number of the trial; None if it is not chosen yet, and the median trial represents it."""
    iterations_left: float
    """Number of iterations that the job has left in this phase."""
    least: int
    most: int


@value
class Speed:
    """The known speed of a trial."""

    seconds_per_iteration: float
    """Seconds per iteration on one slot, without slowdown."""
    slowdown: tuple[float, float, float, float] | None = None
    """Measured S by locality (island, machine, rack, cluster); None if not measured."""


@value
class Search:
    """The inputs of a tuner in addition to its own options."""

    space: Space
    metric: str | None
    mode: Mode
    trials: int
    sampler: Sampler
    seed: int
    least: int
    most: int
    """Maximum number of slots of a trial."""
    max_iterations: int | None
    """A trial's total work in iterations; None if a trial runs until its script ends."""
    max_concurrent_trials: int = CONCURRENT_TRIALS
    """Number of trials that an Optuna sampler suggests before their predecessors' results are known."""
    startup_trials: int | None = None
    """Number of trials that an Optuna sampler draws at random before it uses results; None: Optuna's default."""
    milestones: tuple[int, ...] = ()
    """Iterations at which the learning rate drops, ascending; metrics before a drop do not predict those after it."""
    more_trials: tuple[int, ...] = ()
    """Sizes of the groups of trials that were added after the search had ended, in order; ``trials`` includes them."""

    @property
    def groups(self) -> tuple[int, ...]:
        """Sizes of all groups of trials: that of the app file, then each added group."""
        return (self.trials - sum(self.more_trials), *self.more_trials)

    @property
    def learns(self) -> bool:
        """Whether a sampler that learns from results suggests the trials one after another."""
        return self.sampler in OPTUNA_SAMPLERS

    def trial(self, number: int) -> Trial:
        """Return trial ``number`` (from 1) from the sampler.

        Raises:
            InputError: the sampler learns from results, but the tuner requests trials before it has results.
        """
        if self.learns:
            rule = "sampler must be random or grid for a tuner that makes all its trials at once"
            raise InputError(rule, value=f'"{self.sampler}"')
        parameters = (
            grid_point(self.space, number) if self.sampler == "grid" else random_point(self.space, self.seed, number)
        )
        return Trial(number=number, parameters=parameters, seed=trial_seed(self.seed, number))

    def another_trial(self, number: int, points: Collection[frozenset[tuple[str, Parameter]]]) -> Trial:
        """Return trial ``number`` of an added group, whose point no earlier trial has.

        A random point that an earlier trial has is drawn again, at most ``MOST_DRAWS`` times, since the points of a
        finite space may be used up.

        Args:
            number: number of the trial, from 1.
            points: the parameters of all earlier trials.

        Raises:
            InputError: as ``trial``.
        """
        trial = self.trial(number)
        if self.sampler == "grid" or not self.space:
            return trial
        for draw in range(1, MOST_DRAWS):
            if frozenset(trial.parameters.items()) not in points:
                break
            trial = replace(trial, parameters=random_point(self.space, self.seed, number, draw=draw))
        return trial

    def better_first(self, metric: float) -> float:
        """Return a key that sorts the better metric first, and metrics that are not finite last."""
        if not math.isfinite(metric):
            return math.inf
        return -metric if self.mode == "max" else metric


@runtime_checkable
class Tuner(Protocol):
    """A tuner. ``done`` maps trial numbers to the iterations done so far, as reported by the app master."""

    options_type: ClassVar[type]
    """A pydantic model of this tuner's own keys in ``[tuner]``."""
    needs_metric: ClassVar[bool]
    needs_max_iterations: ClassVar[bool]

    # A tuner with ``takes_more_trials = True`` can continue with more trials after it is done: it reads
    # ``Search.more_trials``, and restores states of the same search with fewer groups.
    # A tuner with an external input, such as a file of orders, has ``poll()``, which the app master calls at
    # each turn, several times a second: it returns whether the tuner's answers may have changed, and errors for users.
    # One with ``simulates = False`` is refused in a simulation.

    @classmethod
    def create(cls, search: Search, options: Any) -> Self:
        """Create the tuner in its initial state.

        Raises:
            InputError: the options do not suit the search, such as rungs of less than an iteration.
        """
        ...

    def trials(self) -> Sequence[Trial]:
        """Return all trials so far by number; a tuner may add trials later, but never removes one."""
        ...

    def on_result(self, trial: int, iteration: int, metric: float) -> Action:
        """Process a running trial's metric (maybe NaN) and return what the trial does next; called by iteration."""
        ...

    def on_paused(self, trial: int, iteration: int, metric: float | None) -> None:
        """Process that a trial paused at its ``stop_at``; ``metric``: its last metric, None if it never logged one."""
        ...

    def on_finished(self, trial: int, iteration: int, metric: float | None) -> None:
        """Process that a trial's script finished, regardless of its ``stop_at``."""
        ...

    def on_failed(self, trial: int) -> None:
        """Process that a trial failed permanently, with no retries left."""
        ...

    def runs(self) -> Sequence[TrialRun]:
        """Return the trials to run now, in order of priority, including running ones.

        A running trial that is no longer listed is paused.
        """
        ...

    def ended(self) -> Sequence[int]:
        """Return the trials that have ended: finished, failed, or stopped by the tuner."""
        ...

    def is_done(self) -> bool:
        """Return whether no trial will run any more."""
        ...

    def rung(self, trial: int) -> int | None:
        """Return the rung that a trial is in or ended in, from 0; None if the tuner has no rungs."""
        ...

    def best(self) -> int | None:
        """Return the best trial so far; None: no finite metric was reported."""
        ...

    def num_phases(self) -> int:
        """Return the number of remaining phases, including the current one (Themis' Figure 7); 0 when done."""
        ...

    def jobs_in_phase(self, phase: int, done: Mapping[int, float]) -> Sequence[JobInfo]:
        """Return the jobs of a remaining phase; 0 is the current one (Themis' Figure 7)."""
        ...

    def jobs_remaining(self, done: Mapping[int, float]) -> Sequence[JobInfo]:
        """Return the jobs that have not ended, each with its expected remaining iterations (Themis' Figure 7)."""
        ...

    def state(self) -> JsonState:
        """Return all data that ``restore`` needs, as plain values for JSON."""
        ...

    def restore(self, state: JsonState) -> None:
        """Continue from the result of ``state()`` of a tuner with the same search and options."""
        ...


def tuner_kinds(registry: Registry) -> dict[str, str]:
    """Return ``module:class`` by kind: the built-in tuners, and those that plugins add by ``eunomia_tuners``.

    A plugin that fails is left out, and a built-in kind cannot be replaced.
    """
    kinds: dict[str, str] = {}
    for item in registry.all():
        if item.plugin is None or "eunomia_tuners" not in hooks_of(item.plugin):
            continue
        try:
            made = registry.make(item.found.name, {}, alias=item.found.name, place=".".join)
            kinds |= {str(kind): str(target) for kind, target in made.eunomia_tuners().items()}
        except Exception as error:
            log.warning("plugin.failed", plugin=item.found.name, hook="eunomia_tuners", why=str(error))
    return kinds | dict(TUNERS)


def takes_more_trials(kind: type[Tuner]) -> bool:
    """Return whether a tuner can continue with additional trials after it is done."""
    return bool(getattr(kind, "takes_more_trials", False))


def load_tuner(kind: str, kinds: Mapping[str, str] | None = None, *, place: str | None = None) -> type[Tuner]:
    """Import the tuner of a kind.

    Args:
        kind: as ``[tuner].kind`` names it.
        kinds: ``module:class`` by kind; None: the built-in ones; if ``kind`` is none of them, also those of plugins.
        place: where the name is given, for errors.

    Raises:
        InputError: there is no such kind, or its package cannot be imported.
    """
    if kinds is None:
        kinds = TUNERS if kind in TUNERS else tuner_kinds(default_registry())
    if kind not in kinds:
        close = get_close_matches(kind, kinds, n=1)
        meant = f'; did you mean "{close[0]}"?' if close else ""
        raise InputError("kind must name a tuner: " + ", ".join(sorted(kinds)), value=f'"{kind}"{meant}', place=place)
    module, _, name = kinds[kind].partition(":")
    try:
        found: type[Tuner] = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise InputError(
            f'tuner "{kind}" must be importable from {kinds[kind]}', value=str(error), place=place
        ) from error
    return found


def forecast(
    tuner: Tuner,
    done: Mapping[int, float],
    speeds: Mapping[int, Speed],
    *,
    otherwise: Speed,
    useful: Mapping[int, int] | None = None,
    before: Mapping[int, float] | None = None,
) -> Forecast | None:
    """Compute a ``Forecast`` of a search's remaining work by the API of Themis' Figure 7.

    Jobs that are not chosen yet are copies of the median trial by time per iteration (§4.3.2), the slower one of two
    (§4.3.3 estimates the last phase of two jobs of 100 and 120 s by the latter). The total work (B) is the work done by
    all trials, stopped ones included, and the remaining work of the phases.

    Args:
        tuner: the search's tuner.
        done: iterations done by trial.
        speeds: each trial's known speed.
        otherwise: speed assumed if no trial's speed is known; else trials of unknown speed get the median.
        useful: maximum number of slots useful to a trial now, by trial, such as its present number if more do not pay.
            It bounds the demand of the trial's phase, not the app's entitlement.
        before: iterations done before the app ended and was resumed, by trial; they are not part of its present work.

    Returns:
        The forecast (work in serial GPU-seconds); None if the work of a job is unknown.
    """
    median = _median(tuner, speeds, otherwise)

    def speed(trial: int | None) -> Speed:
        return median if trial is None else speeds.get(trial, median)

    made: dict[tuple[float, Speed, int, int], JobForecast] = {}

    def job(info: JobInfo) -> JobForecast:
        known, most = speed(info.trial), max(info.least, min(info.most, limits.get(info.trial, info.most)))
        key = info.iterations_left, known, info.least, most
        if key not in made:  # equal jobs are one object: thousands of trials that have not run are equal
            made[key] = JobForecast(
                iterations_left=info.iterations_left,
                seconds_per_iteration=known.seconds_per_iteration,
                least=info.least,
                most=most,
                slowdown=known.slowdown,
            )
        return made[key]

    limits: dict[int | None, int] = {trial: slots for trial, slots in (useful or {}).items()}  # noqa: C416 - a wider key
    remaining = [tuner.jobs_in_phase(phase, done) for phase in range(tuner.num_phases())]
    phases = tuple(Phase(jobs=tuple(map(job, infos))) for infos in remaining)
    if any(math.isnan(job.iterations_left) for phase in phases for job in phase.jobs):
        return None
    left = sum(job.iterations_left * job.seconds_per_iteration for phase in phases for job in phase.jobs)
    past = sum(
        max(0.0, iterations - (before or {}).get(trial, 0.0)) * speed(trial).seconds_per_iteration
        for trial, iterations in done.items()
    )
    return Forecast(phases=phases, total_gpu_seconds=past + left, most=demand(remaining))


def demand(phases: Iterable[Sequence[JobInfo]]) -> int:
    """Return the maximum number of slots that the jobs of any one phase can use at once; at least 1."""
    return max((sum(info.most for info in infos if info.iterations_left != 0) for infos in phases), default=1) or 1


def _median(tuner: Tuner, speeds: Mapping[int, Speed], otherwise: Speed) -> Speed:
    """Return the speed of the median trial still in the search, by time per iteration; else of all known trials."""
    ended = set(tuner.ended())
    alive = {trial: speed for trial, speed in speeds.items() if trial not in ended} or speeds
    if not alive:
        return otherwise
    middle = median_high(speed.seconds_per_iteration for speed in alive.values())
    return next(speed for speed in alive.values() if speed.seconds_per_iteration == middle)


def check_grid(search: Search, *, place: str | None = None) -> None:
    """Check that a grid is finite and has at least as many points as trials.

    Raises:
        InputError: the grid is infinite, or too small.
    """
    if search.sampler == "grid":
        points = grid_size(search.space, place=place)
        if search.trials > points:
            raise InputError(
                f"trials must be at most the grid's {points} points", value=str(search.trials), place=place
            )
