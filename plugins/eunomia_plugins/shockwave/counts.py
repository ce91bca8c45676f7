"""The number of rounds granted to each job: concave hulls, a greedy algorithm by gain per GPU-round, a certified bound.

The utility and the makespan bound of a plan depend only on the number of rounds of each job. In these numbers the
programme is separable except for capacity and the longest job in H. The greedy algorithm on concave hulls solves its
continuous relaxation, whose value no plan exceeds.
"""

from typing import NamedTuple

import numpy as np

from eunomia.units import Ints, Reals
from eunomia_plugins.shockwave.hull import hull_slopes
from eunomia_plugins.shockwave.instance import Instance

SAME = 1e-9
"""Relative tolerance of comparisons."""
MOST_TRIED = 1000
"""Maximum number of steps that are tried after the first one that does not fit; as there are few gang sizes, a small
gang follows soon."""


class Counted(NamedTuple):
    """The number of rounds of each job, and an upper bound for every plan."""

    counts: Ints
    bound: float
    """Upper bound on N·M times the objective of (11)."""


class Steps(NamedTuple):
    """All possible further rounds of all jobs, largest gain per GPU first; rounds without gain are left out."""

    job: Ints
    number: Ints
    """Index of the round among the job's rounds, from 0."""
    gpus: Ints
    gain: Reals
    used: Ints
    """Cumulative GPU-rounds before each step, and the total."""
    gained: Reals
    """Cumulative gain before each step, and the total."""
    start: float
    """Value if no job gets a round."""
    slopes: Reals
    """[job, index of round] gains of all steps."""


def count_rounds(instance: Instance) -> Counted:
    """Return the rounds of each job; if the longest job determines H, every job's time left is limited to a level."""
    steps = sorted_steps(instance, 1.0)
    counts = granted(instance, steps, np.zeros(instance.jobs, np.int64))
    mean, longest = instance.terms(counts)
    bound = upper_bound(instance, steps, np.zeros(instance.jobs))
    if mean >= longest * (1.0 - SAME) or instance.price == 0.0:
        return Counted(counts, bound)
    return _with_longest(instance, Counted(counts, bound))


def sorted_steps(instance: Instance, mean: float) -> Steps:
    """Return the sorted gains of rounds, where H is the fraction ``mean`` of its first term (the mean work)."""
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
    """Return the rounds of each job, granted in order of gain, at least ``least``."""
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
    """Return the gain per GPU-round of the first step that does not fit; 0 if all steps fit."""
    head = int(np.searchsorted(steps.used, instance.capacity * instance.rounds, side="right")) - 1
    return float(steps.gain[head] / steps.gpus[head]) if head < steps.job.size else 0.0


def upper_bound(instance: Instance, steps: Steps, longest: Reals, price: float | None = None) -> float:
    """Return an upper bound for every plan by duality: GPU-rounds have a price; H is at least any mean of its terms.

    Args:
        instance: the programme.
        steps: the sorted gains, with the weight of the first term in H.
        longest: [job] weight of its time left in H; these weights and that of the first term sum to 1.
        price: price of a GPU-round; None: the gain of the first step that does not fit.
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
"""Maximum number of levels visited by the golden-section search."""
FINE = 1e-3
"""Precision of the level, as a fraction of a round."""
_GOLDEN = 0.6180339887498949


class _Limited(NamedTuple):
    """The solution of the continuous relaxation in which no job may have more than a given time left (``level``)."""

    value: float
    """Value of the objective with H composed of the level and the mean; -inf if infeasible."""
    level: float
    price: float
    """Gain per GPU-round of the first step that does not fit."""


def _with_longest(instance: Instance, first: Counted) -> Counted:
    """Return the best result over all levels of the longest time left.

    H is the level alone, or the average of level and mean.
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
                break  # the longest job alone determines H
    return Counted(max(found, key=instance.objective), min(bounds))


def _least(instance: Instance, level: float) -> Ints:
    """Return the minimum number of rounds of each job after which it has at most ``level`` seconds left."""
    over = np.maximum(instance.left - level, 0.0)
    least: Ints = np.ceil(over / instance.seconds - SAME).astype(np.int64)
    return np.minimum(least, instance.rounds)


def _best_level(instance: Instance, steps: Steps, mean: float) -> _Limited:
    """Return the best level by golden-section search; the value is concave in the level, up to whole rounds."""
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
    """Solve the continuous relaxation with the rounds that jobs need at a level.

    Only the steps at the indices ``long`` can be needed.
    """
    room = instance.capacity * instance.rounds
    jobs = steps.job[long]
    must = long[steps.number[long] < np.ceil((instance.left[jobs] - level) / instance.seconds - SAME)]
    used = np.concatenate([np.cumsum(steps.gpus[must][::-1])[::-1], [0]])  # suffix sums over needed steps
    gained = np.concatenate([np.cumsum(steps.gain[must][::-1])[::-1], [0.0]])
    if used[0] > room:
        return _Limited(-np.inf, level, 0.0)
    low, high = 0, steps.job.size  # served: all steps before the head, and the needed ones after it
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
    """Return the upper bound in which the weights of the jobs' times left in H follow from the best level.

    If the last round that a job needs at the level costs more than its gain, the job's weight is that difference over
    the price of a round's seconds in H. The remaining weight of the level goes to the job with the most time left.
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
