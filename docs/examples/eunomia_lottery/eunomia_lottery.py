"""Lottery scheduling: what is free goes to jobs drawn at random, each holding its app's weight in tickets."""

from typing import Literal

import numpy as np

from eunomia import Allocation, Menus, Offer, PluginOptions, Reason, Snapshot, Stage, hookimpl
from eunomia.contracts import Contract, Feature, Promise


class LotteryOptions(PluginOptions):
    """Options of the lottery."""

    tickets: Literal["weight", "equal"] = "weight"
    """What a job draws with: its app's weight, or one ticket each."""


class Lottery:
    """Draws without replacement until nothing that is free suits anyone still waiting."""

    name = "lottery"
    api = 1
    options_type = LotteryOptions
    contracts = {
        Stage.ALLOCATION: Contract(
            needs=frozenset({Feature.ONE_GPU_TYPE}), promises=frozenset({Promise.WORK_CONSERVING})
        )
    }

    def __init__(self, options: LotteryOptions) -> None:
        self.options = options

    @hookimpl
    def eunomia_allocation(self, snapshot: Snapshot, menus: Menus, offer: Offer) -> Allocation:
        """Grant each drawn job the largest size on its menu that is still free."""
        jobs = offer.candidates
        tickets = snapshot.apps.weight[snapshot.jobs.app[jobs]]
        if self.options.tickets == "equal":
            tickets = np.ones_like(tickets)
        luck = snapshot.rng(self.name)  # seeded by run, round and plugin: same snapshot, same draw
        order = jobs[np.argsort(luck.exponential(size=jobs.size) / tickets)]
        sizes = np.zeros(order.size, dtype=np.int64)
        free = offer.free_gpus
        for turn, job in enumerate(order):
            sizes[turn] = menus.largest_at_most(job, free)
            free -= sizes[turn]
        return Allocation.to_jobs(order, sizes, otherwise=Reason.OUTRANKED)
