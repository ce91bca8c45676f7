"""Optimus (Peng et al., EuroSys 2018): GPUs are worth the completion time that they take off."""

from typing import ClassVar

from eunomia import Claims, Contract, Feature, Menus, Offer, Snapshot, Stage, Unit, Valuations, hookimpl
from eunomia.contracts import Contracts
from eunomia.valuations import BySize
from eunomia_plugins.themis_baselines.sizes import size_rows


class Optimus:
    """A size is worth minus the seconds that the job would still take at it (Optimus §4.1, its estimate Q / f).

    No value is given for no GPUs, so everybody's smallest size comes before anybody's second (§4.1: "each job is first
    allocated one worker"), and the allocation ``marginal_gain`` then adds where time falls most.
    """

    name = "optimus"
    api = 1
    contracts: ClassVar[Contracts] = {
        Stage.VALUATION: Contract(
            needs=frozenset({Feature.RATES}), gives=frozenset({Feature.BY_SIZE, Feature.JOB_CLAIMS})
        )
    }

    @hookimpl
    def eunomia_valuation(self, snapshot: Snapshot, menus: Menus, offer: Offer) -> Valuations:
        """Value every size of every candidate."""
        rows = size_rows(snapshot, menus, offer.candidates)
        form = BySize(claim=rows.claim, gpus=rows.gpus, value=-rows.left / rows.rate)
        return Valuations(claims=Claims(unit=Unit.JOB, rows=offer.candidates), forms=(form,))
