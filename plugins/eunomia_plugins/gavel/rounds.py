"""Gavel's rounds as its own simulator has them: priorities with credit and deficits, GPU types one after the other."""

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
from eunomia.contracts import Contracts
from eunomia.memos import Memo
from eunomia.pools import usable
from eunomia.units import Bools, Ints, Reals, Rows
from eunomia_plugins.gavel.instance import among, rates_by_type
from eunomia_plugins.gavel.served import Served

GRAIN = 1e-6
"""Times that differ by less, in seconds, are equal: jobs alike must not be ranked by the noise of sums."""
SHARE_GRAIN = 1e-9


class GavelRoundsOptions(PluginOptions):
    """Options of ``gavel_rounds``."""

    round_length: Annotated[Duration, Field(gt=0.0)] = Seconds(360.0)
    """How long a round lasts at most."""
    ends: Literal["clock", "executor"] = "clock"
    """Who ends rounds: they end at multiples of their length, or when the executor says so (``RoundEnded``)."""
    credit: Share = 0.5
    """The part of a round that every job is credited with at each solution: less makes first turns weigh more."""
    types: tuple[str, ...] = ("V100", "P100", "K80")
    """GPU types in the order in which they are filled; those that are not named follow."""
    walk: Literal["named", "shuffled"] = "named"
    """Whether types are filled in that order, or in a random one in each round."""


class GavelRounds:
    """Fill one GPU type after the other with gangs by priority = share / time received since the solution.

    Ties go by deficit (what former solutions promised and was not received), then by share, then by arrival. Gangs
    that do not fit are passed over, a job runs on one type at a time, and one without a share of a type comes last
    there. As in the public simulator of Gavel (OSDI'20, §5), which counts a job's time once, not by GPU.
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
        self._ledgers = _Ledgers()

    @hookimpl
    def eunomia_refine(self, snapshot: Snapshot, menus: Menus, offer: Offer, allocation: Allocation) -> Allocation:
        """Serve candidates by priority until the round ends."""
        shares = allocation.amount
        if not isinstance(shares, TimeShares) or allocation.claims.unit is not Unit.JOB:
            given = f"{type(shares).__name__} of {allocation.claims.unit.value}s"
            raise PluginError(f"{self.name} must get time shares of jobs", value=given)
        last = snapshot.memos.of(self.name, Stage.REFINE)
        book = _read(snapshot, menus, allocation.claims.rows, shares)
        served = last if isinstance(last, Served) and last.at == float(shares.since) else _anew(last, book)
        claims = np.flatnonzero(among(offer.candidates, book.jobs))
        gpus, kinds, order = self._serve(snapshot, menus, offer, book, served, claims)
        jobs = book.jobs[claims]
        lease, ends_at = self._round(float(snapshot.now))
        return dataclasses.replace(
            allocation,
            claims=Claims(unit=Unit.JOB, rows=jobs),
            amount=Grants(gpus=gpus, gpu_type=kinds if book.share.shape[1] > 1 else None),
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
        """Length of the leases of this round, None if nobody knows it, and when it ends."""
        if self.options.ends == "executor":
            return None, np.inf
        length = float(self.options.round_length)
        end = (np.floor(now / length + 1e-9) + 1.0) * length
        lease = end - now
        while now + lease > end:
            lease = np.nextafter(lease, 0.0)
        return Seconds(float(lease)), float(end)

    def _serve(
        self, snapshot: Snapshot, menus: Menus, offer: Offer, book: "_Book", served: Served, claims: Ints
    ) -> tuple[Ints, Rows, Rows]:
        """By candidate GPUs and their type (-1 with 0 GPUs), and the candidates served, first served first."""
        share, time, deficit = self._ranks(book, served, claims)
        priority = np.divide(share, time, out=share * 1e9, where=time > 0.0)
        sizes, able = book.gpus[claims].tolist(), book.able[claims]
        free = usable(snapshot, offer, Claims(unit=Unit.JOB, rows=book.jobs[claims]))
        left = np.bincount(snapshot.cluster.gpu_type[free], minlength=share.shape[1]).tolist()
        served_on: dict[int, int] = {}
        for kind in self._walk(snapshot):
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

    def _ranks(self, book: "_Book", served: Served, claims: Ints) -> tuple[Reals, Reals, Reals]:
        """[candidate, type] share, time since the solution with the credit, and deficit."""
        ledger = self._ledgers.of(served, book)
        credit = self.options.credit * float(self.options.round_length)
        time = np.maximum(book.time[claims] - ledger.received[claims], 0.0) + credit
        return ledger.share[claims], _rounded(time, GRAIN), ledger.deficit[claims]

    def _walk(self, snapshot: Snapshot) -> list[int]:
        types = snapshot.cluster.gpu_types
        if len(types) == 1:
            return [0]
        if self.options.walk == "shuffled":
            return [int(kind) for kind in snapshot.rng(self.name).permutation(len(types))]
        named = [types.index(name) for name in self.options.types if name in types]
        return named + [kind for kind in range(len(types)) if kind not in named]


class _Book(NamedTuple):
    """Claims as they stand."""

    at: float
    """When their solution was found."""
    jobs: Rows
    names: list[str]
    gpus: Ints
    able: Bools
    """[claim, type] whether it runs there, as far as its menu tells where there are several types."""
    share: Reals
    time: Reals
    """[claim, type] seconds received at the gang's size since the job came."""


