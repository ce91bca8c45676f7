"""The rounds of Gavel's public simulator: priorities with credit and deficits; GPU types are filled one by one."""

import dataclasses
from typing import Annotated, ClassVar, Literal, NamedTuple

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
    Share,
    Snapshot,
    Stage,
    TimeShares,
    Unit,
    Verdicts,
    hookimpl,
)
from eunomia.contract.contracts import Contracts
from eunomia.contract.pools import usable
from eunomia.units import Bools, Ints, Reals, Rows
from eunomia_plugins.gavel.instance import among
from eunomia_plugins.gavel.served import Served
from eunomia_plugins.type_rates import rates_by_type
from eunomia_plugins.type_rows import widened

GRAIN = 1e-6
"""Resolution of times in seconds: smaller differences are ignored, so that rounding errors do not rank equal jobs."""
SHARE_GRAIN = 1e-9


class GavelRoundsOptions(PluginOptions):
    """Options of ``gavel_rounds``."""

    round_length: Annotated[Duration, Field(gt=0.0)] = Seconds(360.0)
    """Maximum duration of a round."""
    ends: Literal["clock", "executor"] = "clock"
    """When rounds end: at multiples of their length, or when the executor reports it (``RoundEnded``)."""
    credit: Share = 0.5
    """Fraction of a round that counts as received by every job at each new solution.

    With a smaller credit, jobs that have not run since the solution have a higher priority.
    """
    types: tuple[str, ...] = ("V100", "P100", "K80")
    """GPU types in the order in which they are filled. Types not named follow, fastest first, by the mean rate of jobs
    relative to each job's best type."""
    walk: Literal["named", "shuffled"] = "named"
    """Whether types are filled in this order, or in a new random order in each round."""


