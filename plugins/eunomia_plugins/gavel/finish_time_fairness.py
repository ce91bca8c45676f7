"""Finish-time fairness as defined by Gavel (§4.1): no job finishes much later than on 1/n of the cluster."""

from collections.abc import Mapping
from typing import Literal

import numpy as np

from eunomia import Snapshot
from eunomia.units import Reals
from eunomia_plugins.gavel import reference
from eunomia_plugins.gavel.instance import Instance
from eunomia_plugins.gavel.programmes import spread
from eunomia_plugins.gavel.rho import least_rho
from eunomia_plugins.gavel.sharing import Row, SharingOptions, Solved, TimeSharing

LITTLE = 1e-9


class FinishTimeFairnessOptions(SharingOptions):
    """Options of ``finish_time_fairness``."""

    beyond: Literal["spread", "nothing"] = "spread"
    """What to do with capacity left once the largest ρ is minimal: spread it evenly over jobs, or leave it idle."""


class FinishTimeFairness(TimeSharing[FinishTimeFairnessOptions]):
    """Minimises the largest ρ: a job's total time over the time that it would take with 1/n of the cluster.

    The latter is the time of the work done so far, at the rate of 1/n of the cluster at that time, plus that of the
    work left at the present 1/n; n is the number of jobs. A job of unknown work counts as having the others' mean work.
    """

    name = "finish_time_fairness"
    options_type = FinishTimeFairnessOptions

    def _solve(self, snapshot: Snapshot, instance: Instance, names: list[str], notes: Mapping[str, Row]) -> Solved:
        known = snapshot.iterations_left(instance.jobs)
        since = float(snapshot.now) - snapshot.jobs.arrived[instance.jobs]
        return self._solution(instance, names, notes, iterations_left(instance, known), since)

    def _solution(
        self, instance: Instance, names: list[str], notes: Mapping[str, Row], left: Reals, since: Reals
    ) -> Solved:
        alone = own_part(instance)
        before = np.array([notes.get(name, (0.0, now, 1.0)) for name, now in zip(names, left.tolist(), strict=True)])
        before = before.reshape(len(names), 3)
        past = before[:, 0] + (before[:, 1] - left) / before[:, 2]
        in_all = np.maximum(past + left / alone, LITTLE)
        kept = np.column_stack([past, left, alone]).tolist()
        found = dict(zip(names, map(tuple, kept), strict=True))
        solve = reference.least_rho if self.options.solver == "reference" else least_rho
        share, _ = solve(instance, left, in_all, since)
        return Solved(spread(instance, share) if self.options.beyond == "spread" else share, found)


def own_part(instance: Instance) -> Reals:
    """Return iterations per second with 1/n of each type's GPUs, [job], with a time share of at most 1."""
    part = instance.capacity / (max(1, instance.gpus.size) * instance.gpus[:, None])
    part /= np.maximum(part.sum(axis=1, keepdims=True), 1.0)
    rate: Reals = (instance.rate * part).sum(axis=1)
    return np.maximum(rate, LITTLE)


def iterations_left(instance: Instance, reported: Reals) -> Reals:
    """Return the iterations left, [job]; a job of unknown work (NaN) is assumed to have the others' mean time left."""
    best = instance.rate.max(axis=1)
    known = ~np.isnan(reported)
    mean = float((reported[known] / best[known]).mean()) if known.any() else 1.0
    found: Reals = np.maximum(np.where(known, reported, mean * best), LITTLE)
    return found
