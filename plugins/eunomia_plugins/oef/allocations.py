"""The plugins ``oef_noncooperative``, ``oef_cooperative`` and ``oef_efficient``, which share GPUs of each type."""

import dataclasses
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import numpy as np

from eunomia import (
    Allocation,
    ByType,
    Cause,
    Claims,
    Cluster,
    Contract,
    DeviceShares,
    Feature,
    Memo,
    Offer,
    PluginOptions,
    Promise,
    Seconds,
    Snapshot,
    Stage,
    Triggers,
    Valuations,
    hookimpl,
)
from eunomia.contract.contracts import Contracts
from eunomia.units import Reals
from eunomia_plugins.oef.answers import Answer
from eunomia_plugins.oef.cooperative import solve_cooperative
from eunomia_plugins.oef.efficient import solve_efficient
from eunomia_plugins.oef.groups import Groups, check, divided, merged
from eunomia_plugins.oef.noncooperative import solve_noncooperative
from eunomia_plugins.oef.solutions import LastSolution, SolutionRecord, version_of
from eunomia_plugins.oef.specification import state_cooperative, state_efficient, state_noncooperative
from eunomia_solvers.choice import SolverChoice

EVENTS = Triggers(on=frozenset({Cause.ARRIVED, Cause.FREED, Cause.LEASE_ENDED, Cause.CLUSTER_CHANGED}))
MOVES = frozenset({Cause.LEASE_ENDED, Cause.WAKE, Cause.BOUNDARY})
"""Causes of rounds that may move jobs to another GPU type, even if no job waits."""


class Programme(NamedTuple):
    """A programme in two versions: the fast solver, and the statement in cvxpy as in the paper."""

    fast: Callable[[Groups], Answer]
    stated: Callable[[Groups], Answer]


class OefOptions(PluginOptions):
    """Options of OEF's allocations."""

    solver: SolverChoice = "fast"
    """``fast``: a fast algorithm; ``reference``: the programme as the paper states it, in cvxpy, which is slow."""


class _Oef:
    """Base class of OEF's allocations; a subclass defines a name and a programme."""

    api = 1
    options_type = OefOptions
    contracts: ClassVar[Contracts] = {
        Stage.ALLOCATION: Contract(needs=frozenset({Feature.BY_TYPE}), gives=frozenset({Feature.DEVICE_SHARES}))
    }
    memo_types: ClassVar[dict[Stage, type[Memo]]] = {Stage.ALLOCATION: LastSolution}
    name: ClassVar[str]
    programme: ClassVar[Programme]

    def __init__(self, options: OefOptions) -> None:
        self.options = options

    @hookimpl
    def eunomia_triggers(self, cluster: Cluster) -> Triggers:
        """Request a round at every arrival and whenever GPUs become free; the refiner requests its own rounds.

        With several GPU types, the refiner's rounds also move running jobs; otherwise a job that got a slow type would
        stay on it once no job waits.
        """
        return EVENTS if len(cluster.gpu_types) == 1 else dataclasses.replace(EVENTS, all_on=MOVES)

    @hookimpl
    def eunomia_allocation(self, snapshot: Snapshot, offer: Offer, valuations: Valuations) -> Allocation:
        """Share the whole cluster; the last solution is reused until claims, speedups, weights or GPUs change."""
        claims = valuations.claims
        groups = groups_of(claims, valuations.form(ByType).speedup, offer)
        names = names_of(snapshot, claims)
        check(groups, names, snapshot.cluster.gpu_types)
        inputs = version_of(groups, names)
        last = snapshot.memos.of(self.name, Stage.ALLOCATION)
        order = np.arange(claims.rows.size, dtype=np.int32)
        if isinstance(last, LastSolution) and last.inputs == inputs:
            shares = DeviceShares(gpus=last.shares(groups.gpus.size), since=Seconds(last.since))
            return Allocation(claims=claims, amount=shares, order=order)
        answer = self._solve(groups)
        throughput = (groups.speedup * answer.gpus).sum(axis=1)
        return Allocation(
            claims=claims,
            amount=DeviceShares(gpus=answer.gpus, since=Seconds(snapshot.now)),
            order=order,
            record=SolutionRecord(
                names=tuple(names),
                throughput=tuple(throughput.tolist()),
                gpus=tuple(answer.gpus.sum(axis=1).tolist()),
                answer=answer,
            ),
            memo=LastSolution(inputs=inputs, gpus=tuple(map(tuple, answer.gpus.tolist())), since=float(snapshot.now)),
        )

    def _solve(self, groups: Groups) -> Answer:
        able = np.flatnonzero(groups.speedup.max(axis=1, initial=0.0) > 0.0)
        if able.size == 0:
            return Answer(gpus=np.zeros(groups.speedup.shape), objective=0.0, bound=0.0, path="no claims")
        if able.size < groups.weight.size:  # a claim that is fast on no type has no share
            part = Groups(speedup=groups.speedup[able], weight=groups.weight[able], gpus=groups.gpus)
            answer, gpus = self._solve(part), np.zeros(groups.speedup.shape)
            gpus[able] = answer.gpus
            return dataclasses.replace(answer, gpus=gpus)
        if self.options.solver == "reference":
            return self.programme.stated(groups)
        whole, index = merged(groups)
        answer = self.programme.fast(whole)
        gpus = divided(np.maximum(answer.gpus, 0.0), groups, whole, index)
        return dataclasses.replace(answer, gpus=gpus)


def _promising(*promises: Promise) -> Contracts:
    """Return the contract of an allocation of the family with these promises to users who have enough jobs."""
    return {Stage.ALLOCATION: dataclasses.replace(_Oef.contracts[Stage.ALLOCATION], promises=frozenset(promises))}


class OefNoncooperative(_Oef):
    """Non-cooperative OEF (9a to 9c): all claims get the same throughput per unit of weight, which is maximised."""

    name = "oef_noncooperative"
    contracts = _promising(Promise.STRATEGY_PROOF_OVER)
    programme = Programme(solve_noncooperative, state_noncooperative)


class OefCooperative(_Oef):
    """Cooperative OEF (10a to 10c): maximises the sum of throughputs such that no claim envies another."""

    name = "oef_cooperative"
    contracts = _promising(Promise.SHARING_INCENTIVE, Promise.ENVY_FREE)
    programme = Programme(solve_cooperative, state_cooperative)


class OefEfficient(_Oef):
    """Efficiency-only OEF (4): maximises the sum of throughputs."""

    name = "oef_efficient"
    programme = Programme(solve_efficient, state_efficient)


def groups_of(claims: Claims, speedup: Reals, offer: Offer) -> Groups:
    """Return the input of a programme: the claims, and the cluster's GPUs by type."""
    weight = np.ones(claims.rows.size) if claims.weight is None else np.asarray(claims.weight, dtype=float)
    gpus: Reals = offer.capacity.astype(float)
    return Groups(speedup=np.where(gpus > 0.0, speedup, 0.0), weight=weight, gpus=gpus)


def names_of(snapshot: Snapshot, claims: Claims) -> list[str]:
    """Return the name of each claim, from its unit, row and kind, which is stable while the claim exists."""
    kinds = np.zeros(claims.rows.size, np.int64) if claims.job_kind is None else claims.job_kind
    table = {"user": snapshot.users.id, "group": snapshot.users.id, "app": snapshot.apps.id, "job": snapshot.jobs.id}
    ids = table[claims.unit.value]
    pairs = zip(claims.rows.tolist(), kinds.tolist(), strict=True)
    return [f"{ids[row]}/{kind}" if claims.job_kind is not None else str(ids[row]) for row, kind in pairs]
