"""Leases, and the holdings: one row per GPU with its holder, its successor and its state."""

import dataclasses
from enum import IntEnum

from eunomia.model.columns import column
from eunomia.model.shapes import reads
from eunomia.units import NEVER, NONE, ZERO, Ints, Reals, Rows, Seconds


class GpuState(IntEnum):
    """The actual state of a GPU: at most one holder, at most one successor."""

    FREE = 0
    OFFERED = 1
    """On an offer that app masters value; a holder whose lease has ended keeps running until the offer closes."""
    HELD = 2
    LEAVING = 3
    """Revoked and not given back yet."""
    DOWN = 4


@reads
class Holdings:
    """One row per GPU; -1: none."""

    app: Rows = column("int32", NONE)
    job: Rows = column("int32", NONE)
    """The job that runs on the GPU: the lease's own, or the one that the app's tuner assigned to it."""
    lease: Ints = column("int64", NONE)
    epoch: Ints = column("int64", NONE)
    """Epoch of the last order to the holder; a release that acknowledges an older one is ignored."""
    ends_at: Reals = column(float, float("inf"))
    protected_until: Reals = column(float, float("-inf"))
    state: Rows = column("int32", 0)
    """A ``GpuState``."""
    successor: Ints = column("int64", NONE)
    """The lease that gets the GPU when its holder has given it back."""
    next_app: Rows = column("int32", NONE)
    """App of the successor; meaningless without a successor."""
    next_job: Rows = column("int32", NONE)
    """Job of the successor's lease; -1: the app divides the lease. Meaningless without a successor."""
    cpus: Reals = column(float, 0.0)
    """CPUs that the GPU's lease is to have on it: the successor's, where there is one."""
    memory_gib: Reals = column(float, 0.0)
    """Memory in GiB that the GPU's lease is to have on it, by the same rule as the CPUs."""
    cpus_in_use: Reals = column(float, 0.0)
    """CPUs that the holder's processes may use until executors confirm less; 0 where no machine's CPUs are known."""
    memory_gib_in_use: Reals = column(float, 0.0)
    least_cpus: Reals = column(float, 0.0)
    """The GPU's part of the least CPUs of its lease's range, which a retune keeps to."""
    most_cpus: Reals = column(float, float("inf"))
    least_memory_gib: Reals = column(float, 0.0)
    most_memory_gib: Reals = column(float, float("inf"))


class LeaseState(IntEnum):
    """The state of a lease."""

    PENDING = 0
    """Some of its GPUs have not come back from their last holder."""
    ORDERED = 1
    """The lease holds all its GPUs; the start is not confirmed yet."""
    ACTIVE = 2
    LEAVING = 3


@dataclasses.dataclass(slots=True, kw_only=True)
class Probing:
    """A measurement under way: the job runs on some GPUs of its lease, and goes back to its own afterwards."""

    gpus: Ints
    """GPUs on which the job runs now, ascending."""
    cpus: float
    """CPUs for these together; NaN: those of the lease."""
    memory_gib: float
    iterations: int
    until: Seconds
    home: Ints
    """GPUs that the job had before and gets back, with these CPUs and memory."""
    home_cpus: Reals
    home_memory_gib: Reals
    protected_until: Seconds
    """When the lease's protection ended before the probe, in seconds since the start."""


@dataclasses.dataclass(slots=True, kw_only=True)
class Lease:
    """A lease of GPUs to an app; it names a job if the claim was a job's."""

    id: int
    epoch: int
    app: int
    """App row."""
    job: int = NONE
    """Job row; -1: the app divides the lease among its jobs."""
    gpus: list[int]
    """GPUs that the lease holds or is promised, ascending; GPUs that it is giving back are not included."""
    ends_at: Seconds = NEVER
    protected_until: Seconds = ZERO
    state: LeaseState = LeaseState.PENDING
    granted_at: Seconds = ZERO
    tuned: int = NONE
    """Epoch of the order about CPUs and memory that executors have not confirmed yet; -1: none."""
    probe: Probing | None = None
    """The measurement under way; None: the job runs on all GPUs of the lease."""

    @property
    def running(self) -> list[int]:
        """GPUs on which the lease's job runs, or is to run."""
        return self.gpus if self.probe is None else self.probe.gpus.tolist()

    @property
    def home(self) -> list[int]:
        """GPUs of the lease without those on which its job is only measured."""
        return self.gpus if self.probe is None else self.probe.home.tolist()
