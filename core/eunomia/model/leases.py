"""Leases, and the table of holdings: one row per GPU with its holder, its successor and its state."""

import dataclasses
from enum import IntEnum

from eunomia.model.columns import column
from eunomia.model.shapes import reads
from eunomia.units import NEVER, NONE, ZERO, Ints, Reals, Rows, Seconds


class GpuState(IntEnum):
    """The state of a GPU, which has at most one holder and at most one successor."""

    FREE = 0
    OFFERED = 1
    """In an open offer to app masters; a holder whose lease has ended keeps running until the offer closes."""
    HELD = 2
    LEAVING = 3
    """Revoked from the holder, which has not released it yet."""
    DOWN = 4


@reads
class Holdings:
    """The holder, successor and state of each GPU, one row per GPU; -1 means none."""

    app: Rows = column("int32", NONE)
    job: Rows = column("int32", NONE)
    """The job that runs on the GPU: the job of the lease, or the one to which the app's tuner assigned the GPU."""
    lease: Ints = column("int64", NONE)
    epoch: Ints = column("int64", NONE)
    """Epoch of the last order to the holder; a release that acknowledges an older one is ignored."""
    ends_at: Reals = column(float, float("inf"))
    protected_until: Reals = column(float, float("-inf"))
    state: Rows = column("int32", 0)
    """State of the GPU: a ``GpuState``."""
    successor: Ints = column("int64", NONE)
    """The lease that gets the GPU once its holder has released it."""
    next_app: Rows = column("int32", NONE)
    """App of the successor; meaningless without a successor."""
    next_job: Rows = column("int32", NONE)
    """Job of the successor's lease; -1: the app divides the lease. Meaningless without a successor."""
    cpus: Reals = column(float, 0.0)
    """CPUs assigned to this GPU of the lease; those of the successor, if there is one."""
    memory_gib: Reals = column(float, 0.0)
    """Memory in GiB assigned to this GPU of the lease; that of the successor, if there is one."""
    cpus_in_use: Reals = column(float, 0.0)
    """CPUs that the holder's processes may still use, until executors confirm a lower limit; 0 if CPUs are unknown."""
    memory_gib_in_use: Reals = column(float, 0.0)
    least_cpus: Reals = column(float, 0.0)
    """This GPU's part of the minimum CPUs of its lease, below which no retune may go."""
    most_cpus: Reals = column(float, float("inf"))
    least_memory_gib: Reals = column(float, 0.0)
    most_memory_gib: Reals = column(float, float("inf"))


class LeaseState(IntEnum):
    """The state of a lease."""

    PENDING = 0
    """Some GPUs of the lease have not been released by their previous holders."""
    ORDERED = 1
    """The lease holds all its GPUs; the start is not confirmed yet."""
    ACTIVE = 2
    LEAVING = 3


@dataclasses.dataclass(slots=True, kw_only=True)
class Probing:
    """A measurement in progress: the job runs on some GPUs of its lease, and then returns to its own GPUs."""

    gpus: Ints
    """GPUs on which the job runs now, ascending."""
    cpus: float
    """CPUs for these GPUs together; NaN: those of the lease."""
    memory_gib: float
    iterations: int
    until: Seconds
    home: Ints
    """GPUs that the job had before, to which it returns with ``home_cpus`` and ``home_memory_gib``."""
    home_cpus: Reals
    home_memory_gib: Reals
    protected_until: Seconds
    """End of the lease's protection as it was before the probe, in seconds since the start."""


@dataclasses.dataclass(slots=True, kw_only=True)
class Lease:
    """A lease of GPUs to an app; it belongs to a single job if the claim was a job's."""

    id: int
    epoch: int
    app: int
    """Row of the app that holds the lease."""
    job: int = NONE
    """Row of the lease's job; -1: the app divides the lease among its jobs."""
    gpus: list[int]
    """GPUs that the lease holds or is promised, ascending; GPUs that it is releasing are not included."""
    ends_at: Seconds = NEVER
    protected_until: Seconds = ZERO
    state: LeaseState = LeaseState.PENDING
    granted_at: Seconds = ZERO
    tuned: int = NONE
    """Epoch of the latest retune that executors have not confirmed yet; -1: none."""
    probe: Probing | None = None
    """The measurement in progress; None: the job runs on all GPUs of the lease."""

    @property
    def running(self) -> list[int]:
        """Return the GPUs on which the lease's job runs or will run."""
        return self.gpus if self.probe is None else self.probe.gpus.tolist()

    @property
    def home(self) -> list[int]:
        """Return the GPUs of the lease except those on which its job is only measured."""
        return self.gpus if self.probe is None else self.probe.home.tolist()
