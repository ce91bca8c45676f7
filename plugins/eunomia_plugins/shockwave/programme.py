"""The specification of a plan: programme (11) with the constraints of Appendix H, as an integer programme.

The logarithm of a job's utility is exact at every whole number of rounds. The order of regimes is respected because
the utility of n rounds is that of the first n rounds of work, and work is conserved because the value increases with
every round in which a job has work. A second programme chooses among the optimal plans one with few starts.
"""

from typing import NamedTuple

import numpy as np

from eunomia.units import Bools, Ints, Reals
from eunomia_plugins.shockwave.instance import Instance
from eunomia_solvers import Limits, LinearProgram, SolveError, solve_linear
from eunomia_solvers.program import SparseRows


class Solved(NamedTuple):
    """A plan found by an integer solver."""

    rounds: Bools
    """[job, round] whether the job runs."""
    bound: float
    """Upper bound on N·M times the objective of (11)."""
    cut_short: bool


def solve_programme(instance: Instance, running: Bools, limits: Limits) -> Solved:
    """Solve programme (11), then minimise the number of starts with the same number of rounds per job.

    Args:
        instance: the programme.
        running: [job] whether it runs before the window.
        limits: limits of each of the two programmes.

    Raises:
        SolveError: a limit was reached before any plan was found.
    """
    if instance.jobs == 0:
        return Solved(np.zeros((0, instance.rounds), dtype=bool), 0.0, cut_short=False)
    first = solve_linear(_welfare(instance), limits=limits, place="shockwave")
    size = instance.jobs * instance.rounds
    rounds = first.x[:size].reshape(instance.jobs, instance.rounds) > 0.5
    counts = rounds.sum(axis=1)
    try:
        second = solve_linear(_starts(instance, counts, running), limits=limits, place="shockwave")
    except SolveError:
        return Solved(rounds, first.bound, cut_short=first.record.cut_short)
    fewest = second.x[:size].reshape(instance.jobs, instance.rounds) > 0.5
    return Solved(fewest, first.bound, cut_short=first.record.cut_short or second.record.cut_short)


def _welfare(instance: Instance) -> LinearProgram:
    """Return programme (11); columns: X[j, t]; z[j, n], 1 if job j has n rounds; H divided by the longest time left."""
    jobs, rounds = instance.jobs, instance.rounds
    run = np.arange(jobs * rounds).reshape(jobs, rounds)
    has = jobs * rounds + np.arange(jobs * (rounds + 1)).reshape(jobs, rounds + 1)
    bound = jobs * rounds + has.size
    unit = max(float(instance.left.max()), 1.0)
    remaining = instance.remaining() / unit
    numbers = np.arange(rounds + 1.0)
    rows: list[tuple[Ints, Reals]] = [(has[job], np.ones(rounds + 1)) for job in range(jobs)]
    rows += [
        (np.append(run[job], has[job]), np.append(np.ones(rounds), -numbers)) for job in range(jobs)
    ]  # rounds by job
    rows += [(run[:, turn], instance.gpus.astype(float)) for turn in range(rounds)]
    mean = instance.part[:, None] * remaining
    rows.append((np.append(has.ravel(), bound), np.append(mean.ravel(), -1.0)))
    rows += [(np.append(has[job], bound), np.append(remaining[job], -1.0)) for job in range(jobs)]
    lower = np.concatenate([np.ones(jobs), np.zeros(jobs), np.full(rounds + 1 + jobs, -np.inf)])
    upper = np.concatenate(
        [np.ones(jobs), np.zeros(jobs), np.full(rounds, float(instance.capacity)), np.zeros(1 + jobs)]
    )
    cost = np.concatenate([np.zeros(run.size), instance.value.ravel(), [-instance.price * unit]])
    return LinearProgram.of(
        cost,
        rows=SparseRows.of(rows),
        row_lower=lower,
        row_upper=upper,
        lower=0.0,
        upper=np.append(np.ones(bound), np.inf),
        integral=np.append(np.ones(bound, dtype=bool), False),
        maximise=True,
    )


def _starts(instance: Instance, counts: Ints, running: Bools) -> LinearProgram:
    """Return the programme of fewest starts, with columns X[j, t] and s[j, t] >= X[j, t] - X[j, t - 1]."""
    jobs, rounds = instance.jobs, instance.rounds
    run = np.arange(jobs * rounds).reshape(jobs, rounds)
    start = run + run.size
    rows: list[tuple[Ints, Reals]] = [(run[job], np.ones(rounds)) for job in range(jobs)]
    rows += [(run[:, turn], instance.gpus.astype(float)) for turn in range(rounds)]
    rows += [(np.array([start[job, 0], run[job, 0]]), np.array([1.0, -1.0])) for job in range(jobs)]
    rows += [
        (np.array([start[job, turn], run[job, turn], run[job, turn - 1]]), np.array([1.0, -1.0, 1.0]))
        for job in range(jobs)
        for turn in range(1, rounds)
    ]
    before = -running.astype(float)
    return LinearProgram.of(
        np.concatenate([np.zeros(run.size), np.ones(run.size)]),
        rows=SparseRows.of(rows),
        row_lower=np.concatenate([counts, np.full(rounds, -np.inf), before, np.zeros(jobs * (rounds - 1))]),
        row_upper=np.concatenate([counts, np.full(rounds, float(instance.capacity)), np.full(jobs * rounds, np.inf)]),
        lower=0.0,
        upper=1.0,
        integral=np.arange(2 * run.size) < run.size,
    )
