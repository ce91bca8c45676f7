"""Max-min fairness: of sizes, raising the smallest while it can be raised, or of time, for gangs that take turns."""

from typing import Literal

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
from eunomia_plugins.allocations.filling import fill_sizes, fill_time
from eunomia_plugins.allocations.ranking import ranked

EVENTS = frozenset({Cause.ARRIVED, Cause.FREED, Cause.LEASE_ENDED, Cause.CLUSTER_CHANGED})


class MaxMinOptions(PluginOptions):
    """Options of ``max_min``."""

    over: Literal["sizes", "time"] = "sizes"
    """What is shared: GPUs at one moment, among elastic jobs; or time, among gangs that take turns."""
    weighted: bool = True
    """Whether an app's weight counts; else every job weighs 1."""


class MaxMin:
    """Nobody gets more while somebody who has less could have it (a baseline of AFS §2.2)."""

    name = "max_min"
    api = 1
    options_type = MaxMinOptions

    def __init__(self, options: MaxMinOptions) -> None:
        self.options = options
        self.contracts = {Stage.ALLOCATION: _SIZES if options.over == "sizes" else _TIME}

    @hookimpl
    def eunomia_triggers(self) -> Triggers:
        """Ask for a round at every arrival and whenever something becomes free; sizes may change in each."""
        return Triggers(on=EVENTS, all_on=frozenset(Cause) if self.options.over == "sizes" else frozenset())

    @hookimpl
    def eunomia_allocation(self, snapshot: Snapshot, menus: Menus, offer: Offer, valuations: Valuations) -> Allocation:
        """Fill up from below; ties go by the order that the valuation gives."""
        if self.options.over == "sizes":
            jobs = ranked(snapshot, offer.candidates, valuations.form(Scores), valuations.claims)
            return fill_sizes(snapshot, menus, offer, jobs, weighted=self.options.weighted)
        jobs = ranked(snapshot, snapshot.active, valuations.form(Scores), valuations.claims)
        return fill_time(snapshot, menus, offer, jobs, weighted=self.options.weighted)


_SIZES = Contract(
    needs=frozenset({Feature.SCORES, Feature.MANY_SIZES}),
    gives=frozenset({Feature.GRANTS, Feature.JOB_CLAIMS}),
    promises=frozenset({Promise.WORK_CONSERVING}),
)
_TIME = Contract(
    needs=frozenset({Feature.SCORES}),
    gives=frozenset({Feature.TIME_SHARES, Feature.JOB_CLAIMS}),
)
