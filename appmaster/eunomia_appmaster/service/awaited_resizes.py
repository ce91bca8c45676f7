"""Changed leases of jobs that resize live: each begins once its app master confirms the resize, or after a timeout."""

from collections.abc import Iterable, Iterator
from typing import Final

from eunomia.arbiter import ClusterView
from eunomia.contract.events import Resized, Started
from eunomia.units import AppId, Epoch, LeaseId, Seconds
from eunomia_appmaster.protocol import arbiter_pb2 as pb

RESIZE_SECONDS: Final = 60.0
"""Seconds after which a changed lease counts as begun even without its app master's confirmation."""


class AwaitedResizes:
    """One app's changed leases whose jobs do not run on the changed slots yet.

    Args:
        live: whether the app's jobs change their size live; else each lease begins once its message is acknowledged.
    """

    def __init__(self, *, live: bool) -> None:
        self._live = live
        self._awaited: dict[int, tuple[Started, float]] = {}

    def put(self, started: Started, *, changes: bool, now: float) -> bool:
        """Start to wait for a lease's resize; return False if the lease begins at the acknowledgement instead.

        Args:
            started: the start that counts as confirmed if no report arrives in time.
            changes: whether the lease belongs to a job and existed before under an older epoch.
            now: seconds of the machine's uptime.
        """
        if not self._live or not changes:
            self._awaited.pop(started.lease, None)
            return False
        self._awaited[started.lease] = started, now + RESIZE_SECONDS
        return True

    def take_due(self, now: float) -> list[Started]:
        """Return the starts whose confirmation is overdue, and stop waiting for them."""
        due = [started for started, until in self._awaited.values() if now >= until]
        for started in due:
            del self._awaited[started.lease]
        return due

    def hear(
        self, reports: Iterable[pb.JobResized], view: ClusterView, app: str, now: Seconds
    ) -> Iterator[Resized | Started]:
        """Yield the events of an app master's reports about its own leases.

        Args:
            reports: the request's reports.
            view: the arbiter's state.
            app: the app's name.
            now: seconds on the arbiter's clock.
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
