"""The refiner ``time_sharing``: the job that received the least of its share runs next (Gavel, OSDI'20, §5)."""

import dataclasses
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from eunomia import (
    Allocation,
    Claims,
    Contract,
    Duration,
    Feature,
    Grants,
    Memo,
    Menus,
    Offer,
    PluginError,
    PluginOptions,
    Reason,
    Seconds,
    Snapshot,
    Stage,
    TimeShares,
    Unit,
    Verdicts,
    hookimpl,
)
from eunomia.contract.contracts import Contracts
from eunomia.units import Ints, Reals, Rows
from eunomia_plugins.refine.solutions import Solution
from eunomia_plugins.refine.turns import free_by_type, turn
from eunomia_plugins.type_rows import widened


class TimeSharingOptions(PluginOptions):
    """Options of ``time_sharing``."""

    round_length: Annotated[Duration, Field(gt=0.0)] = Seconds(360.0)
    """Duration of a round; GPUs granted in a round are leased until its end."""
    least_between: Duration = Seconds(1800.0)
    """Minimum time between two solutions; until then new shares are not adopted."""
    new_jobs: Literal["last", "equal"] = "equal"
    """Whether a new job has priority 0 (``last``) or an equal time share (``equal``) until the next solution."""


class TimeSharing:
    """Gavel's mechanism: a job's priority on a GPU type is its share over the time received since the last solution.

    In each round, jobs are served by priority, each with its whole gang on one type, while GPUs of that type are free.
    The time received is read from the ledger, so a job catches up on rounds that it missed.
    """

    name = "time_sharing"
    api = 1
    options_type = TimeSharingOptions
    contracts: ClassVar[Contracts] = {
        Stage.REFINE: Contract(
            needs=frozenset({Feature.TIME_SHARES}), gives=frozenset({Feature.GRANTS, Feature.JOB_CLAIMS})
        )
    }
    memo_types: ClassVar[dict[Stage, type[Memo]]] = {Stage.REFINE: Solution}

    def __init__(self, options: TimeSharingOptions) -> None:
        self.options = options

    @hookimpl
    def eunomia_refine(self, snapshot: Snapshot, menus: Menus, offer: Offer, allocation: Allocation) -> Allocation:
        """Serve candidates by priority until the end of the round."""
        shares = allocation.amount
        if not isinstance(shares, TimeShares) or allocation.claims.unit is not Unit.JOB:
            given = f"{type(shares).__name__} of {allocation.claims.unit.value}s"
            raise PluginError(f"{self.name} must get time shares of jobs", value=given)
        solution = self._solution(snapshot, allocation.claims.rows, shares.share)
        claims = _candidates(allocation, offer)
        jobs = allocation.claims.rows[claims]
        sizes = menus.span(jobs)[1]
        priority = self._priority(snapshot, solution, jobs, sizes, shares.share[claims])
        gpus, kinds, order = _serve(priority, sizes, free_by_type(snapshot, offer, jobs))
        late = jobs[gpus == 0]
        now = turn(snapshot.now, self.options.round_length)
        return dataclasses.replace(
            allocation,
            claims=Claims(unit=Unit.JOB, rows=jobs),
            amount=Grants(gpus=gpus, gpu_type=kinds if priority.shape[1] > 1 else None),
            order=order,
            standby=None,
            lease=now.lease,
            protected=now.lease,
            wake_at=min(allocation.wake_at, now.ends_at),
            starts_at=None,
            verdicts=_verdicts(allocation.verdicts, late),
            record=None,
            memo=solution,
        )

    def _solution(self, snapshot: Snapshot, jobs: Rows, share: Reals) -> Solution:
        """Return the solution to use: the previous one until it is old enough and the shares change."""
        last = snapshot.memos.of(self.name, Stage.REFINE)
        if isinstance(last, Solution):
            last = widened(last, len(snapshot.cluster.gpu_types), "shares", "received")
        names = [str(name) for name in snapshot.jobs.id[jobs]]
        shares = dict(zip(names, map(tuple, share.tolist()), strict=True))
        if isinstance(last, Solution) and (
            snapshot.now < last.at + self.options.least_between or last.shares == shares
        ):
            return last
        received = snapshot.ledger.jobs.received[jobs].tolist()
        return Solution(
            at=float(snapshot.now), shares=shares, received=dict(zip(names, map(tuple, received), strict=True))
        )

    def _priority(self, snapshot: Snapshot, solution: Solution, jobs: Rows, sizes: Ints, share: Reals) -> Reals:
        """Return the priorities, [job, type]: share over the fraction of time received since the solution.

        The priority is -1 if the job cannot run on the type.

        Jobs that received no time come before all others, largest share first. A job without a share in the solution
        has priority 0 or an equal share.
        """
        names = [str(name) for name in snapshot.jobs.id[jobs]]
        known = np.array([name in solution.shares for name in names], dtype=bool)
        nothing = (0.0,) * share.shape[1]
        target = np.array([solution.shares.get(name, nothing) for name in names]).reshape(share.shape)
        before = np.array([solution.received.get(name, nothing) for name in names]).reshape(share.shape)
        may = np.where(known[:, None], target > 0.0, share > 0.0)
        if self.options.new_jobs == "equal":
            target[~known] = np.where(share[~known] > 0.0, 1.0 / max(1, len(names)), 0.0)
        elapsed = max(float(snapshot.now) - solution.at, 0.0)
        part = (snapshot.ledger.jobs.received[jobs] - before) / np.maximum(sizes, 1)[:, None]
        part = np.maximum(part, 0.0) / elapsed if elapsed > 0.0 else np.zeros_like(part)
        with np.errstate(divide="ignore", invalid="ignore"):
            priority = np.where(part > 0.0, target / part, _NEVER_RAN * target)
        found: Reals = np.where(may & (sizes > 0)[:, None], priority, -1.0)
        return found


