"""The plugin ``ordered``: serve jobs in the valuation's order, each with the largest size on its menu that is free."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from eunomia import (
    NEVER,
    NO_VERDICTS,
    Allocation,
    Cause,
    Claims,
    Contract,
    Explanation,
    Feature,
    Grants,
    Menus,
    Misfit,
    Offer,
    PluginOptions,
    Promise,
    Queue,
    Reason,
    Scope,
    Scores,
    Seconds,
    Snapshot,
    Stage,
    Triggers,
    Unit,
    Valuations,
    Verdicts,
    hookimpl,
)
from eunomia.model.shapes import maker
from eunomia.units import NONE
from eunomia_plugins.allocations.gangs import Grant, limit, preempt, serve
from eunomia_plugins.allocations.gaps import fill_gaps
from eunomia_plugins.allocations.ranking import EVENTS, asks
from eunomia_plugins.allocations.sizes import Serving, serve_sizes

_new_allocation, _new_grants = maker(Allocation), maker(Grants)
_PLANNED_LATER: Final = np.array([int(Reason.PLANNED_LATER)], np.int32)
_NONE: Final[tuple[tuple[int, ...], ...]] = ((), (), (), ())


class OrderedOptions(PluginOptions):
    """Options of ``ordered``."""

    on_misfit: Literal["skip", "stop", "easy", "conservative"] = "skip"
    """If a job's smallest size is not free: ``skip`` it, ``stop`` the service, or reserve GPUs for it (for the first
    such job, or for all) and backfill with jobs that do not delay it."""
    bookings: Annotated[int, Field(ge=1)] = 100
    """With ``conservative``: maximum number of jobs with reservations."""
    preemptive: bool = False
    """Whether running jobs are ranked too and preempted by higher-ranked jobs; if not, only free GPUs are granted."""
    standby: Annotated[int, Field(ge=0)] = 0
    """With ``skip``: number of waiting jobs that the placement may start at their smallest size on GPUs that it cannot
    use for the jobs ahead of them."""

    size: Literal["largest", "smallest"] = "largest"
    """The size of an elastic job: the largest that is free, or the smallest, which a refiner may raise."""

    @model_validator(mode="after")
    def _standby_skips(self) -> Self:
        if self.standby and self.on_misfit != "skip":
            raise ValueError('standby must be 0 unless on_misfit is "skip"')
        if self.size == "smallest" and self.on_misfit in ("easy", "conservative"):
            raise ValueError('size must be "largest" where on_misfit is "easy" or "conservative"')
        return self


class Ordered:
    """Serves candidates by scores of jobs, or by scores of apps or users, whose jobs are served by arrival."""

    name = "ordered"
    api = 1
    options_type = OrderedOptions

    def __init__(self, options: OrderedOptions) -> None:
        self.options = options
        self._serving = Serving(options.on_misfit, options.bookings, options.standby, options.size)
        self._in_gangs = options.on_misfit in ("skip", "stop") and not options.standby
        promises = frozenset({Promise.WORK_CONSERVING} if options.on_misfit == "skip" else ())
        self.contracts = {
            Stage.ALLOCATION: Contract(
                needs=frozenset({Feature.SCORES}),
                gives=frozenset({Feature.GRANTS, Feature.JOB_CLAIMS}),
                promises=promises,
            )
        }

    @hookimpl
    def eunomia_triggers(self) -> Triggers:
        """Request a round at every arrival and whenever GPUs become free."""
        all_on = frozenset(Cause) if self.options.preemptive else frozenset()
        reserves = self.options.on_misfit in ("easy", "conservative")
        return Triggers(on=EVENTS, all_on=all_on, when_served=False, when_full=reserves)

    @hookimpl
    def eunomia_allocation(self, snapshot: Snapshot, menus: Menus, offer: Offer, valuations: Valuations) -> Allocation:
        """Serve jobs in order; a job for which no GPUs are left waits with the reason OUTRANKED.

        If jobs have one size each and the valuation gives sort keys, jobs are kept sorted, and the answer contains only
        jobs that start, move, or are preempted (with 0 GPUs). Otherwise all candidates are ranked, and it contains all.
        """
        scores = [form for form in valuations.forms if isinstance(form, Scores)]
        form, index = scores[0] if scores else None, snapshot.index
        stop = self.options.on_misfit == "stop"
        if form is None or form.key is None or not self._in_gangs or not menus.one_size or not offer.whole:
            return self._by_size(snapshot, menus, offer, valuations, form)
        only_free = offer.scope is Scope.FREE and index.none_overdue
        if not only_free and (stop or not index.settled):
            return serve_sizes(snapshot, menus, offer, valuations, self._serving)
        impossible, capacity, grants = NO_VERDICTS, offer.capacity.tolist(), None
        if not offer.contended and not stop and index.proportional:
            grants = _all(snapshot)
        if grants is None:
            everywhere = offer.scope is not Scope.FREE
            queue = index.queue(form.key, menus, running=everywhere, owner=self)
            if everywhere:
                grants, evicted = preempt(queue, index.free.free, capacity)
            else:
                takes = [] if only_free else queue.exact(index.overdue)
                grants, evicted = serve(queue, takes, index.free.free, capacity, stop=stop)
            if queue.widest > min(capacity):
                impossible = _impossible(queue, capacity)
        else:
            evicted = []
        granted, types, gpus, _ = zip(*grants, strict=True) if grants else _NONE
        first = len(evicted)
        rows: Any = [*evicted, *granted]  # columns as lists of plain numbers: most answers are short
        sizes: Any = [*[0] * first, *gpus]
        kinds: Any = None if len(capacity) == 1 else [*[NONE] * first, *types]
        order: Any = [first] if len(grants) == 1 else _in_turn(snapshot, grants, first, stop=stop)
        ranks_change = form.holds is not None and offer.contended
        wake_at = _first_change(snapshot, form, [*granted]) if ranks_change else NEVER
        return _new_allocation(
            claims=Claims(unit=Unit.JOB, rows=rows),
            amount=_new_grants(gpus=sizes, gpu_type=kinds),
            order=order,
            on_misfit=Misfit.STOP if stop else Misfit.SKIP,
            verdicts=impossible,
            wake_at=wake_at,
        )

    def _by_size(
        self, snapshot: Snapshot, menus: Menus, offer: Offer, valuations: Valuations, form: Scores | None
    ) -> Allocation:
        """Rank and serve all candidates; gangs on one GPU type are backfilled from queues, with the same decisions."""
        index, capacity = snapshot.index, offer.capacity.tolist()
        settled = index.none_overdue and index.settled and index.proportional
        plain = menus.one_size and offer.whole and offer.scope is Scope.FREE and len(capacity) == 1 and settled
        if self.options.on_misfit != "easy" or form is None or form.key is None or not plain:
            return serve_sizes(snapshot, menus, offer, valuations, self._serving)
        queue = index.queue(form.key, menus, running=False, owner=self)
        filled = fill_gaps(snapshot, menus, queue, index.free.free[0], capacity[0])
        rows, sizes = [row for row, *_ in filled.grants], [gpus for _, _, gpus, _ in filled.grants]
        verdicts, starts_at = _impossible(queue, capacity) if queue.widest > capacity[0] else NO_VERDICTS, None
        if filled.held is not None:
            late = Verdicts(rows=np.array([filled.held], np.int32), reasons=_PLANNED_LATER)
            verdicts = late if verdicts is NO_VERDICTS else _joined(verdicts, late)
            starts_at = np.array([*[math.nan] * len(rows), filled.starts_at])
        held = [] if filled.held is None else [filled.held]
        return Allocation(
            claims=Claims(unit=Unit.JOB, rows=np.array([*rows, *held], np.int32)),
            amount=Grants(gpus=np.array([*sizes, *[0] * len(held)], np.int64)),
            order=np.arange(len(rows), dtype=np.int32),  # by rank, as a job may fit only after those ahead of it
            verdicts=verdicts,
            starts_at=starts_at,
            wake_at=_first_change(snapshot, form, rows),
        )

    @hookimpl
    def eunomia_explain(self) -> Explanation:
        """Explain the rules of the queue; the valuation explains a job's place in it."""
        stays = "" if self.options.preemptive else " A running job is not stopped for others before its lease ends."
        return Explanation(text=_RULES[self.options.on_misfit] + stays, numbers={})


