"""A plugin for tests: the job with the fewest iterations comes first, so that apps take slots in a known order."""

from typing import ClassVar

from eunomia import Contract, Facts, Feature, Linear, Menus, Offer, Snapshot, Stage, Valuations, hookimpl
from eunomia.contract.contracts import Contracts


class FewestIterations:
    """Jobs by their iterations in all, whatever they have done."""

    name = "fewest_iterations"
    api = 1
    contracts: ClassVar[Contracts] = {Stage.VALUATION: Contract(gives=frozenset({Feature.SCORES, Feature.JOB_CLAIMS}))}

    @hookimpl
    def eunomia_valuation(self, snapshot: Snapshot, menus: Menus, offer: Offer) -> Valuations:
        return Valuations.by_job(snapshot, menus, offer, iterations)


def iterations(facts: Facts, job: int) -> Linear:
    """The key of a job."""
    return Linear(facts.jobs.iterations[job])