_NEVER_RAN = 1e12
"""The priority of a job that received no time is its share times this factor."""


def _candidates(allocation: Allocation, offer: Offer) -> Ints:
    """Return the claims of jobs that may be granted GPUs now, in the allocation's order."""
    rest = np.setdiff1d(np.arange(allocation.claims.rows.size), allocation.order)
    every = np.concatenate([allocation.order, rest]).astype(np.int64)
    return every[np.isin(allocation.claims.rows[every], offer.candidates)]


def _serve(priority: Reals, sizes: Ints, free: Ints) -> tuple[Ints, Rows, Rows]:
    """Serve all pairs of job and type by priority; a job gets its whole gang on one type.

    Returns:
        [job] number of GPUs, [job] their type (-1 with 0 GPUs), and the served jobs in order of service.
    """
    gpus, kinds = np.zeros(sizes.size, np.int64), np.full(sizes.size, -1, np.int32)
    left = free.tolist()
    order: list[int] = []
    flat = priority.ravel()
    for pair in np.argsort(-flat, kind="stable")[: int((flat >= 0.0).sum())].tolist():
        job, kind = divmod(pair, priority.shape[1])
        if gpus[job] == 0 and sizes[job] <= left[kind]:
            gpus[job], kinds[job] = sizes[job], kind
            left[kind] -= int(sizes[job])
            order.append(job)
            if not any(left):
                break
    return gpus, kinds, np.array(order, np.int32)


def _verdicts(given: Verdicts, late: Rows) -> Verdicts:
    """Return the verdicts of the allocation plus those on jobs that have used up their shares for now."""
    rest = np.setdiff1d(late, given.rows).astype(np.int32)
    reasons = np.full(rest.size, int(Reason.SHARE_USED_UP), np.int32)
    return Verdicts(rows=np.concatenate([given.rows, rest]), reasons=np.concatenate([given.reasons, reasons]))