_RULES: Mapping[str, str] = {
    "skip": "A job that fits may pass jobs that do not.",
    "stop": "No job passes a job ahead of it that does not fit.",
    "easy": "A job that fits may pass jobs that do not, if the first of these starts no later for it.",
    "conservative": "A job that fits may pass jobs that do not, if none of these starts later for it.",
}


def _all(snapshot: Snapshot) -> list[Grant] | None:
    """Grant GPUs to all waiting jobs, which all fit, without ranking them; None if their ranks matter.

    With several GPU types ranks matter, as the job that is served first chooses its type.
    """
    table, free, waiting = snapshot.jobs, snapshot.index.free.free, snapshot.index.waiting
    order = table.arrived if snapshot.arrivals is None else snapshot.arrivals
    types, many = len(free), len(waiting) > 1
    grants: list[Grant] = []
    if types > 1 and many:
        return None
    for row in waiting:
        kind = table.gpu_type.item(row)
        if not NONE <= kind < types:
            return None
        of = kind if kind != NONE else free.index(max(free)) if types > 1 else 0
        grants.append((row, of, table.most.item(row), order.item(row) if many else 0))
    return grants


def _joined(one: Verdicts, other: Verdicts) -> Verdicts:
    rows, reasons = np.concatenate([one.rows, other.rows]), np.concatenate([one.reasons, other.reasons])
    return Verdicts(rows=rows, reasons=reasons)


def _first_change(snapshot: Snapshot, form: Scores, rows: list[int]) -> Seconds:
    """Return the first time, in seconds, at which the rank of a job that starts now changes."""
    if form.holds is None or not rows:
        return NEVER
    return Seconds(snapshot.now + max(float(form.holds(np.array(rows, np.int32)).min()), 1e-3))


def _impossible(queue: Queue, capacity: list[int]) -> Verdicts:
    """Return verdicts on the jobs that are too large for this cluster."""
    found = [
        (row, int(Reason.NO_SIZE_FITS if limit(capacity, kind) else Reason.NO_GPU_OF_TYPE))
        for (kind, gpus), entries in queue.waiting.items()
        if gpus > limit(capacity, kind)
        for _, _, row in entries
    ]
    if not found:
        return NO_VERDICTS
    rows, reasons = zip(*found, strict=True)
    return Verdicts(rows=np.array(rows, np.int32), reasons=np.array(reasons, np.int32))


def _in_turn(snapshot: Snapshot, grants: list[Grant], first: int, *, stop: bool) -> list[int]:
    """Return the order in which served jobs choose their GPUs; see ``ranking.in_turn``.

    Args:
        snapshot: the current state.
        grants: the grants in order of service.
        first: claim index of the first grant.
        stop: whether the first job that cannot be placed ends the service.
    """
    turn = list(range(len(grants)))
    if not stop and (snapshot.index.proportional or not asks(snapshot.jobs, [row for row, *_ in grants])):
        turn.sort(key=lambda at: (-grants[at][2], grants[at][3]))
    return [first + at for at in turn]
