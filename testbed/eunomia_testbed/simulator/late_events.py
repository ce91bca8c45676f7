"""Drops reports of jobs and apps that end in the same step.

The arbiter applies ends before reports, in a fixed order, so a report at the same time would refer to a job or an app
that no longer exists.
"""

from collections.abc import Callable
from typing import Final

from eunomia.contract.events import (
    Adapted,
    AppCancelled,
    AppFinished,
    BidReceived,
    Event,
    ForecastReported,
    GpusReturned,
    JobFailed,
    JobFinished,
    JobPaused,
    JobReported,
    JobResumed,
    JobsDivided,
    RateMeasured,
    SingleJobEnded,
)
from eunomia.units import AppId, JobId

_OF_APPS: Final = frozenset({ForecastReported, JobsDivided, BidReceived, GpusReturned})
_ENDS: Final = frozenset({JobFinished, JobFailed, AppFinished, AppCancelled, SingleJobEnded})


def without_late_events(events: list[Event], app_of: Callable[[JobId], AppId]) -> list[Event]:
    """Return a step's events without reports of jobs and apps that end in the same step.

    Args:
        events: the events of one step; the same list is returned if no job and no app ends.
        app_of: returns the app of a job.
    """
    if _ENDS.isdisjoint(map(type, events)):
        return events
    jobs = {event.job for event in events if isinstance(event, JobFinished | SingleJobEnded)}
    jobs |= {event.job for event in events if isinstance(event, JobFailed) and event.again_in is None}
    apps = {event.app for event in events if isinstance(event, AppFinished | AppCancelled | SingleJobEnded)}
    if not jobs and not apps:
        return events

    def too_late(event: Event) -> bool:
        if isinstance(event, JobReported | RateMeasured | Adapted | JobPaused | JobResumed):
            return event.job in jobs or app_of(event.job) in apps
        return type(event) in _OF_APPS and event.app in apps  # type: ignore[union-attr]

    return [event for event in events if not too_late(event)]
