"""Synergy-Greedy: first fit of each job's demand in all dimensions (Synergy §3.3)."""

from typing import ClassVar

from eunomia import Allocation, Contract, Feature, Offer, Placement, PluginOptions, Promise, Snapshot, Stage, hookimpl
from eunomia.contract.contracts import Contracts
from eunomia_plugins.synergy.choosing import at_pins, first_fit
from eunomia_plugins.synergy.claims import Claim
from eunomia_plugins.synergy.packing import Choice, Packing, standby_of


class GreedyOptions(PluginOptions):
    """Options of ``synergy_greedy``."""

    keeps: bool = False
    """Whether a running job keeps its GPUs; if not, all jobs of a round are placed again, as in the authors' code, and
    a job whose machine changes is restarted."""


class SynergyGreedy:
    """Places each job with its whole demand on the first machine that fits, else the fewest machines, or skips it."""

    name = "synergy_greedy"
    api = 1
    options_type = GreedyOptions
    contracts: ClassVar[Contracts] = {
        Stage.PLACEMENT: Contract(
            needs=frozenset({Feature.GRANTS, Feature.CPUS_AND_MEMORY}), promises=frozenset({Promise.HONOURS_PINS})
        )
    }

    def __init__(self, options: GreedyOptions) -> None:
        self.options = options

    @hookimpl
    def eunomia_placement(self, snapshot: Snapshot, offer: Offer, allocation: Allocation) -> Placement:
        """Place claims in order of service, then those on standby."""
        packing = Packing(snapshot, offer, allocation)

        def choose(claim: Claim) -> Choice | None:
            counts = (at_pins if claim.pins else first_fit)(packing.room, claim, claim.most)
            return (counts, claim.most) if counts else None

        for order, stop in ((allocation.order.tolist(), packing.stops), (standby_of(allocation), False)):
            if self.options.keeps:
                packing.keep(order)
            packing.serve(order, choose, stop=stop)
        return packing.answer()
