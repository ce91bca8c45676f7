"""Who gets how much: whole GPUs now, or shares that refiners turn into whole GPUs."""

from typing import Self

import numpy as np

from eunomia.claims import Claims
from eunomia.memos import Memo
from eunomia.records import Record
from eunomia.shapes import builds
from eunomia.units import NEVER, Ints, Misfit, Reals, Rest, Rows, Seconds, Unit
from eunomia.verdicts import NO_VERDICTS, Reason, Verdicts, turned_down


@builds
class Pins:
    """GPUs of a claim on particular machines: entry i gives ``gpus[i]`` of ``machine[i]`` to claim ``claim[i]``."""

    claim: Rows
    """Index into the claims."""
    machine: Rows
    gpus: Ints


@builds
class AmountRange:
    """By claim: the least that it must get and the most that is of use to it, for all its GPUs together."""

    least: Reals
    most: Reals


@builds
class Grants:
    """Whole GPUs now, counted among those on offer: what a claim holds elsewhere it keeps.

    A job with nothing elsewhere thus gets its whole size from now on, not an increment.
    """

    gpus: Ints
    """By claim."""
    gpu_type: Rows | None = None
    """By claim; None or -1: any type."""
    cpus: AmountRange | None = None
    """None: as the job asks, else in proportion to GPUs."""
    memory_gib: AmountRange | None = None
    pins: Pins | None = None
    """None: the placement chooses the machines."""


@builds
class TimeShares:
    """[claim, GPU type]: part of the time at the gang's size; each row sums to at most 1 (Gavel)."""

    share: Reals
    since: Seconds


@builds
class DeviceShares:
    """[claim, GPU type]: GPUs held on average over time (OEF)."""

    gpus: Reals
    since: Seconds


Amount = Grants | TimeShares | DeviceShares


@builds
class Allocation:
    """An amount for each claim, in order of service. It may name more than fits."""

    claims: Claims
    amount: Amount
    order: Rows
    """Indices of claims, first served first."""
    standby: Rows | None = None
    """Indices of claims served with what is left."""
    on_misfit: Misfit = Misfit.SKIP
    rest: Rest = Rest.KEEP
    """Whether those whom it does not name keep what they hold of the offer."""
    lease: Seconds | Reals | None = None
    """Length of the lease in seconds, one or by claim; None: the offer's."""
    protected: Seconds | Reals = Seconds(0.0)
    """The first part of the lease, that no round may take."""
    wake_at: Seconds = NEVER
    """When it wants the next round, whatever happens."""
    starts_at: Reals | None = None
    """By claim: when it is planned to start; NaN: not known."""
    verdicts: Verdicts = NO_VERDICTS
    """``rows`` are rows of the claims' unit."""
    record: Record | None = None
    memo: Memo | None = None

    @classmethod
    def to_jobs(cls, jobs: Rows, gpus: Ints, *, otherwise: Reason) -> Self:
        """Grant whole GPUs to jobs in order of service: each its whole size from now on.

        Args:
            jobs: job rows, first served first.
            gpus: by job; 0 turns the job down.
            otherwise: why the jobs at 0 wait.
        """
        return cls(
            claims=Claims(unit=Unit.JOB, rows=jobs),
            amount=Grants(gpus=gpus),
            order=np.flatnonzero(gpus > 0).astype(np.int32),
            verdicts=turned_down(jobs[gpus <= 0], otherwise),
        )
