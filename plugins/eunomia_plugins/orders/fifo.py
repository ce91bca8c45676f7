"""First in, first out."""

from typing import ClassVar

from eunomia import Claims, Contract, Feature, Offer, Scores, Snapshot, Stage, Unit, Valuations, hookimpl
from eunomia.contracts import Contracts


class Fifo:
    """Jobs in order of arrival; jobs that came together keep the order of the snapshot."""

    name = "fifo"
    api = 1
    contracts: ClassVar[Contracts] = {Stage.VALUATION: Contract(gives=frozenset({Feature.SCORES, Feature.JOB_CLAIMS}))}

    @hookimpl
    def eunomia_valuation(self, snapshot: Snapshot, offer: Offer) -> Valuations:
        """Score each candidate by its arrival, in seconds."""
        jobs = offer.candidates
        return Valuations(
            claims=Claims(unit=Unit.JOB, rows=jobs),
            forms=(Scores(score=snapshot.jobs.arrived[jobs]),),
        )
