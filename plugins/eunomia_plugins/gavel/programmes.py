"""Fast solvers of the family's linear programmes: equal jobs form one class, and a single pool of GPUs needs no solver.

The module ``reference`` states the same programmes in cvxpy, job by job.
"""

from typing import NamedTuple

import numpy as np

from eunomia.units import Ints, Reals
from eunomia_plugins.gavel.instance import Instance
from eunomia_solvers import Limits, LinearProgram, Solution, SolveError, SparseRows, solve_linear


class Classes(NamedTuple):
    """Classes of jobs with equal inputs to a programme; as it is convex, jobs of a class can have equal shares."""

    of: Ints
    """[job] index of its class."""
    jobs: Reals
    """[class] number of jobs."""
    gpus: Reals
    """[class] size of the gang."""
    table: Reals
    """[class, column] inputs of the programme."""


def classes_of(instance: Instance, table: Reals) -> Classes:
    """Group jobs with equal gang sizes and equal rows of a table."""
    keys = np.column_stack([instance.gpus, table])
    distinct, of, count = np.unique(keys, axis=0, return_inverse=True, return_counts=True)
    return Classes(of.ravel(), count.astype(float), distinct[:, 0], distinct[:, 1:])


def highest_level(instance: Instance, gain: Reals) -> tuple[Reals, float]:
    """Maximise the smallest gain of a job: max over X of min over m of sum_j gain[m, j] X[m, j] (Gavel §4.1).

    Args:
        instance: jobs and capacity.
        gain: [job, type] value of the whole time on a type to a job; every job gains on some type.

    Returns:
        [job, type] time shares at which every job has exactly the level, and the level.
    """
    if instance.gpus.size == 0:
        return np.zeros(gain.shape), 0.0
    if instance.pooled and (gain == gain[:, :1]).all():
        return _pooled_level(instance, gain[:, 0])
    most = float(gain.max(axis=1).min())  # the least gain of a job alone: the level cannot exceed it
    classes = classes_of(instance, gain / most)
    share, level = _level_of_classes(classes, instance.capacity)
    reached = (classes.table * share).sum(axis=1)
    share *= (level / np.where(reached > 0.0, reached, 1.0))[:, None]
    return share[classes.of], level * most


def _pooled_level(instance: Instance, gain: Reals) -> tuple[Reals, float]:
    """Solve in closed form for a single pool of GPUs; a job's share is divided over types in proportion to GPUs."""
    total = float(instance.capacity.sum())
    level = min(float(gain.min()), total / float((instance.gpus / gain).sum()))
    return (level / gain)[:, None] * (instance.capacity / total), level


def _level_of_classes(classes: Classes, capacity: Reals) -> tuple[Reals, float]:
    kinds, types = classes.table.shape
    cells = np.arange(kinds * types).reshape(kinds, types)
    level = kinds * types
    rows = [_above(cells[kind], classes.table[kind], level) for kind in range(kinds)] + cluster_rows(cells, classes)
    lower = np.concatenate([np.zeros(kinds), np.full(kinds + types, -np.inf)])
    upper = np.concatenate([np.full(kinds, np.inf), np.ones(kinds), capacity])
    cost = np.zeros(level + 1)
    cost[level] = 1.0
    most = np.append(np.where(classes.table > 0.0, 1.0, 0.0).ravel(), np.inf)
    programme = LinearProgram.of(
        cost, rows=SparseRows.of(rows), row_lower=lower, row_upper=upper, upper=most, maximise=True
    )
    solution = _central_optimum(programme, "gavel, the highest level")
    return solution.x[:level].reshape(kinds, types), float(solution.x[level])


def _central_optimum(programme: LinearProgram, place: str) -> Solution:
    """Return an optimum near the centre of all optima, or a corner if the interior point is too inexact."""
    try:
        return solve_linear(programme, limits=Limits(corner=False), place=place)
    except SolveError:
        return solve_linear(programme, place=place)


def _above(cells: Ints, gain: Reals, level: int) -> tuple[Ints, Reals | float]:
    """Return a constraint row that is nonnegative if the gain of these cells is at least the variable ``level``."""
    return np.append(cells, level), np.append(gain, -1.0)


def greatest_sum(instance: Instance, value: Reals) -> tuple[Reals, float]:
    """Maximise the sum over m and j of value[m, j] X[m, j] within the cluster's capacity.

    Returns:
        [job, type] time shares, and the sum.
    """
    if instance.gpus.size == 0:
        return np.zeros(value.shape), 0.0
    if instance.capacity.size == 1:
        return _fractional_knapsack(instance, value)
    classes = classes_of(instance, value)
    kinds, types = classes.table.shape
    cells = np.arange(kinds * types).reshape(kinds, types)
    upper = np.concatenate([np.ones(kinds), instance.capacity])
    programme = LinearProgram.of(
        (classes.jobs[:, None] * classes.table).ravel(),
        rows=SparseRows.of(cluster_rows(cells, classes)),
        row_upper=upper,
        upper=np.where(classes.table > 0.0, 1.0, 0.0).ravel(),
        maximise=True,
    )
    solution = solve_linear(programme, place="gavel, the greatest sum")
    return solution.x.reshape(kinds, types)[classes.of], solution.objective


def _fractional_knapsack(instance: Instance, value: Reals) -> tuple[Reals, float]:
    """Solve for a single type: serve jobs by value per GPU; the jobs of the last class share what is left."""
    classes = classes_of(instance, value)
    share = np.zeros(classes.gpus.size)
    left = float(instance.capacity[0])
    for kind in np.argsort(-classes.table[:, 0] / classes.gpus, kind="stable").tolist():
        demand = float(classes.jobs[kind] * classes.gpus[kind])
        share[kind] = min(1.0, left / demand) if classes.table[kind, 0] > 0.0 else 0.0
        left -= share[kind] * demand
    return share[classes.of][:, None], float((classes.jobs * classes.table[:, 0] * share).sum())


def cluster_rows(cells: Ints, classes: Classes) -> list[tuple[Ints, Reals | float]]:
    """Return the constraints: no job exceeds the whole time, and the gangs on a type use at most its GPUs."""
    demand = classes.jobs * classes.gpus
    time: list[tuple[Ints, Reals | float]] = [(row, 1.0) for row in cells]
    return time + [(cells[:, kind], demand) for kind in range(cells.shape[1])]


def spread(instance: Instance, share: Reals) -> Reals:
    """Distribute the capacity left by a solution: the same additional time share for every job, as far as possible.

    Each job takes it from the types that it can use, in proportion to what is left of them; a job that reaches a share
    of 1 gets no more.
    """
    left = np.maximum(instance.capacity - instance.gpus @ share, 0.0)
    takes = np.where(instance.able, left, 0.0)
    total = takes.sum(axis=1, keepdims=True)
    takes = np.divide(takes, total, out=np.zeros_like(takes), where=total > 0.0)
    used = instance.gpus @ takes
    busy = used > 0.0
    if not busy.any():
        return share
    more = takes * float((left[busy] / used[busy]).min())
    wanted = more.sum(axis=1)
    room = np.maximum(1.0 - share.sum(axis=1), 0.0)
    part = np.where(wanted > room, room / np.where(wanted > 0.0, wanted, 1.0), 1.0)
    given: Reals = share + more * part[:, None]
    return given
