"""Chance, as an order and as a placement: the floor under every other policy."""

import zlib
from typing import ClassVar, Literal

import numpy as np

from eunomia import (
    Allocation,
    Claims,
    Cluster,
    Contract,
    Feature,
    Menus,
    Offer,
    Placement,
    PluginOptions,
    Pool,
    Scores,
    Snapshot,
    Stage,
    Unit,
    Valuations,
    hookimpl,
)
from eunomia.contracts import Contracts
from eunomia.units import Ints, Reals, Rows
from eunomia_plugins.placement.planning import Ask, place, types_of


class RandomOptions(PluginOptions):
    """Options of ``random``."""

    redraw: Literal["round", "never"] = "round"
    """Draw an order anew each round, or let each job keep the lot that it drew when it came."""


class Random:
    """Jobs in random order, and GPUs at random: the same seed and round give the same draws."""

    name = "random"
    api = 1
    options_type = RandomOptions
    contracts: ClassVar[Contracts] = {
        Stage.VALUATION: Contract(gives=frozenset({Feature.SCORES, Feature.JOB_CLAIMS})),
        Stage.PLACEMENT: Contract(needs=frozenset({Feature.GRANTS})),
    }

    def __init__(self, options: RandomOptions) -> None:
        self.options = options

    @hookimpl
    def eunomia_valuation(self, snapshot: Snapshot, offer: Offer) -> Valuations:
        """Score each candidate by its lot; whoever else is a candidate does not change it."""
        jobs = offer.candidates
        if self.options.redraw == "round":
            lots = snapshot.rng(self.name).random(snapshot.jobs.app.size)[jobs]
        else:
            lots = _kept_lots(snapshot, jobs)
        return Valuations(claims=Claims(unit=Unit.JOB, rows=jobs), forms=(Scores(score=lots),))

    @hookimpl
    def eunomia_placement(self, snapshot: Snapshot, menus: Menus, offer: Offer, allocation: Allocation) -> Placement:
        """Place claims in order of service on GPUs drawn from all that suit; who may stay, stays."""
        luck = snapshot.rng(f"{self.name} placement")
        cluster = snapshot.cluster

        def rule(pool: Pool, ask: Ask) -> Ints | None:
            return _drawn(cluster, pool, ask, luck)

        return place(snapshot, menus, offer, allocation, rule, pins=False)


def _kept_lots(snapshot: Snapshot, jobs: Rows) -> Reals:
    lots = [zlib.crc32(f"{snapshot.seed}/{name}".encode()) for name in snapshot.jobs.id[jobs]]
    return np.array(lots, dtype=np.float64)


def _drawn(cluster: Cluster, pool: Pool, ask: Ask, luck: np.random.Generator) -> Ints | None:
    kinds = types_of(pool, ask, len(cluster.gpu_types), cluster.machine_type)
    if not kinds:
        return None
    room = pool.room(kinds[int(luck.integers(len(kinds)))], ask.cpus, ask.memory_gib)
    if room.sum() < ask.gpus:
        return None
    seats = np.repeat(np.arange(room.size), room)
    counts = np.bincount(luck.choice(seats, ask.gpus, replace=False), minlength=room.size)
    parts = [luck.choice(pool.on(int(machine)), counts[machine], replace=False) for machine in np.flatnonzero(counts)]
    return np.sort(np.concatenate(parts)).astype(np.int64)