class GavelRounds:
    """Fills one GPU type after another with gangs by priority: share over time received since the solution.

    Ties are broken by deficit (time that earlier solutions promised and the job did not receive), then share, then
    arrival. Gangs that do not fit are skipped, a job runs on one type at a time, and a job without a share of a type
    comes last on it. As in the public simulator of Gavel (OSDI'20, §5), a job's time counts once, not per GPU.
    """

    name = "gavel_rounds"
    api = 1
    options_type = GavelRoundsOptions
    contracts: ClassVar[Contracts] = {
        Stage.REFINE: Contract(
            needs=frozenset({Feature.TIME_SHARES}), gives=frozenset({Feature.GRANTS, Feature.JOB_CLAIMS})
        )
    }
    memo_types: ClassVar[dict[Stage, type[Memo]]] = {Stage.REFINE: Served}

    def __init__(self, options: GavelRoundsOptions) -> None:
        self.options = options
        self._tables = _TableCache()

    @hookimpl
    def eunomia_refine(self, snapshot: Snapshot, menus: Menus, offer: Offer, allocation: Allocation) -> Allocation:
        """Serve candidates by priority until the round ends."""
        shares = allocation.amount
        if not isinstance(shares, TimeShares) or allocation.claims.unit is not Unit.JOB:
            given = f"{type(shares).__name__} of {allocation.claims.unit.value}s"
            raise PluginError(f"{self.name} must get time shares of jobs", value=given)
        last = snapshot.memos.of(self.name, Stage.REFINE)
        if isinstance(last, Served):
            last = widened(last, len(snapshot.cluster.gpu_types), "share", "received", "deficit")
        state = _state(snapshot, menus, allocation.claims.rows, shares)
        served = last if isinstance(last, Served) and last.at == float(shares.since) else _new_solution(last, state)
        claims = np.flatnonzero(among(offer.candidates, state.jobs))
        gpus, kinds, order = self._serve(snapshot, offer, state, served, claims)
        jobs = state.jobs[claims]
        lease, ends_at = self._round(float(snapshot.now))
        return dataclasses.replace(
            allocation,
            claims=Claims(unit=Unit.JOB, rows=jobs),
            amount=Grants(gpus=gpus, gpu_type=kinds if state.share.shape[1] > 1 else None),
            order=order,
            standby=None,
            lease=lease,
            protected=Seconds(0.0) if lease is None else lease,
            wake_at=Seconds(min(allocation.wake_at, ends_at)),
            starts_at=None,
            verdicts=_verdicts(allocation.verdicts, jobs[gpus == 0]),
            record=None,
            memo=None if served is last else served,
        )

    def _round(self, now: float) -> tuple[Seconds | None, float]:
        """Return the length of this round's leases in seconds (None: not known), and the end of the round."""
        if self.options.ends == "executor":
            return None, np.inf
        length = float(self.options.round_length)
        end = (np.floor(now / length + 1e-9) + 1.0) * length
        lease = end - now
        while now + lease > end:
            lease = np.nextafter(lease, 0.0)
        return Seconds(float(lease)), float(end)

    def _serve(
        self, snapshot: Snapshot, offer: Offer, state: "_ClaimState", served: Served, claims: Ints
    ) -> tuple[Ints, Rows, Rows]:
        """Return GPUs and their type (-1 with 0 GPUs) by candidate, and the served candidates in order of service."""
        share, time, deficit = self._ranks(state, served, claims)
        priority = np.divide(share, time, out=share * 1e9, where=time > 0.0)
        sizes, able = state.gpus[claims].tolist(), state.able[claims]
        free = usable(snapshot, offer, Claims(unit=Unit.JOB, rows=state.jobs[claims]))
        left = np.bincount(snapshot.cluster.gpu_type[free], minlength=share.shape[1]).tolist()
        served_on: dict[int, int] = {}
        for kind in self._type_order(snapshot, state.speed):
            ranked = np.lexsort((-share[:, kind], -deficit[:, kind], -priority[:, kind]))
            for job in ranked[able[ranked, kind]].tolist():
                if sizes[job] <= left[kind] and job not in served_on:
                    served_on[job] = kind
                    left[kind] -= sizes[job]
                    if left[kind] == 0:
                        break
        gpus, kinds = np.zeros(claims.size, np.int64), np.full(claims.size, -1, np.int32)
        order = np.fromiter(served_on, np.int32, len(served_on))
        gpus[order], kinds[order] = [sizes[job] for job in served_on], list(served_on.values())
        return gpus, kinds, order

    def _ranks(self, state: "_ClaimState", served: Served, claims: Ints) -> tuple[Reals, Reals, Reals]:
        """Return share, time received since the solution plus the credit, and deficit, each [candidate, type]."""
        tables = self._tables.of(served, state)
        credit = self.options.credit * float(self.options.round_length)
        time = np.maximum(state.time[claims] - tables.received[claims], 0.0) + credit
        return tables.share[claims], _rounded(time, GRAIN), tables.deficit[claims]

    def _type_order(self, snapshot: Snapshot, speed: Reals) -> list[int]:
        """Return the types in the order in which they are filled; ``speed`` [type] ranks those that are not named."""
        types = snapshot.cluster.gpu_types
        if len(types) == 1:
            return [0]
        if self.options.walk == "shuffled":
            return [int(kind) for kind in snapshot.rng(self.name).permutation(len(types))]
        named = [types.index(name) for name in self.options.types if name in types]
        rest = [kind for kind in range(len(types)) if kind not in named]
        return named + sorted(rest, key=lambda kind: -float(speed[kind]))


class _ClaimState(NamedTuple):
    """The present state of the claims, as input of the priorities."""

    at: float
    """Time of the present solution, in seconds since the start."""
    jobs: Rows
    names: list[str]
    gpus: Ints
    able: Bools
    """[claim, type] whether the job can run on the type; with several types, its menu must have a rate for it."""
    speed: Reals
    """[type] mean over claims of the rate on the type relative to the claim's best type."""
    share: Reals
    time: Reals
    """[claim, type] seconds that the job ran, at its gang's size, since it arrived."""


