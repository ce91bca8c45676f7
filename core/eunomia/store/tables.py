"""The tables of apps, jobs and GPUs: the columns that stages see, and the arbiter's own beside them in the same row."""

from eunomia.model.columns import column
from eunomia.model.leases import Holdings
from eunomia.model.shapes import reads
from eunomia.model.workload import Apps, Jobs
from eunomia.units import NONE, Ints, Reals, Rows


@reads
class AppRows(Apps):
    """An app as the arbiter keeps it; stages see the columns of ``Apps``, and the ledger."""

    area_at_arrival: Reals = column(float, float("nan"))
    """Integral of the number of apps over time, in app-seconds, when the app arrived; NaN: the app's ledger is as it
    stands in its columns."""
    ended: Rows = column("int32", 0)
    """1: the app has ended, but some of its GPUs have not come back."""
    gpu_seconds: Reals = column(float, 0.0)
    """GPU-seconds leased on GPUs that have come back; those of GPUs that the app holds follow from their ``since``."""
    contention: Reals = column(float, float("nan"))
    """N_avg of an app that has ended, or whose ledger is as it stands."""


@reads
class JobRows(Jobs):
    """A job as the arbiter keeps it; stages see the columns of ``Jobs``, the order of arrival, and the ledger."""

    lease: Ints = column("int64", NONE)
    """The lease that names the job; -1: none, or the app's tuner divides the app's leases."""
    gpus: Ints = column("int64", 0)
    """Number of GPUs that the job runs on."""
    ready_at: Reals = column(float, 0.0)
    """Time from which the job may be started again after a failure."""
    reason: Rows = column("int32", 0)
    """``Reason`` of the last verdict; 0: none."""
    stage: Rows = column("int32", -1)
    """Number of the stage that gave the last verdict; -1: none did."""
    plugin: Rows = column("int32", 0)
    """Index into ``State.plugins`` of the plugin that gave it."""
    verdict_round: Ints = column("int64", 0)
    """Round of the last verdict."""
    verdict_at: Reals = column(float, 0.0)
    """Time of the last verdict, or of the last start after it."""
    order: Ints = column("int64", 0)
    """Number of the arrival; breaks ties between equal times."""
    attained: Reals = column(float, 0.0)
    """Seconds run until ``counted_at``."""
    waited: Reals = column(float, 0.0)
    """Seconds waited until ``counted_at``."""
    received: Reals = column(float, 0.0, width="gpu_types")
    """[job, GPU type]: GPU-seconds received until ``counted_at``."""
    on: Ints = column("int64", 0, width="gpu_types")
    """[job, GPU type]: GPUs assigned to the job, running or not."""
    last_ran: Reals = column(float, float("nan"))
    """Time when the job last ran, as of ``counted_at``; NaN: never."""
    counted_at: Reals = column(float, float("nan"))
    """Time up to which these count; NaN: the job's ledger is as it stands in its columns."""


@reads
class GpuRows(Holdings):
    """A GPU as the arbiter keeps it; stages see the columns of ``Holdings``."""

    since: Reals = column(float, float("nan"))
    """Time since which the holder has the GPU; NaN: what its app received is as it stands in the app's columns."""
