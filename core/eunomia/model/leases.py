"""Who holds which GPU until when: leases, and a row a GPU that says what is true of it now."""

import dataclasses
from enum import IntEnum

from eunomia.model.columns import column
from eunomia.model.shapes import reads
from eunomia.units import NEVER, NONE, ZERO, Ints, Reals, Rows, Seconds


class GpuState(IntEnum):
    """The actual state of a GPU: at most one holder, at most one successor."""

    FREE = 0
    OFFERED = 1
    """On an offer that app masters value; a holder whose lease ended runs on until the offer closes."""
    HELD = 2
    LEAVING = 3
    """Revoked, not yet given back."""
    DOWN = 4


@reads
class Holdings:
    """A row a GPU; -1: none."""

    app: Rows = column("int32", NONE)
    job: Rows = column("int32", NONE)
    """The job that runs on it: the lease's own, or the one that the app's tuner put there."""
    lease: Ints = column("int64", NONE)
    epoch: Ints = column("int64", NONE)
    """Of the last order to its holder; a release that acknowledges an older one does not count."""
    ends_at: Reals = column(float, float("inf"))
    protected_until: Reals = column(float, float("-inf"))
    state: Rows = column("int32", 0)
    """A ``GpuState``."""
    successor: Ints = column("int64", NONE)
    """The lease that gets the GPU when its holder has given it back."""
    next_app: Rows = column("int32", NONE)
    """App of the successor; says nothing where there is none."""
    next_job: Rows = column("int32", NONE)
    """Job of the successor's lease; -1: the app divides. It says nothing where there is no successor."""
    cpus: Reals = column(float, 0.0)
    memory_gib: Reals = column(float, 0.0)


class LeaseState(IntEnum):
    """Where a lease stands."""

    PENDING = 0
    """Some of its GPUs have not come back from their last holder."""
    ORDERED = 1
    """All its GPUs are its own; the start is not confirmed."""
    ACTIVE = 2
    LEAVING = 3


@dataclasses.dataclass(slots=True, kw_only=True)
class Lease:
    """A lease belongs to an app; it names its job where the claim was a job."""

    id: int
    epoch: int
    app: int
    """App row."""
    job: int = NONE
    """Job row; -1: the app divides."""
    gpus: Ints
    """The GPUs that it is to have, ascending; those that it has lost already are not among them."""
    ends_at: Seconds = NEVER
    protected_until: Seconds = ZERO
    state: LeaseState = LeaseState.PENDING
    granted_at: Seconds = ZERO
