"""Quantiles of Beta distributions; importing those of scipy takes longer than all forecasts of a simulation."""

import math
from typing import Final

_MOST: Final = 1000
"""Greatest number of terms of a continued fraction, and of steps of a search; parameters below millions need a few
dozen."""
_SMALL: Final = 1e-300
_PRECISE: Final = 1e-14
_NEAR: Final = 1e-6
"""A step of at most this relative size ends a search: the error of the next value is of its third power."""
_LARGEST: Final = 700.0
"""Largest exponent of a float."""
_EDGE: Final = 1e-12
"""Least distance of a first guess from 0 and 1."""


def beta_quantile(one: float, other: float, chance: float) -> float:
    """Return the value in [0, 1] that a Beta variable does not exceed with this probability.

    Args:
        one: first parameter, above 0.
        other: second parameter, above 0.
        chance: the probability, above 0 and below 1.
    """
    low, high, at = 0.0, 1.0, _guess(one, other, chance)
    scale = math.lgamma(one + other) - math.lgamma(one) - math.lgamma(other)
    for _ in range(_MOST):
        error = beta_part(one, other, at) - chance
        low, high = (low, at) if error > 0.0 else (at, high)
        density = scale + (one - 1.0) * math.log(at) + (other - 1.0) * math.log1p(-at)
        step = error * math.exp(min(-density, _LARGEST))
        bend = max(-1.0, min(step * ((one - 1.0) / at - (other - 1.0) / (1.0 - at)), 1.0))
        after = at - step / (1.0 - 0.5 * bend)  # Halley's method
        if low < after < high:
            if abs(after - at) <= _NEAR * min(at, 1.0 - at):
                return after
        else:
            after = 0.5 * (low + high)
            if after in (low, high):
                return after
        at = after
    return at


def _guess(one: float, other: float, chance: float) -> float:
    """Return a first guess, from the powers that approximate the distribution near 0 and 1."""
    begins = math.exp(one * math.log(one / (one + other))) / one
    ends = math.exp(other * math.log(other / (one + other))) / other
    whole = begins + ends
    if not whole > 0.0:
        return one / (one + other)
    if chance < begins / whole:
        found: float = (one * whole * chance) ** (1.0 / one)
    else:
        found = 1.0 - (other * whole * (1.0 - chance)) ** (1.0 / other)
    return min(max(found, _EDGE), 1.0 - _EDGE)


def beta_part(one: float, other: float, at: float) -> float:
    """Return the probability that a Beta variable is at most ``at``, above 0 and below 1.

    The incomplete Beta function.
    """
    if at > (one + 1.0) / (one + other + 2.0):
        return 1.0 - beta_part(other, one, 1.0 - at)
    scale = math.lgamma(one + other) - math.lgamma(one) - math.lgamma(other)
    front = math.exp(scale + one * math.log(at) + other * math.log1p(-at)) / one
    return front * _fraction(one, other, at)


def _fraction(one: float, other: float, at: float) -> float:
    """Return the continued fraction of the incomplete Beta function (DLMF 8.17.22), by Lentz's method."""
    upper, lower = 1.0, 1.0 / _apart(1.0 - (one + other) * at / (one + 1.0))
    found = lower
    for turn in range(1, _MOST):
        before = found
        place = one + 2.0 * turn
        for factor in (
            turn * (other - turn) * at / ((place - 1.0) * place),
            -(one + turn) * (one + other + turn) * at / (place * (place + 1.0)),
        ):
            lower = 1.0 / _apart(1.0 + factor * lower)
            upper = _apart(1.0 + factor / upper)
            found *= lower * upper
        if abs(found - before) <= _PRECISE * abs(found):
            break
    return found


def _apart(value: float) -> float:
    return value if abs(value) > _SMALL else _SMALL
