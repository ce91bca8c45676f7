"""The plugin ``fifo``: first in, first out."""

from typing import ClassVar

from eunomia import Contract, Facts, Feature, Linear, Menus, Offer, Snapshot, Stage, Valuations, hookimpl
from eunomia.contract.contracts import Contracts


class Fifo:
    """First in, first out; jobs that arrive at the same time keep the order of the snapshot."""

    name = "fifo"
    api = 1
    contracts: ClassVar[Contracts] = {Stage.VALUATION: Contract(gives=frozenset({Feature.SCORES, Feature.JOB_CLAIMS}))}

    @hookimpl
    def eunomia_valuation(self, snapshot: Snapshot, menus: Menus, offer: Offer) -> Valuations:
        """Order jobs by their arrival, in seconds."""
        return Valuations.by_job(snapshot, menus, offer, arrival)


def arrival(facts: Facts, job: int) -> Linear:
    """Return the key of a job: its arrival time in seconds."""
    return Linear(facts.jobs.arrived[job])
