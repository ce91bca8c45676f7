"""How many rounds each job is granted: concave hulls, a greedy over gains per GPU-round, and a certified bound.

Utility and makespan bound depend on a plan only through the number of rounds of each job. Apart from which rounds
these are, the programme is separable except for capacity and for the longest job in H. The greedy on concave hulls
solves its continuous form, whose value no plan exceeds.
"""

from typing import NamedTuple

import numpy as np

from eunomia.units import Ints, Reals
from eunomia_plugins.shockwave.hull import hull_slopes
from eunomia_plugins.shockwave.instance import Instance

SAME = 1e-9
"""Relative tolerance of comparisons."""
MOST_TRIED = 1000
"""Greatest number of steps that are tried after the first one that does not fit; gang sizes are few, so a small gang
follows soon."""


class Counted(NamedTuple):
    """Rounds by job, and an upper bound for every plan."""

    counts: Ints
    bound: float
    """Upper bound of the objective times N M."""


class Steps(NamedTuple):
    """All further rounds of all jobs, the greatest gain per GPU first; rounds without a gain are left out."""

    job: Ints
    number: Ints
    """Number of the round among the job's rounds, from 0."""
    gpus: Ints
    gain: Reals
    used: Ints
    """GPU-rounds of the steps before each, and of all."""
    gained: Reals
    """Gain of the steps before each, and of all."""
    start: float
    """Value without any round."""
    slopes: Reals
    """[job, number] gains of all steps."""


def count_rounds(instance: Instance) -> Counted:
    """Grant rounds to jobs; where the longest job determines H, with limits on the time that jobs have left."""
    steps = sorted_steps(instance, 1.0)
    counts = granted(instance, steps, np.zeros(instance.jobs, np.int64))
    mean, longest = instance.terms(counts)
    bound = upper_bound(instance, steps, np.zeros(instance.jobs))
    if mean >= longest * (1.0 - SAME) or instance.price == 0.0:
        return Counted(counts, bound)
    return _with_longest(instance, Counted(counts, bound))


def sorted_steps(instance: Instance, mean: float) -> Steps:
    """Return the gains of rounds, where H is this fraction of its first term, the mean."""
    value = instance.value - (instance.price * mean * instance.part)[:, None] * instance.remaining()
    slopes = hull_slopes(value)
    gain = (slopes / instance.gpus[:, None]).ravel()
    useful = np.flatnonzero(gain > 0.0)
    order = useful[np.argsort(-gain[useful], kind="stable")]
    job, number = np.divmod(order, instance.rounds)
    gpus, gains = instance.gpus[job], slopes.ravel()[order]
    used = np.concatenate([[0], np.cumsum(gpus)])
    gained = np.concatenate([[0.0], np.cumsum(gains)])
    return Steps(job, number, gpus, gains, used, gained, float(value[:, 0].sum()), slopes)


def granted(instance: Instance, steps: Steps, least: Ints) -> Ints:
    """Return rounds by job in order of gain, no fewer than these."""
    room = instance.capacity * instance.rounds - int(instance.gpus @ least)
    free = np.flatnonzero(steps.number >= least[steps.job])
    job, gpus = steps.job[free], steps.gpus[free]
    head = int(np.searchsorted(np.cumsum(gpus), room, side="right"))
    counts: Ints = least + np.bincount(job[:head], minlength=instance.jobs)
    room -= int(gpus[:head].sum())
    for index in range(head, min(job.size, head + MOST_TRIED)):
        if room <= 0:
            break
        if gpus[index] <= room and counts[job[index]] == steps.number[free[index]]:
            counts[job[index]] += 1
            room -= int(gpus[index])
    return counts


def marginal(instance: Instance, steps: Steps) -> float:
    """Return the gain per GPU-round of the first step without room; 0: all steps fit."""
    head = int(np.searchsorted(steps.used, instance.capacity * instance.rounds, side="right")) - 1
    return float(steps.gain[head] / steps.gpus[head]) if head < steps.job.size else 0.0


def upper_bound(instance: Instance, steps: Steps, longest: Reals, price: float | None = None) -> float:
    """Return an upper bound for every plan, by duality: GPU-rounds have a price, and H is at least a mean of its terms.

    Args:
        instance: the programme.
        steps: with the part of the first term in H.
        longest: by job, the part of its time left in H; these parts and that of the first term sum to 1.
        price: of a GPU-round; None: the gain of the first step that does not fit.
    """
    price = marginal(instance, steps) if price is None else price
    found = steps.start + price * instance.capacity * instance.rounds
    found += float(np.maximum(steps.slopes - price * instance.gpus[:, None], 0.0).sum())
    near = np.flatnonzero(longest > 0.0)
    if near.size:
        saved = (instance.price * longest[near])[:, None] * -np.diff(instance.remaining()[near], axis=1)
        cost = price * instance.gpus[near, None]
        found += float((np.maximum(steps.slopes[near] + saved - cost, 0.0)).sum())
        found -= float(np.maximum(steps.slopes[near] - cost, 0.0).sum())
        found -= instance.price * float(longest[near] @ instance.left[near])
    return found


