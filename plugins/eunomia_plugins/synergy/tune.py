"""Synergy-Tune: best fit of demands, which fall to the proportional share where they do not fit (Synergy §4.2)."""

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
    """Whether a running job of the offer with less than its demand moves to machines that have room for the demand. A
    move costs a restart."""
    exchanges: Annotated[int, Field(ge=0, le=100_000)] = 0
    """Ours, not the paper's: so many exchanges of jobs that start are tried in a round, after which each machine's CPUs
    and memory are divided so that the sum of rates is greatest; 0: neither."""


class SynergyTune:
    """Gives every served job its GPUs with the CPUs and memory of its demand, or less, down to its proportional share.

    Jobs are placed in order of GPUs, CPUs and memory, largest first. A job that does not fit with its demand gets
    its least; if the least does not fit either, jobs on the machine with more than their least are lowered.
    Resources that remain raise jobs below their demand. A job on several machines gets the same CPUs and memory for
    each of its GPUs.

    With ``exchanges``, jobs of equal numbers of GPUs that start in this round then change places, or move to free
    GPUs, while the sum of rates grows, each as a multiple of the rate at the proportional share. CPUs and memory of
    each machine are divided among its jobs, running ones included, within their ranges.
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
        """Keep claims that can stay, place the others, and divide CPUs and memory among all."""
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
    """Keep claims that can stay, and place the others with their demand, or less, down to their least."""

    def choose(claim: Claim) -> Choice | None:
        return fitted(packing.room, claim)

    order, standby = packing.allocation.order.tolist(), standby_of(packing.allocation)
    packing.keep(order)
    packing.serve(order if packing.stops else _largest_first(packing, order), choose, stop=packing.stops)
    packing.keep(standby)
    packing.serve(standby, choose, stop=False)


def fitted(room: Room, claim: Claim, *, lowers: bool = True) -> Choice | None:
    """Return the machines and amounts of a claim.

    Its demand, else its least, else its least after other jobs are lowered.
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
