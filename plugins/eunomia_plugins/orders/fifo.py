"""First in, first out."""

from typing import ClassVar

from eunomia import Contract, Feature, LinearKey, Offer, Snapshot, Stage, Valuations, hookimpl
from eunomia.contract.contracts import Contracts
from eunomia.units import Rows


class Fifo:
    """Jobs in order of arrival; jobs that arrive together keep the order of the snapshot."""

    name = "fifo"
    api = 1
    contracts: ClassVar[Contracts] = {Stage.VALUATION: Contract(gives=frozenset({Feature.SCORES, Feature.JOB_CLAIMS}))}

    @hookimpl
    def eunomia_valuation(self, snapshot: Snapshot, offer: Offer) -> Valuations:
        """Order jobs by their arrival, in seconds."""
        arrived = snapshot.jobs.arrived

        def key(jobs: Rows) -> LinearKey:
            return LinearKey(intercept=arrived[jobs])

        return Valuations.by_key(snapshot, offer, key)
