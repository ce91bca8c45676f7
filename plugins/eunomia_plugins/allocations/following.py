"""``ordered`` by what changed: claims are only those who start, and those who have to leave for them."""

from typing import Final

import numpy as np

from eunomia import NEVER, Allocation, Claims, Grants, Menus, Misfit, Offer, Reason, Scope, Seconds, Snapshot, Unit
from eunomia.units import NONE, Ints, Rows
from eunomia.valuations import Keys
from eunomia.verdicts import NO_VERDICTS, Verdicts
from eunomia_plugins.allocations.contests import ColumnWalk, Grant
from eunomia_plugins.allocations.queue import Fits, Queue, contest, contest_all, contestants_of, serve
from eunomia_plugins.allocations.ranking import in_turn

NOBODY: Final = np.empty(0, np.int32)
NO_GPUS: Final = np.empty(0, np.int64)
FIRST: Final = np.zeros(1, np.int32)
FIRST.flags.writeable = False
_INT32, _INT64 = np.dtype(np.int32), np.dtype(np.int64)


def can_follow(snapshot: Snapshot, menus: Menus, offer: Offer, *, stop: bool) -> bool:
    """Say whether what changes says it all: one size a job, the whole offer, and nobody on its way out.

    Args:
        snapshot: the state of this moment.
        menus: sizes by job.
        offer: what may be touched.
        stop: whether the first job that does not fit ends the service, for those who run too.
    """
    sets = snapshot.sets
    if sets is None or not menus.one_size or not offer.whole:
        return False
    if offer.scope is Scope.FREE and sets.nobody_overdue:
        return True
    return sets.plain and not stop


def follow(queue: Queue, snapshot: Snapshot, offer: Offer, keys: Keys, *, stop: bool) -> Allocation:
    """Serve who waits, and let those leave who are overtaken.

    Args:
        queue: kept from round to round.
        snapshot: of an arbiter, with its sets.
        offer: the whole one.
        keys: the order.
        stop: whether the first job that does not fit ends the service.
    """
    sets = snapshot.sets
    if sets is None:
        raise ValueError("what changes can only be followed in an arbiter's own snapshots")
    everybody = None if offer.contended or stop else _everybody(snapshot, offer)
    if everybody is not None:
        return _allocation(snapshot, offer, everybody, [], keys, stop=stop)
    free, losers, fits = sets.space.free.copy(), list[int](), queue.fits(offer.capacity)
    all_of_it = offer.scope is not Scope.FREE
    queue.follow(snapshot, keys, running=all_of_it)
    if all_of_it:
        queue.running.refresh(snapshot, keys)
        grants, losers = contest_all(queue, snapshot, free, fits)
    elif not sets.nobody_overdue:
        over = ColumnWalk(contestants_of(snapshot, keys, sets.overdue), free)
        grants, losers = contest(queue, over, free, fits)
    else:
        grants = serve(queue, free, stop=stop, fits=fits)
    return _allocation(snapshot, offer, grants, losers, keys, stop=stop, beyond=_beyond(queue, fits))


def _everybody(snapshot: Snapshot, offer: Offer) -> list[Grant] | None:
    """Grants to all that wait, where all of it fits and so nobody need be ranked; None: ranks matter."""
    sets, table = snapshot.sets, snapshot.jobs
    if sets is None or not sets.proportional:
        return None
    free, waiting, grants = sets.space.free, sets.waiting, list[Grant]()
    if len(free) > 1 and len(waiting) > 1:
        return None  # of several types, who comes first chooses
    for row in waiting:
        kind = table.gpu_type.item(row)
        if not NONE <= kind < len(free):
            return None
        of = kind if kind != NONE else free.index(max(free)) if len(free) > 1 else 0
        grants.append(Grant(row, of, table.most.item(row)))
    return grants


def _beyond(queue: Queue, fits: Fits) -> Verdicts:
    """Jobs that this cluster cannot run at all."""
    if queue.widest <= fits.everywhere:
        return NO_VERDICTS
    found = [
        (row, int(Reason.NO_SIZE_FITS if fits.limit(kind) else Reason.NO_GPU_OF_TYPE))
        for (kind, gpus), line in queue.waiting.items()
        if gpus > fits.limit(kind)
        for _, _, row in line
    ]
    if not found:
        return NO_VERDICTS
    rows, reasons = zip(*found, strict=True)
    return Verdicts(rows=np.array(rows, np.int32), reasons=np.array(reasons, np.int32))


def _allocation(
    snapshot: Snapshot,
    offer: Offer,
    grants: list[Grant],
    losers: list[int],
    keys: Keys,
    *,
    stop: bool,
    beyond: Verdicts = NO_VERDICTS,
) -> Allocation:
    rows, gpus, kinds = _columns(grants, losers, types=offer.capacity.size)
    if not grants:
        order = NOBODY
    elif rows.size == 1:
        order = FIRST
    else:
        order = in_turn(snapshot, rows, gpus, np.arange(len(losers), rows.size), stop=stop)
    wake_at = NEVER
    if keys.holds is not None and offer.contended and grants:
        wake_at = Seconds(snapshot.now + max(float(keys.holds(rows[len(losers) :]).min()), 1e-3))
    return Allocation(
        claims=Claims(unit=Unit.JOB, rows=rows),
        amount=Grants(gpus=gpus, gpu_type=kinds),
        order=order,
        on_misfit=Misfit.STOP if stop else Misfit.SKIP,
        verdicts=beyond,
        wake_at=wake_at,
    )


def _columns(grants: list[Grant], losers: list[int], *, types: int) -> tuple[Rows, Ints, Rows | None]:
    """Who leaves and who is served, with how many GPUs, and of which type (-1 with none) where there are several."""
    if len(grants) == 1 and not losers:
        ((row, kind, gpus),) = grants
        return np.array([row], _INT32), np.array([gpus], _INT64), np.array([kind], _INT32) if types > 1 else None
    if not grants and not losers:
        return NOBODY, NO_GPUS, NOBODY if types > 1 else None
    rows = np.array([*losers, *[grant.row for grant in grants]], _INT32)
    sizes = np.array([*[0 for _ in losers], *[grant.gpus for grant in grants]], _INT64)
    kinds = np.array([*[-1 for _ in losers], *[grant.kind for grant in grants]], _INT32) if types > 1 else None
    return rows, sizes, kinds
