"""Who got what: the sums that every policy asks for, kept by the core so that no plugin counts them again."""

from eunomia.model.columns import column
from eunomia.model.shapes import lazy, reads
from eunomia.units import Ints, Reals


@reads
class JobLedger:
    """By job row, up to the snapshot's moment. An app's division of its leases among its jobs counts as well."""

    attained: Reals = column(float, 0.0)
    """Seconds that it ran."""
    received: Reals = column(float, 0.0, width="gpu_types")
    """[job, GPU type]: GPU-seconds received."""
    waited: Reals = column(float, 0.0)
    """Seconds that it waited."""
    last_ran: Reals = column(float, float("nan"))
    """When it last ran; NaN: never."""
    starts: Ints = column("int64", 0)


@reads
class AppLedger:
    """By app row."""

    gpu_seconds: Reals = column(float, 0.0)
    """GPU-seconds leased."""
    contention: Reals = column(float, float("nan"))
    """N_avg: the time-weighted mean number of apps in the cluster over the app's life (Themis eq. 1)."""


@reads
class Ledger:
    """The ledger as stages see it."""

    jobs: JobLedger
    apps: AppLedger


lazy(Ledger, "jobs", "apps")
