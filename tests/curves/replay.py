"""Replays a search on recorded curves with a live tuner."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import ValidationError

from curves.searches import SEARCHES, SEED, search_seed
from curves.table import RecordedCurve
from eunomia.errors import InputError
from eunomia.model.shapes import value
from eunomia_appmaster.tuner import Action, Search, Tuner, load_tuner

Metric = Literal["val/accuracy", "val/loss"]


@value
class Replay:
    """The result of a replayed search."""

    iterations: Mapping[int, int]
    """By trial, the iterations that it did."""
    stopped: Mapping[int, int]
    """By trial that did not finish, the iteration at which it stopped."""


def replay(
    kind: str,
    curves: Sequence[RecordedCurve],
    *,
    metric: Metric,
    options: Mapping[str, Any] | None = None,
    slots: int = 0,
) -> Replay:
    """Run a search over a model's trials: each running trial in turn reports one point.

    Args:
        kind: the tuner, as an app file names it.
        curves: the trials of one model, all with the same number of iterations.
        metric: the metric that is reported to the tuner.
        options: options of the tuner, as in an app file.
        slots: number of trials that run at once, the first that the tuner names; 0: all.

    Raises:
        InputError: an unknown tuner, unsuitable options, or a tuner that wants no trial and is not done.
    """
    tuner = _tuner(kind, curves, metric, options or {})
    points = {curve.trial: list(zip(curve.iterations, curve.metrics(metric), strict=True)) for curve in curves}
    at = dict.fromkeys(points, 0)
    while not tuner.is_done():
        before = sum(at.values())
        for run in list(tuner.runs())[: slots or None]:
            if run.trial in {wanted.trial for wanted in tuner.runs()}:
                _report_point(tuner, run.trial, run.stop_at, points[run.trial], at)
        if sum(at.values()) == before and not tuner.is_done():
            raise InputError("a tuner must be done, or want a trial to go on", value=kind, place="replay")
    reached = {trial: points[trial][count - 1][0] if count else 0 for trial, count in at.items()}
    stopped = {trial: reached[trial] for trial, count in at.items() if count < len(points[trial])}
    return Replay(iterations=reached, stopped=stopped)


def _report_point(
    tuner: Tuner, trial: int, stop_at: int | None, points: Sequence[tuple[int, float]], at: dict[int, int]
) -> None:
    """Report one point of a trial to the tuner, and apply the tuner's decision."""
    iteration, metric = points[at[trial]]
    at[trial] += 1
    action = tuner.on_result(trial, iteration, metric)
    if action is Action.STOP:
        return
    if at[trial] == len(points):
        tuner.on_finished(trial, iteration, metric)
    elif action is Action.PAUSE or (stop_at is not None and iteration >= stop_at):
        tuner.on_paused(trial, iteration, metric)


def _tuner(kind: str, curves: Sequence[RecordedCurve], metric: Metric, options: Mapping[str, Any]) -> Tuner:
    found = load_tuner(kind)
    options_type: Any = found.options_type
    model = curves[0].model
    search = Search(
        space=SEARCHES[model].space,
        metric=metric,
        mode="max" if metric == "val/accuracy" else "min",
        trials=len(curves),
        sampler="random",
        seed=search_seed(model, SEED),
        least=1,
        most=1,
        max_iterations=curves[0].iterations[-1],
    )
    try:
        return found.create(search, options_type.model_validate(dict(options)))
    except ValidationError as error:
        raise InputError("options must fit the tuner", value=str(error.errors()[0]["msg"]), place=kind) from error
