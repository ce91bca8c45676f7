"""First in, first out."""

from typing import ClassVar

from eunomia import Contract, Facts, Feature, Linear, Menus, Offer, Snapshot, Stage, Valuations, hookimpl
from eunomia.contract.contracts import Contracts


class Fifo:
    """Jobs in order of arrival; jobs that arrive together keep the order of the snapshot."""

    name = "fifo"
    api = 1
    contracts: ClassVar[Contracts] = {Stage.VALUATION: Contract(gives=frozenset({Feature.SCORES, Feature.JOB_CLAIMS}))}

    @hookimpl
    def eunomia_valuation(self, snapshot: Snapshot, menus: Menus, offer: Offer) -> Valuations:
        """Order jobs by their arrival, in seconds."""
        return Valuations.by_job(snapshot, menus, offer, arrival)


def arrival(facts: Facts, job: int) -> Linear:
    """Return the time at which a job arrived."""
    return Linear(facts.jobs.arrived[job])
