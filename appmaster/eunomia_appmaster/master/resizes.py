"""Reports to the arbiter that jobs run on the changed slots of their own leases, live or after a restart."""

from eunomia_appmaster.master.conductor import Conductor
from eunomia_appmaster.master.gangs import Surroundings
from eunomia_appmaster.master.jobs import Gang
from eunomia_appmaster.master.outbox import ResizeReport
from eunomia_appmaster.master.slots import HeldLease


class Resizes:
    """Detects when jobs run on the changed slots of their leases, and reports each change once.

    Args:
        around: the objects that all jobs of the app share.
        conductor: runs the jobs.
    """

    def __init__(self, around: Surroundings, conductor: Conductor) -> None:
        self._around, self._conductor = around, conductor
        self._reported: dict[int, int] = {}
        """The newest reported epoch of a lease, or the epoch under which the lease was first seen, by lease."""
        self._heard_at: dict[tuple[int, int], float] = {}
        """Unix time at which a lease was first seen under an epoch, by lease and epoch."""

    def again(self) -> None:
        """Report the present epochs again, since the arbiter may not have the last reports."""
        self._reported = dict.fromkeys(self._reported, -1)

    def look(self, now: float) -> None:
        """Report the changed leases on which jobs now run; ``now``: Unix time in seconds by the arbiter's clock."""
        if self._around.file.job.elastic != "live":
            return
        leases = [lease for lease in self._conductor.slots if lease.job is not None]
        self._reported = {lease.id: self._reported.get(lease.id, lease.epoch) for lease in leases}
        self._heard_at = {key: self._heard_at.get(key, now) for key in ((lease.id, lease.epoch) for lease in leases)}
        for lease in leases:
            job = self._conductor.jobs.get(lease.job or 0)
            gang = None if job is None else job.gang
            if lease.epoch > self._reported[lease.id] and gang is not None and _is_on(gang, lease):
                self._reported[lease.id] = lease.epoch
                self._around.outbox.put(
                    "resized", _report(lease, gang, self._heard_at[lease.id, lease.epoch]), key=lease.id
                )


def _is_on(gang: Gang, lease: HeldLease) -> bool:
    """Return whether a gang runs on all slots of a lease, and no live change of the gang is in progress."""
    if not gang.confirmed or gang.ordered:
        return False
    if gang.membership is None:
        return set(gang.gpus) == set(lease.slots)
    settled = gang.membership.forming is None and gang.membership.planned is None
    return settled and set(gang.member_gpus) == set(lease.slots)


def _report(lease: HeldLease, gang: Gang, ordered_at: float) -> ResizeReport:
    return ResizeReport(
        lease=lease.id,
        epoch=lease.epoch,
        at=max(ordered_at, gang.began_at if gang.changed_at is None else gang.changed_at),
        restarted=gang.changed_at is None,
        join_seconds=gang.join_seconds,
        pause_seconds=gang.pause_seconds,
    )
