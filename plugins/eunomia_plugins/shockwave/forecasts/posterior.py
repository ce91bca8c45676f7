"""Dirichlet posteriors over the lengths of a job's regimes, in epochs (Shockwave, NSDI'23, §5)."""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from eunomia.model.shapes import value

Rule = Literal["restatement", "bayesian", "last"]
"""The update rule of the posterior, given the epochs done; ``last`` expects no further regime."""


class Past(NamedTuple):
    """The epochs done by a job, by regime."""

    finished: tuple[float, ...]
    """Epochs of each finished regime."""
    present: float
    """Epochs of the present regime so far."""

    @property
    def done(self) -> float:
        """Return the total number of epochs done."""
        return sum(self.finished) + self.present


@value
class Posterior:
    """Dirichlet parameters of a job's regimes, to which the expected epochs of the regimes are proportional.

    Before the first epoch this is the prior Dir(N/K, ..., N/K) for K regimes in N epochs.
    """

    epochs: float
    """N, the total number of epochs of the job."""
    parameters: tuple[float, ...]
    """Parameter of each regime, including finished ones; positive except for finished regimes without an epoch."""
    present: int
    """Index of the present regime."""

    def mean(self) -> tuple[float, ...]:
        """Return the expected epochs of each regime; they sum to ``epochs``."""
        whole = sum(self.parameters)
        return tuple(self.epochs * each / whole for each in self.parameters)

    def left(self, past: Past) -> tuple[float, ...]:
        """Return the remaining epochs of the present and each future regime, which sum to the epochs left.

        If the present regime has exceeded its mean, it is expected to end with its present epoch.
        """
        left = max(self.epochs - past.done, 0.0)
        coming = self.mean()[self.present :]
        if len(coming) == 1:
            return (left,)
        present = max(coming[0], math.floor(past.present) + 1.0) - past.present
        present, later = min(present, left), sum(coming[1:])
        part = (left - present) / later if later > 0.0 else 0.0
        return (present, *(each * part for each in coming[1:]))


def posterior(rule: Rule, epochs: float, regimes: int, past: Past) -> Posterior:
    """Return the posterior of a job's regimes.

    ``restatement`` sets the parameters of finished regimes to their epochs, and divides the remaining epochs evenly
    among the present and future regimes. ``bayesian`` adds the observed epochs, including those of the present regime,
    to the prior. ``last`` gives all remaining epochs to the present regime.

    Args:
        rule: the update rule.
        epochs: N, the total number of epochs of the job.
        regimes: K, the maximum number of regimes; increased if more were observed.
        past: the epochs done.
    """
    seen = len(past.finished)
    regimes = seen + 1 if rule == "last" else max(regimes, seen + 1)
    if rule == "bayesian":
        done = (*past.finished, past.present, *(0.0,) * (regimes - seen - 1))
        return Posterior(epochs=epochs, parameters=tuple(epochs / regimes + each for each in done), present=seen)
    rest = max(epochs - sum(past.finished), past.present, _LEAST) / (regimes - seen)
    return Posterior(epochs=epochs, parameters=(*past.finished, *(rest,) * (regimes - seen)), present=seen)


_LEAST = 1e-9
"""Lower bound on the remaining epochs, which keeps the parameters of future regimes positive."""


def seconds_between(
    left: float, paces: Sequence[float], ratios: Sequence[float], counts: float, chance: float
) -> tuple[float, float]:
    """Return an interval, in seconds, that contains the time of the remaining epochs with this probability.

    The remaining epochs are divided among regimes by a symmetric Dirichlet distribution. If the rate at a batch size is
    not known, samples per second grow with a power of it, uniform on 0 to 1 and equal for all regimes. The time is
    approximated by a Beta distribution with the same mean and variance between its minimum and maximum.

    Args:
        left: epochs left.
        paces: [regime, the present one first] seconds per epoch; at an unknown rate, those of the present regime.
        ratios: [regime] ratio of its batch size to the present one if its rate is not known, else 1.
        counts: parameter of the distribution for each regime; 1 makes all divisions equally likely.
        chance: the probability, between 0 and 1 (exclusive).
    """
    ends = [pace / ratio**power for power in (0.0, 1.0) for pace, ratio in zip(paces, ratios, strict=True)]
    least, most = min(ends), max(ends)
    if len(paces) == 1 or not most > least or left <= 0.0:
        return left * least, left * least
    powers = _POWERS if any(ratio != 1.0 for ratio in ratios) else (0.0,)
    means, squares, size = 0.0, 0.0, len(paces)
    for power in powers:
        at = [(pace / ratio**power - least) / (most - least) for pace, ratio in zip(paces, ratios, strict=True)]
        mean = sum(at) / size
        spread = (sum(each * each for each in at) / size - mean * mean) / (counts * size + 1.0)
        means += mean / len(powers)
        squares += (spread + mean * mean) / len(powers)
    strength = means * (1.0 - means) / (squares - means * means) - 1.0
    one, other = means * strength, (1.0 - means) * strength
    from scipy.special import betaincinv  # imported here: the import takes 0.1 s and only adapting jobs need it

    low, high = (float(betaincinv(one, other, (1.0 + side * chance) / 2.0)) for side in (-1.0, 1.0))
    return left * (least + low * (most - least)), left * (least + high * (most - least))


_POWERS = tuple((place + 0.5) / 8.0 for place in range(8))
"""Quadrature points for a power that is uniform on 0 to 1."""
