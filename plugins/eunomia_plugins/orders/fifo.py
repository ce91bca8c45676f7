"""First in, first out."""

from typing import ClassVar

from eunomia import Claims, Contract, Feature, Offer, Scores, Snapshot, Stage, Unit, Valuations, hookimpl
from eunomia.contract.contracts import Contracts
from eunomia.contract.valuations import Keys, still
from eunomia.model.shapes import Later


class Fifo:
    """Jobs in order of arrival; jobs that arrive together keep the order of the snapshot."""

    name = "fifo"
    api = 1
    contracts: ClassVar[Contracts] = {Stage.VALUATION: Contract(gives=frozenset({Feature.SCORES, Feature.JOB_CLAIMS}))}

    @hookimpl
    def eunomia_valuation(self, snapshot: Snapshot, offer: Offer) -> Valuations:
        """Score each candidate by its arrival, in seconds."""
        arrived = snapshot.jobs.arrived
        scores = Scores(
            score=Later(lambda: arrived[offer.candidates]),  # type: ignore[arg-type]
            keys=Keys(owner=self, of=lambda jobs: still(arrived[jobs])),
        )
        rows = Later(lambda: offer.candidates)
        return Valuations(claims=Claims(unit=Unit.JOB, rows=rows), forms=(scores,))  # type: ignore[arg-type]
