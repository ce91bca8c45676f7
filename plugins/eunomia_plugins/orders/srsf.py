"""The plugin ``srsf``: shortest remaining service first."""

from typing import ClassVar

from eunomia import Contract, Feature, Menus, Offer, Snapshot, Stage, Valuations, hookimpl
from eunomia.contract.contracts import Contracts
from eunomia_plugins.orders.remaining import LengthOptions, WorkLeft


class Srsf:
    """Shortest remaining service first: remaining time x GPUs (Tiresias; Themis §6, AFS §2.2)."""

    name = "srsf"
    api = 1
    options_type = LengthOptions
    contracts: ClassVar[Contracts] = {
        Stage.VALUATION: Contract(
            needs=frozenset({Feature.RATES}), gives=frozenset({Feature.SCORES, Feature.JOB_CLAIMS})
        )
    }

    def __init__(self, options: LengthOptions) -> None:
        self.options = options
        self._work_left = WorkLeft(options, by_gpus=True)

    @hookimpl
    def eunomia_valuation(self, snapshot: Snapshot, menus: Menus, offer: Offer) -> Valuations:
        """Score each candidate by the GPU-seconds left at its own size."""
        return self._work_left.valuations(snapshot, menus, offer)
