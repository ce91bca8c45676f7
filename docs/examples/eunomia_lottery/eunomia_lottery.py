"""Lottery scheduling: free GPUs go to jobs drawn at random; a job has as many tickets as its app has weight."""

from typing import Literal

import numpy as np

from eunomia import Allocation, Menus, Offer, PluginOptions, Reason, Snapshot, Stage, hookimpl
from eunomia.contract.contracts import Contract, Feature, Promise


class LotteryOptions(PluginOptions):
    """Options of the lottery."""

    tickets: Literal["weight", "equal"] = "weight"
    """The tickets of a job: its app's weight, or one."""


class Lottery:
    """Draws jobs without replacement until the free GPUs suit no waiting job."""

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
