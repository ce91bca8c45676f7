"""The common part of the family's allocations: when a new solution is due, its memo, and the resulting allocation."""

import dataclasses
import functools
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar, Generic, NamedTuple, Self, TypeVar

import numpy as np

from eunomia import (
    Allocation,
    Cause,
    Claims,
    Cluster,
    Contract,
    Duration,
    Feature,
    Memo,
    Menus,
    Offer,
    PluginOptions,
    Promise,
    Seconds,
    Snapshot,
    Stage,
    TimeShares,
    Triggers,
    Unit,
    Verdicts,
    hookimpl,
)
from eunomia.contract.contracts import Contracts
from eunomia.units import Reals
from eunomia_plugins.gavel.instance import Instance, instance_of, left_out
from eunomia_solvers.choice import SolverChoice

EVENTS = Triggers(on=frozenset({Cause.ARRIVED, Cause.FREED, Cause.LEASE_ENDED, Cause.CLUSTER_CHANGED}))
"""Triggers of a policy of the family; a new solution is computed only after jobs or the numbers of GPUs change."""
MOVES = frozenset({Cause.LEASE_ENDED, Cause.WAKE, Cause.BOUNDARY})
"""Causes of rounds that may move jobs to another GPU type, even if no job waits."""


def triggers_on(cluster: Cluster) -> Triggers:
    """Return the triggers of a policy of time shares: with several GPU types, a round may move any unprotected job.

    Otherwise a job that got a slow type would stay on it once all jobs have GPUs and no job waits.
    """
    return EVENTS if len(cluster.gpu_types) == 1 else dataclasses.replace(EVENTS, all_on=MOVES)


GIVES_TIME: Contracts = {
    Stage.ALLOCATION: Contract(
        gives=frozenset({Feature.TIME_SHARES, Feature.JOB_CLAIMS}), promises=frozenset({Promise.READS_NO_VALUATION})
    )
}
"""The contract of the family: an allocation of time shares from rates, without a valuation."""
Row = tuple[float, ...]


class SharingOptions(PluginOptions):
    """Options common to all policies of the family."""

    performance: bool = False
    """Whether a job's rates on the GPU types are used; if not, all types count as equally fast."""
    weighted: bool = True
    """Whether jobs have the weight of their app; if not, every job has weight 1."""
    least_between: Duration = Seconds(0.0)
    """Minimum time between two solutions: a job that arrives earlier waits for the next one."""
    solver: SolverChoice = "fast"
    """``fast``: a fast exact algorithm; ``reference``: the specification in cvxpy, which is slow."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """The memo of the family: a solution, and ``notes``, the values that a policy carries over, both by job id."""

    version: ClassVar[int] = 1
    at: float
    """Time of the solution, in seconds since the start."""
    capacity: tuple[int, ...]
    jobs: tuple[str, ...]
    """Ids of all jobs present at the solution, with or without a share."""
    share: dict[str, Row]
    """Time shares by GPU type, by job id."""
    notes: dict[str, Row]

    def to_bytes(self) -> bytes:
        """Serialize the memo as JSON, sorted by id."""
        return json.dumps([self.at, self.capacity, self.jobs, self.share, self.notes], sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, version: int, data: bytes) -> Self:
        """Deserialize the memo; only version 1 exists."""
        at, capacity, jobs, share, notes = json.loads(data)
        return cls(at=at, capacity=tuple(capacity), jobs=tuple(jobs), share=_rows(share), notes=_rows(notes))


class Solved(NamedTuple):
    """A policy's solution of an instance."""

    share: Reals
    """[job, type] time shares."""
    notes: Mapping[str, Row] = {}


Solve = Callable[[Instance, list[str], Mapping[str, Row]], Solved]
"""Solves an instance, given the ids of its jobs and the notes of the last solution."""
OptionsType = TypeVar("OptionsType", bound=SharingOptions)


