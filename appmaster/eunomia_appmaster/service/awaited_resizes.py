"""Changed leases of jobs that change their size live: each has begun once its app master says so, or after a while."""

from collections.abc import Iterable, Iterator
from typing import Final

from eunomia.arbiter import ClusterView
from eunomia.contract.events import Resized, Started
from eunomia.units import AppId, Epoch, LeaseId, Seconds
from eunomia_appmaster.protocol import arbiter_pb2 as pb

RESIZE_SECONDS: Final = 60.0
"""Seconds after which a changed lease counts as begun although its app master has not said that it is."""


class AwaitedResizes:
    """The changed leases of one app whose jobs do not run on the changed slots yet.

    Args:
        live: whether the app's jobs change their size live; else each lease begins once its message is acknowledged.
    """

    def __init__(self, *, live: bool) -> None:
        self._live = live
        self._awaited: dict[int, tuple[Started, float]] = {}

    def put(self, started: Started, *, changes: bool, now: float) -> bool:
        """Await a lease's resize; returns False if it begins at the acknowledgement.

        Args:
            started: the start that is confirmed if no report comes.
            changes: whether the lease is a job's own, and was there before under an older epoch.
            now: seconds of the machine's uptime.
        """
        if not self._live or not changes:
            self._awaited.pop(started.lease, None)
            return False
        self._awaited[started.lease] = started, now + RESIZE_SECONDS
        return True

    def take_due(self, now: float) -> list[Started]:
        """Return the starts of leases that were awaited for too long."""
        due = [started for started, until in self._awaited.values() if now >= until]
        for started in due:
            del self._awaited[started.lease]
        return due

    def hear(
        self, reports: Iterable[pb.JobResized], view: ClusterView, app: str, now: Seconds
    ) -> Iterator[Resized | Started]:
        """Yield the events of an app master's reports about its own leases.

        Args:
            reports: of the request.
            view: of the arbiter.
            app: the app's name.
            now: seconds since the arbiter's start.
        """
        row = view.app_row(AppId(app))
        for report in reports:
            lease = view.lease(report.lease)
            if lease is None or lease.app != row or report.epoch != lease.epoch:
                continue  # there is a newer order
            self._awaited.pop(report.lease, None)
            at = Seconds(max(float(now) - report.seconds_ago, 0.0))
            kind = Started if report.restarted else Resized
            yield kind(lease=LeaseId(report.lease), epoch=Epoch(report.epoch), at=at)
