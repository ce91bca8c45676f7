"""Synergy-Tune: best fit of demands, which are lowered to the proportional share if they do not fit (Synergy §4.2)."""

from collections.abc import Iterable
from typing import Annotated

from pydantic import Field

from eunomia import (
    Allocation,
    Contract,
    Feature,
    Menus,
    Offer,
    Placement,
    PluginOptions,
    Promise,
    Snapshot,
    Stage,
    Unit,
    hookimpl,
)
from eunomia.contract.contracts import Contracts
from eunomia_plugins.synergy.choosing import at_pins, best_fit
from eunomia_plugins.synergy.claims import Claim
from eunomia_plugins.synergy.exchanging import Exchanging
from eunomia_plugins.synergy.packing import Choice, Packing, standby_of
from eunomia_plugins.synergy.room import Room

NOTHING = (0.0, 0.0)


class TuneOptions(PluginOptions):
    """Options of ``synergy_tune``."""

    moves: bool = True
    """Whether a running job with less than its demand migrates to machines with room for the demand, which costs a
    restart."""
    exchanges: Annotated[int, Field(ge=0, le=100_000)] = 0
    """Number of exchanges of starting jobs tried per round, after which each machine's CPUs and memory are divided to
    maximise the sum of rates; 0: neither. This is an extension of the paper."""


class SynergyTune:
    """Gives every served job its GPUs with the CPUs and memory of its demand, or less, down to its proportional share.

    Jobs are placed in order of GPUs, CPUs and memory, largest first. A job that does not fit with its demand gets its
    minimum; if that does not fit either, other jobs on the machine are lowered to their minimum. Remaining resources
    raise jobs towards their demand. A job on several machines gets the same CPUs and memory for each of its GPUs.

    With ``exchanges``, starting jobs of equal size are then swapped, or moved to free GPUs, while the sum of rates
    (relative to those at the proportional share) increases. The CPUs and memory of each machine are divided among its
    jobs, including running ones, within their ranges.
    """

    name = "synergy_tune"
    api = 1
    options_type = TuneOptions

    def __init__(self, options: TuneOptions) -> None:
        self.options = options
        needs = {Feature.GRANTS, Feature.CPUS_AND_MEMORY} | ({Feature.CPU_POINTS} if options.exchanges else set())
        self.contracts: Contracts = {
            Stage.PLACEMENT: Contract(
                needs=frozenset(needs),
                gives=frozenset({Feature.RETUNES}),
                promises=frozenset({Promise.HONOURS_PINS}),
            )
        }

    @hookimpl
    def eunomia_placement(self, snapshot: Snapshot, menus: Menus, offer: Offer, allocation: Allocation) -> Placement:
        """Keep the claims that can stay, place the others, and divide CPUs and memory among all."""
        packing = Packing(snapshot, offer, allocation)
        serve_all(packing)
        packing.room.raise_all(packing.in_turn())
        if self.options.moves:
            packing.move_up()
        if self.options.exchanges and allocation.claims.unit is Unit.JOB:
            Exchanging(packing, snapshot, menus).run(self.options.exchanges)
            packing.room.raise_all(packing.in_turn())
        return packing.answer()


def serve_all(packing: Packing) -> None:
    """Keep the claims that can stay, and place the others with their demand, or less, down to their minimum."""

    def choose(claim: Claim) -> Choice | None:
        return fitted(packing.room, claim)

    order, standby = packing.allocation.order.tolist(), standby_of(packing.allocation)
    packing.keep(order)
    packing.serve(order if packing.stops else _largest_first(packing, order), choose, stop=packing.stops)
    packing.keep(standby)
    packing.serve(standby, choose, stop=False)


def fitted(room: Room, claim: Claim, *, lowers: bool = True) -> Choice | None:
    """Return the machines and amounts for a claim, or None if it does not fit.

    The claim gets its demand, else its minimum, else its minimum after other jobs are lowered.
    """
    rule = at_pins if claim.pins else best_fit
    for each in (claim.most, claim.least):
        counts = rule(room, claim, each)
        if counts:
            return counts, each
    counts = rule(room, claim, NOTHING) if lowers else []
    if counts and all(room.lower(machine, count, claim.least) for machine, count in counts):
        return counts, claim.least
    return None


def _largest_first(packing: Packing, order: Iterable[int]) -> list[int]:
    def size(index: int) -> tuple[float, ...]:
        claim = packing.claims.claim(index)
        return (-claim.gpus, -claim.gpus * claim.most[0], -claim.gpus * claim.most[1])

    return sorted(order, key=size)
