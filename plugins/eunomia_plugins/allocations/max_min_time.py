"""Max-min fairness over time: whole gangs take turns, so that all jobs hold the same number of GPUs on average."""

from typing import ClassVar

from eunomia import (
    Allocation,
    Contract,
    Feature,
    Menus,
    Offer,
    Scores,
    Snapshot,
    Stage,
    Triggers,
    Valuations,
    hookimpl,
)
from eunomia.contract.contracts import Contracts
from eunomia_plugins.allocations.filling import fill_time
from eunomia_plugins.allocations.max_min import WeightOptions
from eunomia_plugins.allocations.ranking import EVENTS, ranked


class MaxMinTime:
    """Max-min fairness over GPU time with whole gangs: no job gets more while one with less could use it (AFS §2.2)."""

    name = "max_min_time"
    api = 1
    options_type = WeightOptions
    contracts: ClassVar[Contracts] = {
        Stage.ALLOCATION: Contract(
            needs=frozenset({Feature.SCORES}), gives=frozenset({Feature.TIME_SHARES, Feature.JOB_CLAIMS})
        )
    }

    def __init__(self, options: WeightOptions) -> None:
        self.options = options

    @hookimpl
    def eunomia_triggers(self) -> Triggers:
        """Request a round at every arrival and whenever GPUs become free."""
        return Triggers(on=EVENTS)

    @hookimpl
    def eunomia_allocation(self, snapshot: Snapshot, menus: Menus, offer: Offer, valuations: Valuations) -> Allocation:
        """Share time among all jobs, including running ones; the valuation's order breaks ties between turns."""
        jobs = ranked(snapshot, snapshot.active, valuations.form(Scores), valuations.claims)
        return fill_time(snapshot, menus, offer, jobs, weighted=self.options.weighted)