class _Ledger(NamedTuple):
    """What a solution promised to these claims, as tables: it is the same until another is found or another comes."""

    served: Served
    names: list[str]
    share: Reals
    received: Reals
    deficit: Reals

    @classmethod
    def of(cls, served: Served, book: _Book) -> "_Ledger":
        """Sort by claim what is kept by name."""
        types = book.share.shape[1]
        return cls(
            served=served,
            names=book.names,
            share=_rounded(book.share, SHARE_GRAIN),
            received=_table(served.received, book.names, types),
            deficit=_rounded(_table(served.deficit, book.names, types), GRAIN),
        )


class _Ledgers:
    """The last ledger, which serves until its solution or its claims are others."""

    def __init__(self) -> None:
        self._last: _Ledger | None = None

    def of(self, served: Served, book: _Book) -> _Ledger:
        """The ledger of a solution and these claims."""
        last = self._last
        if last is None or last.served is not served or last.names != book.names:
            last = self._last = _Ledger.of(served, book)
        return last


def _read(snapshot: Snapshot, menus: Menus, jobs: Rows, shares: TimeShares) -> _Book:
    gpus = menus.span(jobs)[1]
    kind = snapshot.jobs.gpu_type[jobs]
    types = np.arange(shares.share.shape[1])
    able: Bools = ((kind[:, None] == -1) | (kind[:, None] == types)) & (gpus[:, None] > 0)
    if types.size > 1:
        able &= rates_by_type(menus, jobs, gpus, types.size) > 0.0
    return _Book(
        at=float(shares.since),
        jobs=jobs,
        names=snapshot.jobs.id[jobs].tolist(),
        gpus=gpus,
        able=able,
        share=shares.share,
        time=snapshot.ledger.jobs.received[jobs] / np.maximum(gpus, 1)[:, None],
    )


def _anew(last: Memo | None, book: _Book) -> Served:
    """Take a solution over: what the last one promised since, and was not received, is added to deficits."""
    deficit = np.zeros(book.share.shape)
    if isinstance(last, Served):
        types = book.share.shape[1]
        promised = _table(last.share, book.names, types) * max(book.at - last.at, 0.0)
        received = book.time - _table(last.received, book.names, types)
        deficit = _table(last.deficit, book.names, types) + promised - received
    return Served(
        at=book.at,
        share=_by_name(book.names, book.share),
        received=_by_name(book.names, book.time),
        deficit=_by_name(book.names, deficit),
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
    """Those of the allocation, and of the others that they had their share for now."""
    rest = late if given.rows.size == 0 else late[~among(given.rows, late)]
    reasons = np.full(rest.size, int(Reason.SHARE_USED_UP), np.int32)
    return Verdicts(rows=np.concatenate([given.rows, rest]), reasons=np.concatenate([given.reasons, reasons]))
