"""A planner out of the tree: it reads coming regimes, and serves the jobs with the longest predicted run first."""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from eunomia import Allocation, Contract, Feature, Menus, Offer, Reason, Snapshot, Stage, hookimpl


@dataclasses.dataclass(frozen=True)
class PlanRecord:
    """The predicted run of each job on the offer, in seconds."""

    jobs: tuple[str, ...]
    seconds: tuple[float, ...]
    table: ClassVar[str] = "plan"

    def columns(self) -> Mapping[str, list[str] | list[float]]:
        """One row a job."""
        return {"job": list(self.jobs), "run_seconds": list(self.seconds)}


class LongestFirst:
    """Jobs with the most seconds left, through all their regimes, come first."""

    name = "longest_first"
    api = 1
    contracts: ClassVar = {Stage.ALLOCATION: Contract(needs=frozenset({Feature.RATES}))}

    @hookimpl
    def eunomia_allocation(self, snapshot: Snapshot, menus: Menus, offer: Offer) -> Allocation:
        """Grant whole gangs while GPUs are left, the longest first."""
        jobs = offer.candidates
        seconds = np.array([self._seconds_left(snapshot, menus, int(job)) for job in jobs])
        jobs, seconds = jobs[np.argsort(-seconds, kind="stable")], -np.sort(-seconds, kind="stable")
        sizes, free = np.zeros(jobs.size, np.int64), offer.free_gpus
        for turn, job in enumerate(jobs):
            most = int(snapshot.jobs.most[job])
            sizes[turn] = most if most <= free else 0
            free -= sizes[turn]
        answer = Allocation.to_jobs(jobs, sizes, otherwise=Reason.OUTRANKED)
        record = PlanRecord(tuple(snapshot.jobs.id[job] for job in jobs), tuple(seconds.tolist()))
        return dataclasses.replace(answer, record=record)

    def _seconds_left(self, snapshot: Snapshot, menus: Menus, job: int) -> float:
        rows = np.array([job])
        left, speed = float(snapshot.iterations_left(rows)[0]), float(menus.full_rate(rows)[0])
        if menus.regimes is None:
            return left / speed
        mine = menus.regimes.job == job
        later, rates = menus.regimes.iterations[mine], menus.regimes.rate[mine]
        return (left - later.sum()) / speed + float((later / rates).sum())