class TimeSharing(ABC, Generic[OptionsType]):
    """Base class of the family's policies; a subclass defines name, options, and ``_solve``."""

    name: ClassVar[str]
    api = 1
    contracts: Contracts = GIVES_TIME
    memo_types: ClassVar[dict[Stage, type[Memo]]] = {Stage.ALLOCATION: Shares}

    def __init__(self, options: OptionsType) -> None:
        self.options = options

    @hookimpl
    def eunomia_triggers(self, cluster: Cluster) -> Triggers:
        """Request rounds on ``EVENTS``; if rates are used, rounds at lease ends may move jobs between GPU types."""
        return triggers_on(cluster) if self.options.performance else EVENTS

    @hookimpl
    def eunomia_allocation(self, snapshot: Snapshot, menus: Menus, offer: Offer) -> Allocation:
        """Share time among all jobs, including running ones."""
        solve = functools.partial(self._solve, snapshot)
        return share_time(self.name, self.options, snapshot, menus, offer, solve)

    @abstractmethod
    def _solve(self, snapshot: Snapshot, instance: Instance, names: list[str], notes: Mapping[str, Row]) -> Solved:
        """Return the time shares of an instance.

        Args:
            snapshot: the current state.
            instance: the jobs, their rates and the GPUs by type.
            names: ids of the jobs.
            notes: notes of the last solution, by job id.
        """


def share_time(
    name: str, options: SharingOptions, snapshot: Snapshot, menus: Menus, offer: Offer, solve: Solve
) -> Allocation:
    """Return the allocation of the last solution, or of a new solution if one is due.

    Args:
        name: name of the plugin.
        options: options of the plugin.
        snapshot: the current state.
        menus: the sizes and rates of jobs.
        offer: the offer, with the cluster's GPUs by type.
        solve: the policy's solver.
    """
    last = snapshot.memos.of(name, Stage.ALLOCATION)
    names: list[str] = snapshot.jobs.id[snapshot.active].tolist()
    if isinstance(last, Shares) and not _due(last, float(snapshot.now), names, offer, options.least_between):
        return _answer(snapshot, menus, offer, last, names)
    found = instance_of(snapshot, menus, offer, weighted=options.weighted, speeds=options.performance)
    able: list[str] = snapshot.jobs.id[found.jobs].tolist()
    solved = solve(
        found if options.performance else found.blind(), able, last.notes if isinstance(last, Shares) else {}
    )
    share = np.clip(solved.share, 0.0, 1.0)
    share /= np.maximum(share.sum(axis=1, keepdims=True), 1.0)
    memo = Shares(
        at=float(snapshot.now),
        capacity=tuple(offer.capacity.tolist()),
        jobs=tuple(names),
        share=dict(zip(able, map(tuple, share.tolist()), strict=True)),
        notes=dict(solved.notes),
    )
    return dataclasses.replace(_answer(snapshot, menus, offer, memo, names), memo=memo)


def _due(last: Shares, now: float, names: list[str], offer: Offer, least_between: float) -> bool:
    """Return whether a new solution is due.

    A solution found at time 0, or with no job left, does not delay the next one.
    """
    if last.capacity != tuple(offer.capacity.tolist()):
        return True
    if set(names) == set(last.jobs):
        return False
    soon = last.at > 0.0 and now < last.at + least_between
    return not soon or not any(name in last.share for name in names)


def _answer(snapshot: Snapshot, menus: Menus, offer: Offer, solution: Shares, names: list[str]) -> Allocation:
    kept = solution.share
    rows = snapshot.active[np.array([name in kept for name in names], dtype=bool)]
    share = np.array([kept[name] for name in names if name in kept])
    rest, why = left_out(snapshot, menus, offer, rows)
    return Allocation(
        claims=Claims(unit=Unit.JOB, rows=rows),
        amount=TimeShares(share=share.reshape(rows.size, offer.capacity.size), since=Seconds(solution.at)),
        order=np.arange(rows.size, dtype=np.int32),
        verdicts=Verdicts(rows=rest, reasons=why),
    )


def _rows(table: dict[str, list[float]]) -> dict[str, Row]:
    return {job: tuple(row) for job, row in table.items()}
