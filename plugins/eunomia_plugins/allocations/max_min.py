"""Max-min fairness over sizes: the job with the fewest GPUs repeatedly gets its next size."""

import dataclasses
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from eunomia import (
    Allocation,
    Cause,
    Contract,
    Duration,
    Feature,
    Menus,
    Offer,
    PluginOptions,
    Promise,
    Scores,
    Seconds,
    Snapshot,
    Stage,
    Triggers,
    Valuations,
    hookimpl,
)
from eunomia.contract.contracts import Contracts
from eunomia.units import Reals, Rows
from eunomia_plugins.allocations.filling import fill_sizes
from eunomia_plugins.allocations.ranking import EVENTS, ranked


class WeightOptions(PluginOptions):
    """Options of ``max_min`` and ``max_min_time``."""

    weighted: bool = True
    """Whether jobs have the weight of their app; if not, every job has weight 1."""


class MaxMinOptions(WeightOptions):
    """Options of ``max_min``."""

    when_short: Literal["first", "time_sharing"] = "first"
    """What happens if the smallest sizes of all jobs do not fit together: the first jobs run, or all take turns."""
    unit: Annotated[Duration, Field(gt=0.0)] = Seconds(7200.0)
    """With ``time_sharing``, the duration of a turn; the jobs that had the fewest turns come first."""


class MaxMin:
    """Max-min fairness: no job gets more GPUs while a job with fewer could use them (a baseline of AFS §2.2)."""

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
        """Request a round at every arrival and whenever GPUs become free; sizes may change in each round."""
        return Triggers(on=EVENTS, all_on=frozenset(Cause))

    @hookimpl
    def eunomia_allocation(self, snapshot: Snapshot, menus: Menus, offer: Offer, valuations: Valuations) -> Allocation:
        """Give the jobs with the fewest GPUs their next sizes first; the valuation's order breaks ties."""
        options = self.options
        jobs = ranked(snapshot, offer.candidates, valuations.form(Scores), valuations.claims)
        if options.when_short == "first" or not is_short(snapshot, menus, offer):
            return fill_sizes(snapshot, menus, offer, jobs, weighted=options.weighted)
        turns = jobs[np.argsort(turns_had(snapshot, jobs, options.unit), kind="stable")]
        filled = fill_sizes(snapshot, menus, offer, turns, weighted=options.weighted)
        return dataclasses.replace(filled, lease=options.unit, protected=options.unit)


def is_short(snapshot: Snapshot, menus: Menus, offer: Offer) -> bool:
    """Return whether the smallest sizes of all jobs that fit the cluster need more GPUs than it has."""
    least = menus.span(snapshot.active)[0]
    return int(least[least <= offer.capacity.max(initial=0)].sum()) > int(offer.capacity.sum())


def turns_had(snapshot: Snapshot, jobs: Rows, unit: Seconds) -> Reals:
    """Return the number of whole turns that each job has run; a turn up to 1 ms short counts as whole."""
    at_zero, each = snapshot.service(jobs, by_gpus=False)
    return np.floor((at_zero + each * snapshot.now + 1e-3) / unit)
