"""Incremental scheduling for ``ordered``: the only claims are jobs that start and jobs that are evicted for them."""

from typing import Final

import numpy as np

from eunomia import (
    NEVER,
    Allocation,
    Claims,
    Grants,
    Menus,
    Misfit,
    Offer,
    Reason,
    Scope,
    Scores,
    Seconds,
    Snapshot,
    Unit,
)
from eunomia.contract.verdicts import NO_VERDICTS, Verdicts
from eunomia.units import NONE, Ints, Rows
from eunomia_plugins.allocations.preemption import ColumnScan, Grant
from eunomia_plugins.allocations.queue import Fits, Queue, preemptible, scan_all, scan_with, serve
from eunomia_plugins.allocations.ranking import in_turn

NO_ROWS: Final = np.empty(0, np.int32)
NO_GPUS: Final = np.empty(0, np.int64)
FIRST: Final = np.zeros(1, np.int32)
FIRST.flags.writeable = False
_INT32, _INT64 = np.dtype(np.int32), np.dtype(np.int64)


def can_be_incremental(snapshot: Snapshot, menus: Menus, offer: Offer, *, stop: bool) -> bool:
    """Return whether incremental scheduling is possible: one size per job, a whole offer, and no job that is leaving.

    Args:
        snapshot: the state of this moment.
        menus: sizes by job.
        offer: what may be touched.
        stop: whether the first job that does not fit ends the service, for running jobs too.
    """
    live = snapshot.live_index
    if live is None or not menus.one_size or not offer.whole:
        return False
    if offer.scope is Scope.FREE and live.none_overdue:
        return True
    return live.plain and not stop


def schedule_incrementally(queue: Queue, snapshot: Snapshot, offer: Offer, scores: Scores, *, stop: bool) -> Allocation:
    """Serve waiting jobs and evict the running jobs that they outrank.

    Args:
        queue: kept from round to round.
        snapshot: of an arbiter, with its live index.
        offer: the whole one.
        scores: the order, with its keys.
        stop: whether the first job that does not fit ends the service.
    """
    live = snapshot.live_index
    key_of = scores.linear_key
    if live is None or key_of is None:
        raise ValueError("incremental scheduling needs an order by key, and a snapshot that an arbiter made")
    unranked = None if offer.contended or stop else _serve_unranked(snapshot, offer)
    if unranked is not None:
        return _allocation(snapshot, offer, unranked, [], scores, stop=stop)
    free, evicted, fits = live.space.free.copy(), list[int](), queue.fits(offer.capacity)
    all_gpus = offer.scope is not Scope.FREE
    queue.update(snapshot, key_of, running=all_gpus)
    if all_gpus:
        queue.running.refresh(snapshot, key_of)
        grants, evicted = scan_all(queue, snapshot, free, fits)
    elif not live.none_overdue:
        overdue = ColumnScan(preemptible(snapshot, key_of, live.overdue), free)
        grants, evicted = scan_with(queue, overdue, free, fits)
    else:
        grants = serve(queue, free, stop=stop, fits=fits)
    return _allocation(snapshot, offer, grants, evicted, scores, stop=stop, impossible=_impossible(queue, fits))


def _serve_unranked(snapshot: Snapshot, offer: Offer) -> list[Grant] | None:
    """Grant GPUs to all waiting jobs if all of them fit, without ranking them; None: they do not all fit."""
    live, table = snapshot.live_index, snapshot.jobs
    if live is None or not live.proportional:
        return None
    free, waiting, grants = live.space.free, live.waiting, list[Grant]()
    types = len(free)
    if types > 1 and len(waiting) > 1:
        return None  # with several types, rank decides which job chooses first
    for row in waiting:
        kind = table.gpu_type.item(row)
        if not NONE <= kind < types:
            return None
        of = kind if kind != NONE else free.index(max(free)) if types > 1 else 0
        grants.append(Grant(row, of, table.most.item(row)))
    return grants


def _impossible(queue: Queue, fits: Fits) -> Verdicts:
    """Return verdicts on the jobs that are too large for this cluster."""
    if queue.widest <= fits.everywhere:
        return NO_VERDICTS
    found = [
        (row, int(Reason.NO_SIZE_FITS if fits.limit(kind) else Reason.NO_GPU_OF_TYPE))
        for (kind, gpus), entries in queue.waiting.items()
        if gpus > fits.limit(kind)
        for _, _, row in entries
    ]
    if not found:
        return NO_VERDICTS
    rows, reasons = zip(*found, strict=True)
    return Verdicts(rows=np.array(rows, np.int32), reasons=np.array(reasons, np.int32))


def _allocation(
    snapshot: Snapshot,
    offer: Offer,
    grants: list[Grant],
    evicted: list[int],
    scores: Scores,
    *,
    stop: bool,
    impossible: Verdicts = NO_VERDICTS,
) -> Allocation:
    rows, gpus, kinds = _columns(grants, evicted, types=offer.capacity.size)
    if not grants:
        order = NO_ROWS
    elif rows.size == 1:
        order = FIRST
    else:
        order = in_turn(snapshot, rows, gpus, np.arange(len(evicted), rows.size), stop=stop)
    wake_at = NEVER
    if scores.holds is not None and offer.contended and grants:
        wake_at = Seconds(snapshot.now + max(float(scores.holds(rows[len(evicted) :]).min()), 1e-3))
    return Allocation(
        claims=Claims(unit=Unit.JOB, rows=rows),
        amount=Grants(gpus=gpus, gpu_type=kinds),
        order=order,
        on_misfit=Misfit.STOP if stop else Misfit.SKIP,
        verdicts=impossible,
        wake_at=wake_at,
    )


def _columns(grants: list[Grant], evicted: list[int], *, types: int) -> tuple[Rows, Ints, Rows | None]:
    """Rows of evicted and of served jobs, their GPUs, and the type of these (-1 with 0) where there are several."""
    if len(grants) == 1 and not evicted:
        ((row, kind, gpus),) = grants
        return np.array([row], _INT32), np.array([gpus], _INT64), np.array([kind], _INT32) if types > 1 else None
    if not grants and not evicted:
        return NO_ROWS, NO_GPUS, NO_ROWS if types > 1 else None
    rows = np.array([*evicted, *[grant.row for grant in grants]], _INT32)
    sizes = np.array([*[0 for _ in evicted], *[grant.gpus for grant in grants]], _INT64)
    kinds = np.array([*[-1 for _ in evicted], *[grant.kind for grant in grants]], _INT32) if types > 1 else None
    return rows, sizes, kinds
