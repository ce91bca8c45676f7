"""Optimus (Peng et al., EuroSys 2018): the value of GPUs is the reduction of completion time."""

from typing import ClassVar

from eunomia import Claims, Contract, Feature, Menus, Offer, SizeUnit, Snapshot, Stage, Unit, Valuations, hookimpl
from eunomia.contract.contracts import Contracts
from eunomia.contract.valuations import BySize
from eunomia_plugins.themis_baselines.sizes import size_rows


class Optimus:
    """The value of a size is minus the seconds that the job would still take at it (Optimus §4.1, estimate Q / f).

    0 GPUs have no value, so each job's smallest size comes before any job's second (§4.1: "each job is first allocated
    one worker"), and the allocation ``marginal_gain`` then adds GPUs where completion time falls most.
    """

    name = "optimus"
    api = 1
    contracts: ClassVar[Contracts] = {
        Stage.VALUATION: Contract(
            needs=frozenset({Feature.RATES}),
            gives=frozenset({Feature.BY_SIZE, Feature.JOB_CLAIMS}),
            units=frozenset({SizeUnit.SECONDS_LEFT}),
        )
    }

    @hookimpl
    def eunomia_valuation(self, snapshot: Snapshot, menus: Menus, offer: Offer) -> Valuations:
        """Value every size of every candidate."""
        rows = size_rows(snapshot, menus, offer.candidates)
        form = BySize(claim=rows.claim, gpus=rows.gpus, value=-rows.left / rows.rate, unit=SizeUnit.SECONDS_LEFT)
        return Valuations(claims=Claims(unit=Unit.JOB, rows=offer.candidates), forms=(form,))
