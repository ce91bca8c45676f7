"""One auction from bids to an allocation: solves it, computes payments and whole GPUs, and allocates leftovers."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from eunomia import Allocation, ByBundle, Claims, Grants, Pins, Reason, Rest, Unit, Verdicts
from eunomia.solve import Limits
from eunomia.units import Ints, Rows
from eunomia_plugins.themis.apps import AppView
from eunomia_plugins.themis.auction import AuctionResult, run_auction
from eunomia_plugins.themis.last_auction import LastAuctions, by_claim
from eunomia_plugins.themis.leftovers import Taker, share_out
from eunomia_plugins.themis.record import AuctionRecord, Line
from eunomia_plugins.themis.reference import run_reference
from eunomia_plugins.themis.winnings import Pieces, kept_sizes, pack, shrunk


@dataclass(frozen=True, slots=True, eq=False)
class Lot:
    """The GPUs of one auction, and the apps that may get them.

    Attributes:
        bids: of the bidders.
        views: of the bidders in the order of their claims, then of the apps outside the auction.
        free: [machines] GPUs on offer.
        gpu_type: [machines] GPU type of each.
        rack: [machines] rack of each.
        now: time of the auction in seconds.
        last: what each app could expect after its last auction.
    """

    bids: ByBundle
    views: list[AppView]
    free: Ints
    gpu_type: Rows
    rack: Rows
    now: float
    last: LastAuctions


def hold_auction(lot: Lot, solver: Literal["fast", "reference"], nodes: int, rng: np.random.Generator) -> Allocation:
    """Hold the auction, and grant kept and leftover GPUs, pinned to machines."""
    outcome = run_reference(lot.bids) if solver == "reference" else run_auction(lot.bids, limits=Limits(nodes=nodes))
    own = {claim: set(view.runs_on) for claim, view in enumerate(lot.views[: len(lot.bids)]) if view.runs_on}
    won = pack(lot.bids, outcome.row, prefers=own)
    kept = shrunk(won, kept_sizes(lot.bids, outcome.row, outcome.kept, rng))
    left = lot.free - kept.on_machine(lot.free.size)
    rest = Pieces.of({})
    if left.any():
        has = by_claim((kept,))
        takers = [
            Taker(claim, view, has.get(claim, {}), claim >= len(lot.bids)) for claim, view in enumerate(lot.views)
        ]
        rest = share_out(left, lot.gpu_type, takers, rng)
    return _allocation(lot, outcome, kept, rest)


def _allocation(lot: Lot, outcome: AuctionResult, kept: Pieces, rest: Pieces) -> Allocation:
    """Return the grant of each app, in one piece per machine."""
    total = np.zeros((len(lot.views), lot.free.size), dtype=np.int64)
    for pieces in (kept, rest):
        np.add.at(total, (pieces.claim, pieces.machine), pieces.gpus)
    claim, machine = np.nonzero(total)
    rows = np.array([view.row for view in lot.views], dtype=np.int32)
    gpus = total.sum(axis=1)
    after = lot.last.after(lot.views, lot.now, len(lot.bids), (kept, rest), lot.rack)
    pins = Pins(claim=claim.astype(np.int32), machine=machine.astype(np.int32), gpus=total[claim, machine])
    return Allocation(
        claims=Claims(unit=Unit.APP, rows=rows),
        amount=Grants(gpus=gpus, pins=pins),
        order=np.flatnonzero(gpus).astype(np.int32),
        rest=Rest.RELEASE,
        verdicts=_verdicts(lot, outcome, gpus),
        record=_record(lot, outcome, kept, rest),
        memo=None if after is lot.last else after,
    )


def _verdicts(lot: Lot, outcome: AuctionResult, gpus: Ints) -> Verdicts:
    """Return why apps got no GPUs; the verdict holds for their jobs that wait, or stop in this round."""
    bidders = len(lot.bids)
    reasons = np.full(gpus.size, int(Reason.NOT_OFFERED), dtype=np.int32)
    reasons[:bidders] = np.where(np.diff(lot.bids.start) > 0, int(Reason.OUTBID), 0)
    reasons[:bidders][outcome.row >= 0] = int(Reason.HELD_BACK)
    late = np.flatnonzero((gpus == 0) & (reasons > 0))
    rows = np.array([lot.views[claim].row for claim in late.tolist()], dtype=np.int32)
    return Verdicts(rows=rows, reasons=reasons[late])


def _record(lot: Lot, outcome: AuctionResult, kept: Pieces, rest: Pieces) -> AuctionRecord:
    keeps, more = kept.by_claim(len(lot.views)), rest.by_claim(len(lot.views))
    lines = [_line(lot, outcome, claim, int(keeps[claim]), int(more[claim])) for claim in range(len(lot.bids))]
    lines += [
        Line(app=lot.views[claim].name, bid=False, gpus_left_over=int(more[claim]))
        for claim in range(len(lot.bids), len(lot.views))
        if more[claim]
    ]
    return AuctionRecord(
        lines=tuple(lines),
        gpus_offered=int(lot.free.sum()),
        apps_active=len(lot.views),
        method=outcome.method.value,
        gap=outcome.gap,
    )


def _line(lot: Lot, outcome: AuctionResult, claim: int, keeps: int, more: int) -> Line:
    best: dict[int, float] = {}
    for bundle in lot.bids.bundles(claim):
        best[bundle.size] = min(bundle.rho, best.get(bundle.size, bundle.rho))
    least = min(best, default=0)
    row = int(outcome.row[claim])
    return Line(
        app=lot.views[claim].name,
        bid=True,
        rho_now=float(lot.bids.now[claim]),
        gpus_least=least,
        rho_least=best.get(least),
        gpus_won=int(lot.bids.sizes[row]) if row >= 0 else 0,
        rho_won=float(lot.bids.rho[row]) if row >= 0 else None,
        kept=float(outcome.kept[claim]) if row >= 0 else None,
        gpus_kept=keeps,
        gpus_left_over=more,
        table=", ".join(f"{size}: {best[size]:.6g}" for size in sorted(best)),
    )
