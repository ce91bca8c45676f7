"""The placement ``tetris`` (SIGCOMM'14) over GPUs, CPUs and memory.

It aligns demands with free resources and prefers short jobs.
"""

from typing import Annotated, ClassVar

import numpy as np
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
from eunomia.units import Bools, Ints, Reals
from eunomia_plugins.synergy.claims import Claim
from eunomia_plugins.synergy.packing import Packing, standby_of
from eunomia_plugins.synergy.room import Room
from eunomia_plugins.synergy.tune import fitted


class TetrisOptions(PluginOptions):
    """Options of ``tetris``."""

    short_first: Annotated[float, Field(ge=0.0, allow_inf_nan=False)] = 1.0
    """Weight of short remaining work relative to alignment; 0: alignment only."""
    tunes: bool = False
    """Whether demands are lowered to the proportional share if they do not fit, as with ``synergy_tune``."""


class Tetris:
    """Places the job whose demand best matches a machine's free resources first; short jobs get a bonus.

    The allocation's order is ignored: claims on standby are treated like the others. A job that is pinned, or that fits
    on no single machine, is placed after the others.
    """

    name = "tetris"
    api = 1
    options_type = TetrisOptions
    contracts: ClassVar[Contracts] = {
        Stage.PLACEMENT: Contract(
            needs=frozenset({Feature.GRANTS, Feature.CPUS_AND_MEMORY, Feature.RATES}),
            gives=frozenset({Feature.RETUNES}),
            promises=frozenset({Promise.HONOURS_PINS}),
        )
    }

    def __init__(self, options: TetrisOptions) -> None:
        self.options = options

    @hookimpl
    def eunomia_placement(self, snapshot: Snapshot, menus: Menus, offer: Offer, allocation: Allocation) -> Placement:
        """Keep the claims that can stay, and place the others by score."""
        packing = Packing(snapshot, offer, allocation)
        order = [*allocation.order.tolist(), *standby_of(allocation)]
        packing.keep(order)
        claims = [packing.claims.claim(index) for index in order if index not in packing.placed]
        claims = [claim for claim in claims if claim.gpus > 0]
        plain = [claim for claim in claims if not claim.pins]
        _by_score(packing, plain, self.options.short_first * _shortness(snapshot, menus, allocation, plain))
        for claim in claims:
            if claim.index not in packing.placed:
                self._last(packing, claim)
        if self.options.tunes:
            packing.room.raise_all(packing.in_turn())
        return packing.answer()

    def _last(self, packing: Packing, claim: Claim) -> None:
        """Place a claim whose whole demand fits on no single machine."""
        whole = claim if self.options.tunes else _without_range(claim)
        choice = fitted(packing.room, whole, lowers=self.options.tunes)
        if choice is None:
            packing.refuse(whole)
        else:
            packing.place(claim, choice)


def _without_range(claim: Claim) -> Claim:
    return Claim(claim.index, claim.gpus, claim.gpu_type, claim.most, claim.most, claim.held, claim.pins, claim.gang)


def _shortness(snapshot: Snapshot, menus: Menus, allocation: Allocation, claims: list[Claim]) -> Reals:
    """Return the bonus of each claim of a job, from 1 (least work left, in GPU-seconds) towards 0 (most).

    It is 0 if the work is not known.
    """
    if not claims or allocation.claims.unit is not Unit.JOB:
        return np.zeros(len(claims))
    rows = allocation.claims.rows[[claim.index for claim in claims]]
    rate = menus.full_rate(rows)
    left = snapshot.iterations_left(rows) / np.where(rate > 0.0, rate, np.nan) * [claim.gpus for claim in claims]
    least = np.nanmin(left, initial=np.inf)
    short: Reals = np.nan_to_num(np.maximum(least, 1e-9) / np.maximum(left, 1e-9)) if np.isfinite(least) else left * 0.0
    return np.nan_to_num(short)


def _by_score(packing: Packing, claims: list[Claim], bonus: Reals) -> None:
    """Place claims one at a time, each on one machine, always the best pair of claim and machine."""
    if not claims:
        return
    room, cluster = packing.room, packing.room.cluster
    needs = np.array([[claim.gpus, *(claim.gpus * amount for amount in claim.most)] for claim in claims], float)
    kinds = np.array([claim.gpu_type for claim in claims])
    allowed: Bools = (kinds[:, None] < 0) | (kinds[:, None] == cluster.machine_type)
    scale = np.array([np.diff(cluster.machine_start), cluster.machine_cpus, cluster.machine_memory_gib]).T
    scale = np.where(scale > 0.0, scale, 1.0)  # a machine without a resource adds nothing to an alignment
    machines = np.arange(len(cluster.machines))
    score = _scores(room, needs, scale, allowed, bonus, machines)
    while True:
        at, machine = np.unravel_index(int(score.argmax()), score.shape)
        if not np.isfinite(score[at, machine]):
            return
        claim = claims[int(at)]
        packing.place(claim, ([(int(machine), claim.gpus)], claim.most))
        score[at] = -np.inf
        only = machines[[machine]]
        score[:, only] = np.where(
            np.isfinite(score[:, only]), _scores(room, needs, scale, allowed, bonus, only), -np.inf
        )


def _scores(room: Room, needs: Reals, scale: Reals, allowed: Bools, bonus: Reals, machines: Ints) -> Reals:
    """Return the scores, [claim, machine]: alignment plus bonus; -inf if the claim does not fit."""
    left = np.stack([room.free, room.cpus, room.memory_gib], axis=1)[machines]
    fits = (needs[:, None] <= left * (1.0 + 1e-9) + 1e-9).all(axis=2) & allowed[:, machines]
    aligned = (needs[:, None] / scale[machines] * (left / scale[machines])).sum(axis=2)
    scored: Reals = np.where(fits, aligned + bonus[:, None], -np.inf)
    return scored
