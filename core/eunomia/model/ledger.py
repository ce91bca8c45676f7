"""The ledger: time and GPU-seconds that each job and app received, kept by the core for all policies."""

import dataclasses
from collections.abc import Mapping

from eunomia.model.adaptations import Adaptations
from eunomia.model.columns import column
from eunomia.model.shapes import LazyFields, lazy, reads
from eunomia.units import Ints, Reals


@reads
class JobLedger:
    """The ledger of each job up to the snapshot's time, including GPUs that the app's tuner assigned to the job."""

    attained: Reals = column(float, 0.0)
    """Seconds that the job has run."""
    received: Reals = column(float, 0.0, width="gpu_types")
    """[job, GPU type] GPU-seconds received."""
    waited: Reals = column(float, 0.0)
    """Seconds that the job has waited."""
    last_ran: Reals = column(float, float("nan"))
    """Time in seconds at which the job last ran; NaN: never."""
    starts: Ints = column("int64", 0)


@reads
class AppLedger:
    """The ledger of each app, by app row."""

    gpu_seconds: Reals = column(float, 0.0)
    """GPU-seconds leased to the app."""
    contention: Reals = column(float, float("nan"))
    """N_avg: the time-weighted mean number of apps in the cluster since the app's arrival (Themis eq. 1)."""


@reads
class Ledger(LazyFields):
    """The read-only view of the ledger that stages get."""

    jobs: JobLedger
    apps: AppLedger
    adaptations: Mapping[int, Adaptations] = dataclasses.field(default_factory=dict)
    """Batch-size changes by job row; jobs without any are omitted."""


lazy(Ledger, "jobs", "apps")
