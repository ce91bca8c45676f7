"""The answer of an allocation: whole GPUs for each claim, or shares that refiners turn into whole GPUs."""

from typing import Self

import numpy as np

from eunomia.contract.claims import Claims
from eunomia.contract.memos import Memo
from eunomia.contract.records import Record
from eunomia.contract.verdicts import NO_VERDICTS, Reason, Verdicts, turned_down
from eunomia.model.shapes import LazyFields, builds, lazy
from eunomia.units import NEVER, Bools, Ints, Misfit, Reals, Rest, Rows, Seconds, Unit


@builds
class Pins:
    """GPUs pinned to machines: claim ``claim[i]`` gets ``gpus[i]`` GPUs on machine ``machine[i]``."""

    claim: Rows
    """[entry] index into the claims of the allocation."""
    machine: Rows
    gpus: Ints


@builds
class AmountRange:
    """[claim] minimum and maximum amount of a resource, CPUs or GiB, for all GPUs of the claim together."""

    least: Reals
    most: Reals

    def of(self, claim: int, part: float) -> tuple[float, float]:
        """Return the minimum and maximum of a claim that gets a fraction ``part`` of its GPUs; above 1 counts as 1."""
        part = min(part, 1.0)
        return float(self.least[claim]) * part, float(self.most[claim]) * part


@builds
class Grants(LazyFields):
    """Whole GPUs of the offer granted to claims; a claim also keeps the GPUs that it holds outside the offer.

    For a job without GPUs outside the offer, ``gpus`` is its total new size, not an increment.
    """

    gpus: Ints
    """Number of GPUs granted to each claim."""
    gpu_type: Rows | None = None
    """GPU type of each claim; None or -1: any type."""
    stays: Bools | None = None
    """[claim] whether the claim keeps its present GPUs, although of another type than granted, if no claim in ``order``
    was placed on them: its type is changed only to make room for others. None: no claim does."""
    cpus: AmountRange | None = None
    """Range of CPUs; None: as the job requests, or else in proportion to the machine's GPUs."""
    memory_gib: AmountRange | None = None
    pins: Pins | None = None
    """Machines chosen for claims; None: the placement chooses the machines."""


lazy(Grants, gpus="int64", gpu_type="int32")


@builds
class TimeShares:
    """[claim, GPU type] fraction of time that a claim runs at its gang's size; each row sums to at most 1 (Gavel)."""

    share: Reals
    since: Seconds


@builds
class DeviceShares:
    """[claim, GPU type] average number of GPUs held over time (OEF)."""

    gpus: Reals
    since: Seconds


Amount = Grants | TimeShares | DeviceShares


@builds
class Allocation(LazyFields):
    """The GPUs or shares of each claim, and the order of service; the amounts may exceed the offer."""

    claims: Claims
    amount: Amount
    order: Rows
    """Indices of claims, first served first."""
    standby: Rows | None = None
    """Indices of claims that get GPUs left over after ``order`` is served."""
    on_misfit: Misfit = Misfit.SKIP
    rest: Rest = Rest.KEEP
    """Whether claims that the allocation does not name keep the GPUs of the offer that they hold."""
    lease: Seconds | Reals | None = None
    """Length of the leases in seconds: one value for all claims, or one per claim; None: the offer's."""
    protected: Seconds | Reals = Seconds(0.0)
    """Seconds from a lease's start during which no round may preempt the lease: one value, or one per claim."""
    wake_at: Seconds = NEVER
    """Time, in seconds, at which a round is made even without an event."""
    starts_at: Reals | None = None
    """[claim] planned start in seconds since the arbiter's start; NaN: not known."""
    verdicts: Verdicts = NO_VERDICTS
    """Verdicts on claims that got nothing; their ``rows`` are rows of the claims' unit."""
    record: Record | None = None
    memo: Memo | None = None

    @classmethod
    def to_jobs(cls, jobs: Rows, gpus: Ints, *, otherwise: Reason) -> Self:
        """Grant whole GPUs to jobs in order of service; ``gpus`` are the total new sizes of the jobs.

        Args:
            jobs: job rows, first served first.
            gpus: number of GPUs by job; 0 turns the job down.
            otherwise: the reason for jobs with 0 GPUs.
        """
        return cls(
            claims=Claims(unit=Unit.JOB, rows=jobs),
            amount=Grants(gpus=gpus),
            order=np.flatnonzero(gpus > 0).astype(np.int32),
            verdicts=turned_down(jobs[gpus <= 0], otherwise),
        )


lazy(Allocation, order="int32")
