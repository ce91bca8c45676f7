"""Measures how often a trial's final metric is within the interval predicted from a part of its run."""

import math
from collections.abc import Sequence

from curves.replay import Metric
from curves.table import RecordedCurve
from eunomia.model.shapes import value
from eunomia_hpo_adapters.curves import Curves, Point, Seen
from eunomia_hpo_adapters.points import Points


@value
class Foretold:
    """The predicted final metric of one trial, with the actual one."""

    trial: int
    rank: float
    """Predicted probability of ending better than it did: uniform over 0 to 1 where the prediction is calibrated."""
    width: float
    """Width of the 80 % interval."""

    def within(self, nominal: float) -> bool:
        """Return whether the final metric is within the central interval of a nominal coverage."""
        return abs(self.rank - 0.5) <= 0.5 * nominal


def foretell(curves: Sequence[RecordedCurve], metric: Metric, fraction: float) -> list[Foretold]:
    """Predict the final metrics of a model's trials, each at that fraction of its run."""
    sign = -1.0 if metric == "val/accuracy" else 1.0
    points = Points()
    whole = curves[0].iterations[-1]
    for curve in curves:
        for iteration, given in zip(curve.iterations, curve.metrics(metric), strict=True):
            if iteration <= fraction * whole:
                points.note(curve.trial, Point(iteration, sign * given))
    found = [_foretell(curve, points, whole, sign * curve.metrics(metric)[-1]) for curve in curves]
    return [each for each in found if each is not None]


def _foretell(curve: RecordedCurve, points: Points, whole: int, end: float) -> Foretold | None:
    """Predict one trial's final metric; None: the metric is not finite, or the trial has too few points."""
    best = min((points.level(other) for other in points.trials() if other != curve.trial), default=math.inf)
    fitted = Curves.fit(points.of(curve.trial), seen=Seen(best=best, spread=points.spread()))
    if fitted is None or not math.isfinite(end):
        return None
    prediction = fitted.predict(whole)
    low, high = prediction.interval(0.8)
    return Foretold(trial=curve.trial, rank=prediction.below(end), width=high - low)
