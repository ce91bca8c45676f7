"""Max-min fairness over sizes: raise the job with the fewest GPUs while a job can be raised."""

from typing import ClassVar

from eunomia import (
    Allocation,
    Cause,
    Contract,
    Feature,
    Menus,
    Offer,
    PluginOptions,
    Promise,
    Scores,
    Snapshot,
    Stage,
    Triggers,
    Valuations,
    hookimpl,
)
from eunomia.contract.contracts import Contracts
from eunomia_plugins.allocations.filling import fill_sizes
from eunomia_plugins.allocations.ranking import EVENTS, ranked


class MaxMinOptions(PluginOptions):
    """Options of ``max_min`` and ``max_min_time``."""

    weighted: bool = True
    """Whether a job has the weight of its app; else every job has weight 1."""


class MaxMin:
    """No job gets more GPUs while a job that has fewer could have them (a baseline of AFS §2.2)."""

    name = "max_min"
    api = 1
    options_type = MaxMinOptions
    contracts: ClassVar[Contracts] = {
        Stage.ALLOCATION: Contract(
            needs=frozenset({Feature.SCORES, Feature.MANY_SIZES}),
            gives=frozenset({Feature.GRANTS, Feature.JOB_CLAIMS}),
            promises=frozenset({Promise.WORK_CONSERVING}),
        )
    }

    def __init__(self, options: MaxMinOptions) -> None:
        self.options = options

    @hookimpl
    def eunomia_triggers(self) -> Triggers:
        """Ask for a round at every arrival and whenever GPUs become free; sizes may change in each."""
        return Triggers(on=EVENTS, all_on=frozenset(Cause))

    @hookimpl
    def eunomia_allocation(self, snapshot: Snapshot, menus: Menus, offer: Offer, valuations: Valuations) -> Allocation:
        """Raise the smallest sizes first; the order of the valuation breaks ties."""
        jobs = ranked(snapshot, offer.candidates, valuations.form(Scores), valuations.claims)
        return fill_sizes(snapshot, menus, offer, jobs, weighted=self.options.weighted)
