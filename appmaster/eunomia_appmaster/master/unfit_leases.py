"""Leases of a size that is not allowed for their job: surplus slots are given back, and a notice reports why.

The arbiter checks the sizes that a policy grants, so such a lease comes from an arbiter of another version, or from a
bug. A gang never runs on it, live or after a restart.
"""

from collections.abc import Collection, Mapping
from typing import Final

from eunomia_appmaster.master.slots import HeldLease, Slot

RULE: Final = "a lease of {job} must have {least} to {most} slots, but got {given} (lease {lease})"


def surplus(
    lease: HeldLease,
    slots: Mapping[int, Slot],
    *,
    members: Collection[int],
    busy: Collection[int],
    least: int,
    most: int,
) -> tuple[int, ...]:
    """Return the GPUs to give back of a job's own lease that has more slots than ``most`` or fewer than ``least``.

    A lease that is too small is given back whole, one that is too large down to the most; never a slot on which a
    process may still run.

    Args:
        lease: the lease, as last received from the arbiter.
        slots: the slots that the app may use now, by GPU.
        members: GPUs of the job's gang, which it keeps first.
        busy: GPUs on which processes may run.
        least: the fewest slots of the job.
        most: the most slots of the job.
    """
    usable = [gpu for gpu in lease.slots if gpu in slots]
    if len(lease.slots) < least:
        return tuple(sorted(set(usable) - set(busy)))
    kept = sorted(usable, key=lambda gpu: (gpu not in members, gpu not in busy, gpu))
    return tuple(sorted(set(kept[most:]) - set(busy)))


def words(lease: HeldLease, job: str, least: int, most: int) -> str:
    """Return a text with the rule on sizes that a lease breaks, the lease's number of slots, and its id."""
    return RULE.format(job=job, least=least, most=most, given=len(lease.slots), lease=lease.id)
