"""The plugin ``random``: a random order and a random placement, as a lower baseline for all other policies."""

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
from eunomia.contract.contracts import Contracts
from eunomia.units import Ints, Reals, Rows
from eunomia_plugins.placement.planning import Ask, place, types_of


class RandomOptions(PluginOptions):
    """Options of ``random``."""

    redraw: Literal["round", "never"] = "round"
    """How often the random number that orders a job is drawn: in every round, or once per job."""


class Random:
    """Random order of jobs and random GPUs; equal seed and round give equal draws."""

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
        """Score each candidate by its random number, which does not depend on other candidates."""
        jobs = offer.candidates
        if self.options.redraw == "round":
            draws = snapshot.rng(self.name).random(snapshot.jobs.app.size)[jobs]
        else:
            draws = _fixed_draws(snapshot, jobs)
        return Valuations(claims=Claims(unit=Unit.JOB, rows=jobs), forms=(Scores(score=draws),))

    @hookimpl
    def eunomia_placement(self, snapshot: Snapshot, menus: Menus, offer: Offer, allocation: Allocation) -> Placement:
        """Place claims in order of service on random suitable GPUs; a claim that can keep its GPUs keeps them."""
        random = snapshot.rng(f"{self.name} placement")
        cluster = snapshot.cluster

        def rule(pool: Pool, ask: Ask) -> Ints | None:
            return _draw(cluster, pool, ask, random)

        return place(snapshot, menus, offer, allocation, rule, pins=False)


def _fixed_draws(snapshot: Snapshot, jobs: Rows) -> Reals:
    draws = [zlib.crc32(f"{snapshot.seed}/{name}".encode()) for name in snapshot.jobs.id[jobs]]
    return np.array(draws, dtype=np.float64)


def _draw(cluster: Cluster, pool: Pool, ask: Ask, random: np.random.Generator) -> Ints | None:
    kinds = types_of(pool, ask, len(cluster.gpu_types), cluster.machine_type)
    if not kinds:
        return None
    room = pool.room(kinds[int(random.integers(len(kinds)))], ask.cpus, ask.memory_gib)
    if room.sum() < ask.gpus:
        return None
    machines = np.repeat(np.arange(room.size), room)
    counts = np.bincount(random.choice(machines, ask.gpus, replace=False), minlength=room.size)
    parts = [random.choice(pool.on(int(machine)), counts[machine], replace=False) for machine in np.flatnonzero(counts)]
    return np.sort(np.concatenate(parts)).astype(np.int64)
