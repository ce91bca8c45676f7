"""Plan a window with the fast solver: count rounds per job, pack them, and compute the value and a certified bound."""

from typing import NamedTuple

import numpy as np

from eunomia.units import Bools, Ints, Reals
from eunomia_plugins.shockwave.counts import count_rounds
from eunomia_plugins.shockwave.improve import improve
from eunomia_plugins.shockwave.instance import Instance
from eunomia_plugins.shockwave.packing import filled, pack, pack_by_width, repair, sorted_rounds
from eunomia_plugins.shockwave.record import PlanRecord

FEW = 128
"""Maximum number of jobs for which a plan is improved if gangs do not fit as counted; with more jobs, gangs of all
sizes fill the rounds anyway."""
TINY = 256
"""Maximum number of jobs x rounds for which a plan is improved if GPUs stay idle although jobs have work, and for which
the best of several plans is used."""
GAP = 0.05
"""Relative gap above which a plan is improved round by round."""
MOST_GIVEN_UP = 2
"""Maximum number of rounds that a job gives up to others if GPUs stay idle."""
STAY = 1.5
"""Factor by which another job's gain must be larger before it displaces a running job, since a start costs time.
"""


class Planned(NamedTuple):
    """A plan, and the record of its value and upper bound."""

    rounds: Bools
    """[job, round] whether the job runs."""
    record: PlanRecord


def plan_window(instance: Instance, running: Bools) -> Planned:
    """Count the rounds of each job, and pack them into a plan.

    Args:
        instance: the programme.
        running: [job] whether it runs before the window.
    """
    granted = count_rounds(instance)
    rounds = _packed(instance, granted.counts, running)
    made = record_of(instance, rounds, running, granted.bound)
    if (instance.jobs <= FEW and made.gap > GAP) or (rounds.size <= TINY and _idles(instance, rounds)):
        rounds = _improved(instance, rounds, granted.counts, running)
        if rounds.size <= TINY and _idles(instance, rounds):
            rounds = _exchanged(instance, rounds, running)
        made = record_of(instance, rounds, running, granted.bound)
    return Planned(rounds, made)


def _packed(instance: Instance, counts: Ints, running: Bools) -> Bools:
    """Return a plan with these numbers of rounds per job, as far as gangs fit."""
    key = start_order(instance, counts, running)
    rounds = pack(counts, instance.useful, instance.gpus, key, capacity=instance.capacity, rounds=instance.rounds)
    if instance.jobs <= FEW and (rounds.sum(axis=1) < counts).any():
        rounds = repair(rounds, counts, instance.gpus, instance.capacity)
    if rounds.size <= TINY and _idles(instance, rounds):
        rounds = filled(rounds, instance.useful, instance.gpus, key, instance.capacity)
    return rounds


def _idles(instance: Instance, rounds: Bools) -> bool:
    """Return whether GPUs are idle in a round although jobs have work for them."""
    needed = int(instance.gpus @ instance.useful)
    return int(instance.gpus @ rounds.sum(axis=1)) < min(instance.capacity * instance.rounds, needed)


def _improved(instance: Instance, rounds: Bools, counts: Ints, running: Bools) -> Bools:
    """Return an improved plan, in the usual order of starts.

    It is packed again, or its rounds are sorted if gangs do not fit that way.
    """
    key = start_order(instance, counts, running)
    other = pack_by_width(counts, instance.gpus, key, capacity=instance.capacity, rounds=instance.rounds)
    starts = (rounds, other, np.zeros_like(rounds)) if rounds.size <= TINY else (rounds,)
    better = max((improve(instance, plan) for plan in starts), key=lambda plan: _worth(instance, plan))
    counts = better.sum(axis=1)
    if _worth(instance, better) <= _worth(instance, rounds):
        return rounds
    key = start_order(instance, counts, running)
    again = pack(counts, instance.useful, instance.gpus, key, capacity=instance.capacity, rounds=instance.rounds)
    again = repair(again, counts, instance.gpus, instance.capacity)
    if _worth(instance, again) >= _worth(instance, better):
        return again
    return sorted_rounds(better, key)


def _exchanged(instance: Instance, rounds: Bools, running: Bools) -> Bools:
    """Return a better plan in which a job gives up rounds to others because GPUs are idle.

    Returns the same plan if no better one is found.
    """
    best, counts = rounds, rounds.sum(axis=1)
    key = start_order(instance, counts, running)
    for job in np.flatnonzero(counts > 0).tolist():
        for fewer in range(min(MOST_GIVEN_UP, int(counts[job])) + 1):
            wanted = counts.copy()
            wanted[job] -= fewer
            plan = pack_by_width(wanted, instance.gpus, key, capacity=instance.capacity, rounds=instance.rounds)
            last = np.where(np.arange(instance.jobs) == job, np.inf, key)  # the others are served first
            plan = filled(plan, instance.useful, instance.gpus, last, instance.capacity)
            more = int(instance.gpus @ plan.sum(axis=1)) >= int(instance.gpus @ best.sum(axis=1))
            if more and _worth(instance, plan) > _worth(instance, best):
                best = sorted_rounds(plan, key)
    return best


def _worth(instance: Instance, plan: Bools) -> float:
    return instance.objective(plan.sum(axis=1))


def start_order(instance: Instance, counts: Ints, running: Bools) -> Reals:
    """Return the sort key of each job for the order of starts, lower first; (11) leaves this order open.

    Jobs that end within the window come first, shortest first, so that none waits for the rest of a longer one. Other
    jobs follow by gain per GPU-round, those that determine the makespan bound first.
    """
    every = np.arange(instance.jobs)
    left = np.maximum(instance.left - instance.seconds * counts, 0.0)
    gain = instance.value[every, counts] - instance.value[:, 0]
    gain = gain + instance.price * instance.part * (instance.left - left)
    mean, longest = instance.terms(counts)
    if longest > mean:
        near = instance.left >= instance.left.max(initial=0.0) - instance.seconds
        gain[near] += instance.price * instance.seconds * instance.rounds
    density = gain / np.maximum(counts * instance.gpus, 1) * np.where(running, STAY, 1.0)
    order = np.empty(instance.jobs)
    order[np.lexsort((-density, np.where(left > 0.0, np.inf, instance.left)))] = every
    return order


def record_of(
    instance: Instance, rounds: Bools, running: Bools, bound: float, *, cut_short: bool = False
) -> PlanRecord:
    """Return the record of a plan.

    Args:
        instance: the programme.
        rounds: [job, round] whether the job runs.
        running: [job] whether it runs before the window.
        bound: upper bound on the objective, times N M.
        cut_short: whether a time limit ended the solver.
    """
    counts = rounds.sum(axis=1)
    objective = instance.objective(counts)
    return PlanRecord(
        jobs=instance.jobs,
        rounds=instance.rounds,
        objective=objective / instance.scale,
        bound=bound / instance.scale,
        gap=max(0.0, bound - objective) / max(abs(objective), 1e-12),
        makespan_bound=max(instance.terms(counts)),
        starts=starts_of(rounds, running),
        granted=int(instance.gpus @ counts),
        cut_short=cut_short,
    )


def starts_of(rounds: Bools, running: Bools) -> int:
    """Return the number of starts within the window.

    Args:
        rounds: [job, round] whether the job runs.
        running: [job] whether it runs before the window.
    """
    before = np.column_stack([running, rounds[:, :-1]])
    return int((rounds & ~before).sum())
