"""Dirichlet posteriors of the lengths of a job's regimes, in epochs (Shockwave, NSDI'23, §5)."""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from eunomia.model.shapes import value

Rule = Literal["restatement", "bayesian", "last"]
"""How a posterior follows from the epochs that a job has done; ``last`` expects no further regime."""


class Past(NamedTuple):
    """The epochs that a job has done, by regime."""

    finished: tuple[float, ...]
    """Epochs of each regime that ended."""
    present: float
    """Epochs of the present regime so far."""

    @property
    def done(self) -> float:
        """Epochs done."""
        return sum(self.finished) + self.present


@value
class Posterior:
    """Dirichlet parameters of a job's regimes: the expected epochs of the regimes are in proportion to them.

    Before any epoch it is the prior Dir(N/K, ..., N/K) of K regimes in N epochs.
    """

    epochs: float
    """N, epochs of the job."""
    parameters: tuple[float, ...]
    """By regime, including finished ones; all above 0, except for finished regimes without an epoch."""
    present: int
    """Index of the present regime."""

    def mean(self) -> tuple[float, ...]:
        """Return the expected epochs of each regime; they sum to ``epochs``."""
        whole = sum(self.parameters)
        return tuple(self.epochs * each / whole for each in self.parameters)

    def left(self, past: Past) -> tuple[float, ...]:
        """Return the remaining epochs of the present regime and of each coming one; they sum to the epochs left.

        A present regime that lasts longer than its mean is expected to end with its present epoch.
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
    among the present regime and the coming ones. ``bayesian`` adds the observed epochs, including those of the
    present regime, to the prior. ``last`` gives all remaining epochs to the present regime.

    Args:
        rule: of the update.
        epochs: N, of the job.
        regimes: K, the most regimes; more, if more have been seen.
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
"""Least number of remaining epochs, so that parameters of coming regimes are above 0."""


def seconds_between(
    left: float, paces: Sequence[float], ratios: Sequence[float], counts: float, chance: float
) -> tuple[float, float]:
    """Return bounds between which the time of the remaining epochs lies with this probability.

    The remaining epochs are divided among regimes by a symmetric Dirichlet distribution. Where the rate at a batch
    size is not known, samples a second grow with a power of it, uniform from 0 to 1 and the same for all regimes.
    The time is taken as a Beta distribution of the same mean and variance between its minimum and maximum.

    Args:
        left: epochs left.
        paces: seconds an epoch in the present regime and in each coming one; where the rate is not known, as at
            present.
        ratios: by regime, its batch size over the present one where the rate is not known; else 1.
        counts: the distribution's parameter of each regime; 1: all divisions are equally likely.
        chance: the probability, above 0 and below 1.
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
    from scipy.special import betaincinv  # a tenth of a second, which only runs with adapting jobs pay

    low, high = (float(betaincinv(one, other, (1.0 + side * chance) / 2.0)) for side in (-1.0, 1.0))
    return left * (least + low * (most - least)), left * (least + high * (most - least))


_POWERS = tuple((place + 0.5) / 8.0 for place in range(8))
"""Powers that represent the uniform distribution from 0 to 1."""
