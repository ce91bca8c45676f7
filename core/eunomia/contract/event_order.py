"""The fixed order in which simultaneous events are applied, and the expansion of compound events."""

import dataclasses
import operator
from collections.abc import Iterable

from eunomia.contract import events as kinds
from eunomia.contract.events import Event

ORDER: tuple[type, ...] = (
    kinds.MachineLeft,
    kinds.MachineJoined,
    kinds.ProfileChanged,
    kinds.KindProfiled,
    kinds.UserHeld,
    kinds.MachineLost,
    kinds.MachineBack,
    kinds.MachineDraining,
    kinds.MachineKept,
    kinds.Released,
    kinds.GpusReturned,
    kinds.JobFinished,
    kinds.JobFailed,
    kinds.AppFinished,
    kinds.AppCancelled,
    kinds.Retuned,
    kinds.Started,
    kinds.Resized,
    kinds.JobReported,
    kinds.Adapted,
    kinds.RoundEnded,
    kinds.JobsDivided,
    kinds.JobPaused,
    kinds.AppArrived,
    kinds.JobAdded,
    kinds.JobResumed,
    kinds.RateMeasured,
    kinds.RegimesAnnounced,
    kinds.ForecastReported,
    kinds.BidReceived,
)
"""The order in which simultaneous events are applied, by type."""

_RANK = {kind: rank for rank, kind in enumerate(ORDER)}
SPAN = {kind: (rank, rank) for kind, rank in _RANK.items()} | {
    kinds.SingleJobEnded: (_RANK[kinds.Released], _RANK[kinds.AppFinished]),
    kinds.SingleJobArrived: (_RANK[kinds.AppArrived], _RANK[kinds.JobAdded]),
}
"""First and last place of each type of event in the order; a compound event covers all places between."""


_COMPOUND: tuple[type, ...] = (kinds.SingleJobEnded, kinds.SingleJobArrived)
_PARTS = dict.fromkeys(_RANK, 1) | {kinds.SingleJobEnded: 3, kinds.SingleJobArrived: 2}


def expanded(events: Iterable[Event]) -> list[Event]:
    """Replace each compound event by the events that it combines, as they are journaled."""
    single: list[Event] = []
    for event in events:
        if type(event) is kinds.SingleJobArrived:
            single += (event.arrival, event.job)
        elif type(event) is kinds.SingleJobEnded:
            single.append(kinds.Released(lease=event.lease, epoch=event.epoch, gpus=event.gpus))
            single += (kinds.JobFinished(job=event.job), kinds.AppFinished(app=event.app))
        else:
            single.append(event)
    return single


def count_of(events: Iterable[Event]) -> int:
    """Return the number of events, counting each compound event as the events that it combines."""
    count = 0
    for event in events:
        count += _PARTS[type(event)]
    return count


def in_order(events: Iterable[Event]) -> list[Event]:
    """Sort simultaneous events into the fixed order: by type, then by id; events with the same id keep their order.

    A compound event is expanded if another event must be applied between the events that it combines.
    """
    found: dict[type, list[Event]] = {}
    for event in events:
        found.setdefault(type(event), []).append(event)
    for kind in _COMPOUND:
        first, last = SPAN[kind]
        if kind in found and (len(found[kind]) > 1 or any(first <= SPAN[at][0] <= last for at in found if at != kind)):
            for event in expanded(found.pop(kind)):
                found.setdefault(type(event), []).append(event)
    ordered: list[Event] = []
    for kind in sorted(found, key=SPAN.__getitem__):
        theirs = found[kind]
        if len(theirs) > 1:
            theirs.sort(key=SUBJECT[kind])
        ordered += theirs
    return ordered


def _subject_of(kind: type) -> str:
    """Return the name of the field with the id of the machine, job, app or lease that an event concerns."""
    names = {field.name for field in dataclasses.fields(kind)}
    return next((name for name in ("machine", "job", "app", "lease") if name in names), "__class__.__name__")


SUBJECT = {kind: operator.attrgetter(_subject_of(kind)) for kind in ORDER}
"""Functions, by type of event, that return the id of the machine, job, app or lease that an event concerns."""