class _SolutionTables(NamedTuple):
    """A solution as tables by claim, valid until the solution or the claims change."""

    served: Served
    names: list[str]
    share: Reals
    received: Reals
    deficit: Reals

    @classmethod
    def of(cls, served: Served, state: _ClaimState) -> "_SolutionTables":
        """Build the tables by claim from values by job id."""
        types = state.share.shape[1]
        return cls(
            served=served,
            names=state.names,
            share=_rounded(state.share, SHARE_GRAIN),
            received=_table(served.received, state.names, types),
            deficit=_rounded(_table(served.deficit, state.names, types), GRAIN),
        )


class _TableCache:
    """A cache of the last tables, valid until the solution or the claims change."""

    def __init__(self) -> None:
        self._last: _SolutionTables | None = None

    def of(self, served: Served, state: _ClaimState) -> _SolutionTables:
        """Return the tables of a solution and these claims."""
        last = self._last
        if last is None or last.served is not served or last.names != state.names:
            last = self._last = _SolutionTables.of(served, state)
        return last


def _state(snapshot: Snapshot, menus: Menus, jobs: Rows, shares: TimeShares) -> _ClaimState:
    gpus = menus.span(jobs)[1]
    kind = snapshot.jobs.gpu_type[jobs]
    types = np.arange(shares.share.shape[1])
    able: Bools = ((kind[:, None] == -1) | (kind[:, None] == types)) & (gpus[:, None] > 0)
    speed = np.ones(types.size)
    if types.size > 1:
        rates = rates_by_type(menus, jobs, gpus, types.size)
        able &= rates > 0.0
        if jobs.size:
            best = np.maximum(rates.max(axis=1, keepdims=True), np.finfo(float).tiny)
            speed = np.round((rates / best).mean(axis=0), 9)
    return _ClaimState(
        at=float(shares.since),
        jobs=jobs,
        names=snapshot.jobs.id[jobs].tolist(),
        gpus=gpus,
        able=able,
        speed=speed,
        share=shares.share,
        time=snapshot.ledger.jobs.received[jobs] / np.maximum(gpus, 1)[:, None],
    )


def _new_solution(last: Memo | None, state: _ClaimState) -> Served:
    """Return the memo for a new solution: deficits grow by the time that jobs were promised but did not receive."""
    deficit = np.zeros(state.share.shape)
    if isinstance(last, Served):
        types = state.share.shape[1]
        promised = _table(last.share, state.names, types) * max(state.at - last.at, 0.0)
        received = state.time - _table(last.received, state.names, types)
        deficit = _table(last.deficit, state.names, types) + promised - received
    return Served(
        at=state.at,
        share=_by_name(state.names, state.share),
        received=_by_name(state.names, state.time),
        deficit=_by_name(state.names, deficit),
    )


def _table(rows: dict[str, tuple[float, ...]], names: list[str], types: int) -> Reals:
    nothing = (0.0,) * types
    return np.array([rows.get(name, nothing) for name in names]).reshape(len(names), types)


def _by_name(names: list[str], table: Reals) -> dict[str, tuple[float, ...]]:
    return dict(zip(names, map(tuple, table.tolist()), strict=True))


def _rounded(table: Reals, grain: float) -> Reals:
    found: Reals = np.round(table / grain) * grain
    return found


def _verdicts(given: Verdicts, late: Rows) -> Verdicts:
    """Add verdicts to those of the allocation: other waiting jobs have used up their shares for now."""
    rest = late if given.rows.size == 0 else late[~among(given.rows, late)]
    reasons = np.full(rest.size, int(Reason.SHARE_USED_UP), np.int32)
    return Verdicts(rows=np.concatenate([given.rows, rest]), reasons=np.concatenate([given.reasons, reasons]))
