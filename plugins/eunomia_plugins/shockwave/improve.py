"""Improve a packed plan one round at a time, if different gang sizes keep the plan below the upper bound."""

import numpy as np

from eunomia.units import Bools, Ints, Reals
from eunomia_plugins.shockwave.instance import Instance

PASSES = 8
"""Maximum number of passes over all rounds."""
BETTER = 1e-9
"""Minimum relative improvement."""


def improve(instance: Instance, plan: Bools) -> Bools:
    """Optimise the jobs of one round after another, with the other rounds fixed, until no round changes.

    Args:
        instance: the programme.
        plan: [job, round] whether the job runs.
    """
    plan = plan.copy()
    best = instance.objective(plan.sum(axis=1))
    for _ in range(PASSES):
        before = best
        for turn in range(instance.rounds):
            others = plan.sum(axis=1) - plan[:, turn]
            for chosen in _choices(instance, others):
                found = instance.objective(others + chosen)
                if found > best + BETTER * abs(best):
                    plan[:, turn], best = chosen, found
        if best <= before + BETTER * abs(before):
            break
    return plan


def _choices(instance: Instance, counts: Ints) -> list[Bools]:
    """Return candidate sets of jobs for a round.

    One set assumes that the mean determines H; others, with and without the longest job, that this job does.
    """
    every = np.arange(instance.jobs)
    gain = instance.value[every, counts + 1] - instance.value[every, counts]
    left = np.maximum(instance.left - instance.seconds * counts, 0.0)
    shorter = np.minimum(left, instance.seconds)
    found = [_knapsack(gain + instance.price * instance.part * shorter, instance.gpus, instance.capacity)]
    if instance.jobs:
        longest = np.zeros(instance.jobs)
        longest[int(left.argmax())] = instance.price * float(shorter[int(left.argmax())])
        found += [_knapsack(gain + bonus, instance.gpus, instance.capacity) for bonus in (longest, np.zeros(1))]
    return found


def _knapsack(gain: Reals, gpus: Ints, capacity: int) -> Bools:
    """Return the jobs with the largest total gain that fit together (a knapsack problem).

    Jobs of equal gang size are taken in order of gain; dynamic programming combines the sizes.
    """
    chosen = np.zeros(gain.size, dtype=bool)
    value = np.zeros(capacity + 1)
    taken: list[tuple[Ints, int, Ints]] = []
    for size in np.unique(gpus).tolist():
        own = np.flatnonzero((gpus == size) & (gain > 0.0))
        own = own[np.argsort(-gain[own], kind="stable")][: capacity // size]
        sums = np.concatenate([[0.0], np.cumsum(gain[own])])
        room = np.arange(capacity + 1)[:, None] - size * np.arange(sums.size)
        table = np.where(room >= 0, value[np.maximum(room, 0)] + sums, -np.inf)
        number = table.argmax(axis=1)
        value = table[np.arange(capacity + 1), number]
        taken.append((own, size, number))
    left = capacity
    for own, size, number in reversed(taken):
        chosen[own[: number[left]]] = True
        left -= size * int(number[left])
    return chosen
