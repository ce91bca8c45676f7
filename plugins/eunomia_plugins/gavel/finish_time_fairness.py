"""Finish-time fairness as Gavel writes Themis' goal: nobody finishes much later than with its own part (§4.1)."""

from collections.abc import Mapping
from typing import ClassVar, Literal

import numpy as np

from eunomia import Allocation, Menus, Offer, Snapshot, Stage, Triggers, hookimpl
from eunomia.contracts import Contracts
from eunomia.memos import Memo
from eunomia.units import Reals
from eunomia_plugins.gavel import reference
from eunomia_plugins.gavel.instance import Instance
from eunomia_plugins.gavel.programmes import spread
from eunomia_plugins.gavel.rho import least_rho
from eunomia_plugins.gavel.sharing import EVENTS, GIVES_TIME, Row, Shares, SharingOptions, Solved, share_time

LITTLE = 1e-9


class FinishTimeFairnessOptions(SharingOptions):
    """Options of ``finish_time_fairness``."""

    beyond: Literal["spread", "nothing"] = "spread"
    """What becomes of capacity that the least rho leaves: all get the same part of the time more, or nothing is
    promised of it and the rounds give it to whoever is next."""


class FinishTimeFairness:
    """Minimise the greatest rho: a job's time in all over what it would have taken with 1/n of the cluster.

    What it would have taken is what it has done so far, at the speed that its part had then, and what is left, at the
    speed that its part has now; n is the number of jobs. A job that does not tell its work counts as having as much as
    the mean of those who do.
    """

    name = "finish_time_fairness"
    api = 1
    options_type = FinishTimeFairnessOptions
    contracts: ClassVar[Contracts] = GIVES_TIME
    memo_types: ClassVar[dict[Stage, type[Memo]]] = {Stage.ALLOCATION: Shares}

    def __init__(self, options: FinishTimeFairnessOptions) -> None:
        self.options = options

    @hookimpl
    def eunomia_triggers(self) -> Triggers:
        """Ask for a round at every arrival and whenever something becomes free."""
        return EVENTS

    @hookimpl
    def eunomia_allocation(self, snapshot: Snapshot, menus: Menus, offer: Offer) -> Allocation:
        """Share time among all jobs, running ones too."""

        def solve(instance: Instance, names: list[str], notes: Mapping[str, Row]) -> Solved:
            told = snapshot.iterations_left(instance.jobs)
            since = float(snapshot.now) - snapshot.jobs.arrived[instance.jobs]
            return self._solve(instance, names, notes, iterations_left(instance, told), since)

        return share_time(self.name, self.options, snapshot, menus, offer, solve)

    def _solve(
        self, instance: Instance, names: list[str], notes: Mapping[str, Row], left: Reals, since: Reals
    ) -> Solved:
        alone = own_part(instance)
        before = np.array([notes.get(name, (0.0, now, 1.0)) for name, now in zip(names, left.tolist(), strict=True)])
        before = before.reshape(len(names), 3)
        past = before[:, 0] + (before[:, 1] - left) / before[:, 2]
        in_all = np.maximum(past + left / alone, LITTLE)
        kept = np.column_stack([past, left, alone]).tolist()
        found = dict(zip(names, map(tuple, kept), strict=True))
        if self.options.solver == "reference":
            return Solved(reference.least_rho(instance, left, in_all, since)[0], found)
        share, _ = least_rho(instance, left, in_all, since)
        return Solved(spread(instance, share) if self.options.beyond == "spread" else share, found)


def own_part(instance: Instance) -> Reals:
    """[job] iterations a second with 1/n of each type's GPUs: part of the time at the gang's size, at most all."""
    part = instance.capacity / (max(1, instance.gpus.size) * instance.gpus[:, None])
    part /= np.maximum(part.sum(axis=1, keepdims=True), 1.0)
    rate: Reals = (instance.rate * part).sum(axis=1)
    return np.maximum(rate, LITTLE)


def iterations_left(instance: Instance, told: Reals) -> Reals:
    """[job] iterations; of those that do not tell, what takes as long as the mean of the others."""
    best = instance.rate.max(axis=1)
    known = ~np.isnan(told)
    mean = float((told[known] / best[known]).mean()) if known.any() else 1.0
    found: Reals = np.maximum(np.where(known, told, mean * best), LITTLE)
    return found
