"""The placement ``synergy_arranged`` (Synergy A.1.3).

All jobs of a round are placed together, and as few as possible are divided over machines.
"""

from typing import ClassVar

import numpy as np

from eunomia import Allocation, Contract, Feature, Offer, Placement, PluginOptions, Promise, Snapshot, Stage, hookimpl
from eunomia.contract.contracts import Contracts
from eunomia.units import Ints
from eunomia_plugins.synergy.arrange import arranged
from eunomia_plugins.synergy.claims import Claim
from eunomia_plugins.synergy.packing import Choice, Packing, standby_of
from eunomia_plugins.synergy.room import Counts
from eunomia_plugins.synergy.tune import fitted


class ArrangedOptions(PluginOptions):
    """Options of ``synergy_arranged``, which has none."""


class SynergyArranged:
    """Places the jobs of a round together: jobs are swapped until machines have enough CPUs and memory.

    A running job starts from its machines and moves only if that reduces a shortage. A job of several GPUs is divided
    over machines if it fits on none together with the others. A job that still does not fit gets its minimum amounts if
    these fit, else it waits.
    """

    name = "synergy_arranged"
    api = 1
    options_type = ArrangedOptions
    contracts: ClassVar[Contracts] = {
        Stage.PLACEMENT: Contract(
            needs=frozenset({Feature.GRANTS, Feature.CPUS_AND_MEMORY}),
            gives=frozenset({Feature.RETUNES}),
            promises=frozenset({Promise.HONOURS_PINS}),
        )
    }

    def __init__(self, options: ArrangedOptions) -> None:
        self.options = options

    @hookimpl
    def eunomia_placement(self, snapshot: Snapshot, offer: Offer, allocation: Allocation) -> Placement:
        """Place pinned claims, then the others together, then those on standby."""
        packing = Packing(snapshot, offer, allocation)

        def choose(claim: Claim) -> Choice | None:
            return fitted(packing.room, claim)

        order, standby = allocation.order.tolist(), standby_of(allocation)
        if not packing.stops:
            claims = [packing.claims.claim(index) for index in order if packing.claims.missing(index) > 0]
            packing.serve([claim.index for claim in claims if claim.pins], choose, stop=False)
            for claim, counts in _together(packing, [claim for claim in claims if not claim.pins]):
                packing.place(claim, (counts, claim.most))
        rest = [index for index in order if index not in packing.refused]
        packing.serve(rest, choose, stop=packing.stops)
        packing.keep(standby)
        packing.serve(standby, choose, stop=False)
        packing.room.raise_all(packing.in_turn())
        return packing.answer()


def _together(packing: Packing, claims: list[Claim]) -> list[tuple[Claim, Counts]]:
    """Return the claims that can be placed together, those that stay first, with their machines.

    With several GPU types, only claims that request a type are placed together.
    """
    cluster = packing.room.cluster
    found: list[tuple[Claim, Counts]] = []
    for kind in range(len(cluster.gpu_types)):
        mine = [claim for claim in claims if claim.gpu_type == kind or len(cluster.gpu_types) == 1]
        if mine:
            found += zip(mine, _machines_of(packing, mine, np.flatnonzero(cluster.machine_type == kind)), strict=True)
    stays = [counts == packing.claims.counts(claim.held) for claim, counts in found]
    order = sorted(range(len(found)), key=lambda at: not stays[at])
    return [found[at] for at in order if found[at][1]]


def _machines_of(packing: Packing, claims: list[Claim], machines: Ints) -> list[Counts]:
    """Return each claim's machines of one GPU type, as (machine, GPUs) pairs; empty: the claim is not placed."""
    room, cluster = packing.room, packing.room.cluster
    need = np.array([(claim.gpus, claim.gpus * claim.most[0], claim.gpus * claim.most[1]) for claim in claims])
    left = np.column_stack([room.free, room.cpus, room.memory_gib])[machines]
    whole = np.column_stack([np.diff(cluster.machine_start), cluster.machine_cpus, cluster.machine_memory_gib])
    place = {machine: at for at, machine in enumerate(machines.tolist())}
    held = [packing.claims.counts(claim.held[room.pool.holds(claim.held)]) for claim in claims]
    start: list[Counts] = []
    for claim, counts in zip(claims, held, strict=True):
        fits = sum(count for _, count in counts) == claim.gpus and all(machine in place for machine, _ in counts)
        start.append([(place[machine], count) for machine, count in counts] if fits else [])
    found = arranged(need, left, whole[machines].max(axis=0), start)
    return [[(int(machines[at]), count) for at, count in counts] for counts in found]
