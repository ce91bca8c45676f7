"""The forecast of a job as text and numbers, for ``eunomia explain``."""

import math
from typing import NamedTuple

from eunomia import Explanation
from eunomia_plugins.shockwave.forecasts.memo import Belief
from eunomia_plugins.shockwave.forecasts.options import ShockwaveForecastOptions
from eunomia_plugins.shockwave.forecasts.posterior import Past, seconds_between


class Times(NamedTuple):
    """Remaining seconds of a job at its largest size: mean and interval; NaN if no rate of the job is known."""

    left: float
    low: float
    high: float


def times_left(belief: Belief, past: Past, options: ShockwaveForecastOptions) -> Times:
    """Return the expected time left and its bounds, which include the case that the batch size stays the same."""
    epochs = belief.posterior.left(past)
    paces = belief.seconds_per_epoch
    if not all(map(math.isfinite, paces)):
        return Times(math.nan, math.nan, math.nan)
    left = sum(each * pace for each, pace in zip(epochs, paces, strict=True) if each > 0.0)
    sizes = belief.batch_sizes[belief.posterior.present :]
    ratios = [1.0 if known else size / sizes[0] for size, known in zip(sizes, belief.known, strict=True)]
    surest = [pace if known else paces[0] for pace, known in zip(paces, belief.known, strict=True)]
    low, high = seconds_between(sum(epochs), surest, ratios, options.concentration, options.chance)
    stays = sum(epochs) * paces[0]
    return Times(left, min(low, left, stays), max(high, left, stays))


def explanation(belief: Belief, past: Past, ran: float, options: ShockwaveForecastOptions) -> Explanation:
    """Explain the expected regimes of a job and the time that they take.

    Args:
        belief: the posterior of the job.
        past: the epochs done by the job.
        ran: seconds that the job has run.
        options: options of the plugin.
    """
    epochs, present = belief.posterior.left(past), belief.posterior.present
    parts = [
        f"{each:.1f} epochs at batch size {batch:g}"
        for each, batch in zip(epochs, belief.batch_sizes[present:], strict=True)
    ]
    times, coming = times_left(belief, past, options), {"forecast_regimes_to_come": float(len(epochs) - 1)}
    regimes = f"Its forecast is {', then '.join(parts)}"
    if math.isnan(times.left):
        return Explanation(text=f"{regimes}; how long that takes is not known until a rate is.", numbers=coming)
    bounds = f", with a chance of {options.chance:.0%} between {times.low:.0f} s and {times.high:.0f} s"
    text = f"{regimes}: {times.left:.0f} s of running left{bounds if times.high > times.low else ''}."
    numbers = {
        "forecast_left_seconds": times.left,
        "forecast_low_seconds": times.low,
        "forecast_high_seconds": times.high,
        "forecast_total_seconds": ran + times.left,
    }
    return Explanation(text=text, numbers=numbers | coming)
