"""One auction from bids to an allocation: solve it, compute payments and whole GPUs, and allocate leftovers."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from eunomia import Allocation, ByBundle, Claims, Grants, Pins, Reason, Rest, Unit, Verdicts
from eunomia.units import Ints, Rows
from eunomia_plugins.themis.apps import AppViews
from eunomia_plugins.themis.auction import AuctionResult, run_auction
from eunomia_plugins.themis.last_auction import LastAuctions
from eunomia_plugins.themis.leftovers import share_out
from eunomia_plugins.themis.record import AuctionRecord, Line
from eunomia_plugins.themis.reference import run_reference
from eunomia_plugins.themis.winnings import Won, joined, kept_sizes, pack, shrunk
from eunomia_solvers import Limits


@dataclass(frozen=True, slots=True, eq=False)
class Lot:
    """The GPUs of one auction, and the apps that may get them.

    Attributes:
        bids: bids of the bidders.
        rows: rows of the bidders in the order of their claims, then of the apps outside the auction.
        views: views of these apps.
        free: [machine] number of GPUs on offer.
        last: the memo of expectations after each app's last auction.
    """

    bids: ByBundle
    rows: list[int]
    views: AppViews
    free: Ints
    last: LastAuctions


def hold_auction(lot: Lot, solver: Literal["fast", "reference"], nodes: int, rng: np.random.Generator) -> Allocation:
    """Hold the auction, and return grants of kept and leftover GPUs, pinned to machines."""
    bids, runs_on = lot.bids, lot.views.apps.runs_on
    outcome = run_reference(bids) if solver == "reference" else run_auction(bids, limits=Limits(nodes=nodes))
    own = {claim: set(runs_on[row]) for claim, row in enumerate(lot.rows[: len(bids)]) if row in runs_on}
    kept = shrunk(pack(bids, outcome.row, prefers=own), kept_sizes(bids, outcome.row, outcome.kept, rng))
    left = lot.free.copy()
    for machines in kept.values():
        left[list(machines)] -= list(machines.values())
    rest: Won = {}
    if left.any():
        outside_first = range(len(bids), len(lot.rows)), range(len(bids))
        rest = share_out(left, lot.views, lot.rows, kept, outside_first, rng)
    return _allocation(lot, outcome, kept, rest)


def _allocation(lot: Lot, outcome: AuctionResult, kept: Won, rest: Won) -> Allocation:
    """Return the allocation with the grant of each app, one pin per machine."""
    won = joined(kept, rest)
    pieces = [(claim, *piece) for claim, machines in sorted(won.items()) for piece in sorted(machines.items())]
    claim, machine, pinned = np.array(pieces, dtype=np.int64).reshape(-1, 3).T.copy()
    pins = Pins(claim=claim.astype(np.int32), machine=machine.astype(np.int32), gpus=pinned)
    gpus = np.zeros(len(lot.rows), dtype=np.int64)
    gpus[list(won)] = [sum(machines.values()) for machines in won.values()]
    after = lot.last.after(lot.views, lot.rows, len(lot.bids), won)
    rows = np.array(lot.rows, dtype=np.int32)
    return Allocation(
        claims=Claims(unit=Unit.APP, rows=rows),
        amount=Grants(gpus=gpus, pins=pins),
        order=gpus.nonzero()[0].astype(np.int32),
        rest=Rest.RELEASE,
        verdicts=_verdicts(rows, lot.bids, outcome, gpus),
        record=_record(lot, outcome, kept, rest),
        memo=None if after is lot.last else after,
    )


def _verdicts(rows: Rows, bids: ByBundle, outcome: AuctionResult, gpus: Ints) -> Verdicts:
    """Return verdicts on apps without GPUs, which apply to their jobs that wait or stop in this round."""
    reasons = np.full(gpus.size, int(Reason.NOT_OFFERED), dtype=np.int32)
    of_bidders = reasons[: len(bids)]
    of_bidders[:] = np.where(bids.start[1:] > bids.start[:-1], int(Reason.OUTBID), 0)
    of_bidders[outcome.row >= 0] = int(Reason.HELD_BACK)
    late = (gpus == 0) & (reasons > 0)
    return Verdicts(rows=rows[late], reasons=reasons[late])


def _record(lot: Lot, outcome: AuctionResult, kept: Won, rest: Won) -> AuctionRecord:
    ids, bidders, sizes = lot.views.apps.snapshot.apps.id, len(lot.bids), lot.bids.sizes.tolist()
    lines = []
    for claim in [*range(bidders), *sorted(claim for claim in rest if claim >= bidders)]:
        more = sum(rest.get(claim, {}).values())
        line = Line(app=str(ids[lot.rows[claim]]), bid=claim < bidders, gpus_left_over=more)
        if line.bid:
            line = _with_bid(line, lot.bids, outcome, claim, sizes, sum(kept.get(claim, {}).values()))
        lines.append(line)
    return AuctionRecord(
        lines=tuple(lines),
        gpus_offered=int(lot.free.sum()),
        apps_active=len(lot.rows),
        method=outcome.method.value,
        gap=outcome.gap,
    )


def _with_bid(line: Line, bids: ByBundle, outcome: AuctionResult, claim: int, sizes: list[int], keeps: int) -> Line:
    """Return the record line of an app with its bid (``sizes``: GPUs of each row), the bundle won and GPUs kept."""
    best: dict[int, float] = {}
    rows = slice(bids.start[claim], bids.start[claim + 1])
    for size, rho in zip(sizes[rows], bids.rho[rows].tolist(), strict=True):
        best[size] = min(rho, best.get(size, rho))
    now, least, row = bids.now.item(claim), min(best, default=0), outcome.row.item(claim)
    line = line._replace(
        rho_now=now,
        gpus_least=least,
        rho_least=best.get(least),
        gain=now / best[least] if best else None,
        bid_table=", ".join(f"{size}: {best[size]:.6g}" for size in sorted(best)),
    )
    if row < 0:
        return line
    with_bundle, kept = bids.rho.item(row), outcome.kept.item(claim)
    return line._replace(
        gain=now / with_bundle,
        gpus_won=sizes[row],
        rho_won=with_bundle,
        kept=kept,
        pays=1.0 - kept,
        gpus_kept=keeps,
    )
