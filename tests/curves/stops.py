"""Measures what early stopping saves and loses."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from curves.replay import Metric, replay
from curves.table import RecordedCurve
from eunomia.model.shapes import value

NEAR = 0.005
"""Relative distance from the best within which a trial counts as equally good."""


@value
class StoppingResult:
    """A search under a tuner, compared with running all its trials to the end."""

    trials: int
    stopped: int
    wrong: tuple[int, ...]
    """Stopped trials that would have been the best, or within 0.5 % of it."""
    saved: float
    """Fraction of all iterations that the tuner saved."""
    lost: float
    """Difference between the best finished trial and the best trial if all had finished."""


def outcome(
    kind: str,
    curves: Sequence[RecordedCurve],
    *,
    metric: Metric,
    options: Mapping[str, Any] | None = None,
    slots: int = 0,
) -> StoppingResult:
    """Replay a search of one model, and compare it with all trials run to the end; arguments as for `replay`."""
    run = replay(kind, curves, metric=metric, options=options, slots=slots)
    sign = -1.0 if metric == "val/accuracy" else 1.0
    ends = {curve.trial: sign * curve.metrics(metric)[-1] for curve in curves}
    finite = {trial: end for trial, end in ends.items() if math.isfinite(end)}
    best = min(finite.values())
    kept = min((end for trial, end in finite.items() if trial not in run.stopped), default=max(finite.values()))
    whole = sum(curve.iterations[-1] for curve in curves)
    return StoppingResult(
        trials=len(curves),
        stopped=len(run.stopped),
        wrong=tuple(trial for trial in sorted(run.stopped) if ends[trial] <= best + NEAR * abs(best)),
        saved=1.0 - sum(run.iterations.values()) / whole,
        lost=kept - best,
    )