# --- the longest job sets H -------------------------------------------------------------------------------------------

SWEEP = 40
"""Greatest number of levels that a search visits; each narrows the interval of the best one by the golden section."""
FINE = 1e-3
"""Precision of the best level, as a fraction of a round."""
_GOLDEN = 0.6180339887498949


class _Limited(NamedTuple):
    """The continuous form where no job may have more than a given time left."""

    value: float
    """Value of the objective with that time as H and this fraction of the mean; -inf: infeasible."""
    level: float
    price: float
    """Gain per GPU-round of the first step that does not fit."""


def _with_longest(instance: Instance, first: Counted) -> Counted:
    """Return the best result over levels of the longest time left.

    H is that level, or half of it and half of the mean.
    """
    found, bounds = [first.counts], [first.bound]
    for mean in (0.0, 0.5):
        steps = sorted_steps(instance, mean)
        best = _best_level(instance, steps, mean)
        if best.value > -np.inf:
            counts = granted(instance, steps, _least(instance, best.level))
            found.append(counts)
            bounds.append(_bound_at(instance, steps, mean, best))
            average, longest = instance.terms(counts)
            if average <= longest:
                break  # the mean does not matter
    return Counted(max(found, key=instance.objective), min(bounds))


def _least(instance: Instance, level: float) -> Ints:
    """Return by job the fewest rounds after which it has at most that time left."""
    over = np.maximum(instance.left - level, 0.0)
    least: Ints = np.ceil(over / instance.seconds - SAME).astype(np.int64)
    return np.minimum(least, instance.rounds)


def _best_level(instance: Instance, steps: Steps, mean: float) -> _Limited:
    """Search for the best level by the golden section; the value is concave in it, up to whole rounds."""
    low = max(float(instance.left.max(initial=0.0)) - instance.seconds * instance.rounds, 0.0)
    high = float(instance.left.max(initial=0.0))
    long = np.flatnonzero(instance.left[steps.job] > low)

    def at(level: float) -> _Limited:
        return _limited(instance, steps, long, mean, level)

    tried = [at(low), at(high)]
    one, two = at(high - _GOLDEN * (high - low)), at(low + _GOLDEN * (high - low))
    for _ in range(SWEEP):
        tried += [one, two]
        if high - low <= FINE * instance.seconds:
            break
        if one.value >= two.value and one.value > -np.inf:
            high, two = two.level, one
            one = at(high - _GOLDEN * (high - low))
        else:
            low, one = one.level, two
            two = at(low + _GOLDEN * (high - low))
    return max(tried, key=lambda found: found.value)


def _limited(instance: Instance, steps: Steps, long: Ints, mean: float, level: float) -> _Limited:
    """Return the continuous form with the rounds that jobs need at this level.

    Only steps at ``long`` can be among these.
    """
    room = instance.capacity * instance.rounds
    jobs = steps.job[long]
    must = long[steps.number[long] < np.ceil((instance.left[jobs] - level) / instance.seconds - SAME)]
    used = np.concatenate([np.cumsum(steps.gpus[must][::-1])[::-1], [0]])  # from each of them on
    gained = np.concatenate([np.cumsum(steps.gain[must][::-1])[::-1], [0.0]])
    if used[0] > room:
        return _Limited(-np.inf, level, 0.0)
    low, high = 0, steps.job.size  # steps before the head are served, and those that must be after it
    while low < high:
        head = (low + high + 1) // 2
        if steps.used[head] + used[np.searchsorted(must, head)] <= room:
            low = head
        else:
            high = head - 1
    behind = int(np.searchsorted(must, low))
    value = steps.start + float(steps.gained[low] + gained[behind])
    price = 0.0
    if low < steps.job.size:
        price = float(steps.gain[low] / steps.gpus[low])
        value += price * float(room - steps.used[low] - used[behind])
    return _Limited(value - instance.price * (1.0 - mean) * level, level, price)


def _bound_at(instance: Instance, steps: Steps, mean: float, best: _Limited) -> float:
    """Return the bound with H as the mean of jobs' times left that a level suggests.

    A job with more rounds at the level than their gain is worth counts in H by the gap of its last round; the
    remainder of the level's part counts by a job with every round.
    """
    least = _least(instance, best.level)
    forced = np.flatnonzero(least > 0)
    lacks = np.zeros(instance.jobs)
    last = steps.slopes[forced, least[forced] - 1]
    lacks[forced] = np.maximum(best.price * instance.gpus[forced] - last, 0.0)
    lacks /= max(instance.price * instance.seconds, 1e-300)
    part = 1.0 - mean
    if float(lacks.sum()) > part:
        lacks *= part / float(lacks.sum())
    else:
        lacks[int(instance.left.argmax())] += part - float(lacks.sum())
    return upper_bound(instance, steps, lacks, best.price)
