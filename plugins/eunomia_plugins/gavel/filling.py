"""Water filling: raise the smallest gain, then the next, until none can rise without lowering a smaller one (§4.3)."""

import numpy as np

from eunomia.units import Bools, Ints, Reals
from eunomia_plugins.gavel.instance import Instance
from eunomia_plugins.gavel.programmes import Classes, classes_of, cluster_rows
from eunomia_solvers import LinearProgram, SparseRows, solve_linear

SAME = 1e-5
"""Relative difference up to which levels count as equal."""
ROOM = 1e-6
"""Fraction by which the next step may lower a level, so that the programme stays feasible within tolerance."""


def fill_up(instance: Instance, gain: Reals) -> Reals:
    """Return the time shares, [job, type], whose sorted gains are lexicographically maximal.

    Level by level, the smallest gain of all open jobs is raised, and jobs that cannot gain more are closed; the check
    takes one linear programme per class of equal jobs.

    Args:
        instance: jobs and capacity.
        gain: [job, type] value of the whole time on a type to a job.
    """
    if instance.gpus.size == 0:
        return np.zeros(gain.shape)
    if instance.pooled and (gain == gain[:, :1]).all():
        total = float(instance.capacity.sum())
        part = pooled_level(instance.gpus, gain[:, 0], total)
        return part[:, None] * (instance.capacity / total)
    classes = classes_of(instance, gain)
    return _Filling(classes, instance.capacity).run()[classes.of]


def pooled_level(gpus: Reals, gain: Reals, total: float) -> Reals:
    """Return the time share of each job on a single pool: min(1, level / gain), at the highest feasible level."""
    if float(gpus.sum()) <= total:
        return np.ones(gpus.size)
    order = np.argsort(gain, kind="stable")
    whole = np.cumsum(gpus[order]) - gpus[order]
    rest = np.cumsum((gpus / gain)[order][::-1])[::-1]
    levels = (total - whole) / rest  # if all jobs before run all the time
    first = int(np.argmax(levels <= gain[order]))
    found: Reals = np.minimum(1.0, levels[first] / gain)
    return found


class _Filling:
    """Water filling over classes of jobs."""

    def __init__(self, classes: Classes, capacity: Reals) -> None:
        self.classes, self.capacity = classes, capacity
        self.floor = np.zeros(classes.gpus.size)
        self.closed: Bools = np.zeros(classes.gpus.size, dtype=bool)

    def run(self) -> Reals:
        """Raise levels and close classes until all are closed."""
        share = np.zeros(self.classes.table.shape)
        while not self.closed.all():
            share, level = self._raise(np.flatnonzero(~self.closed))
            self.floor[~self.closed] = level
            stuck = [kind for kind in np.flatnonzero(~self.closed).tolist() if not self._can_rise(kind)]
            self.closed[stuck or np.flatnonzero(~self.closed)] = True
        return share

    def _can_rise(self, kind: int) -> bool:
        _, level = self._raise(np.array([kind]))
        return level > float(self.floor[kind]) * (1.0 + SAME) + SAME

    def _raise(self, raised: Ints) -> tuple[Reals, float]:
        """Raise these classes to their highest common level, while all others keep at least their floors."""
        kinds, types = self.classes.table.shape
        cells, level = np.arange(kinds * types).reshape(kinds, types), kinds * types
        rows: list[tuple[Ints, Reals | float]] = [(cells[kind], self.classes.table[kind]) for kind in range(kinds)]
        for kind in raised.tolist():
            rows[kind] = (np.append(cells[kind], level), np.append(self.classes.table[kind], -1.0))
        lower = self.floor * (1.0 - ROOM)
        lower[raised] = 0.0
        cost = np.zeros(level + 1)
        cost[level] = 1.0
        programme = LinearProgram.of(
            cost,
            rows=SparseRows.of([*rows, *cluster_rows(cells, self.classes)]),
            row_lower=np.concatenate([lower, np.full(kinds + types, -np.inf)]),
            row_upper=np.concatenate([np.full(kinds, np.inf), np.ones(kinds), self.capacity]),
            upper=np.append(np.where(self.classes.table > 0.0, 1.0, 0.0).ravel(), np.inf),
            maximise=True,
        )
        solution = solve_linear(programme, place="gavel, water filling")
        return solution.x[:level].reshape(kinds, types), float(solution.x[level])
