"""The tables of apps, jobs and GPUs: each row has the columns that stages see, and the arbiter's own columns."""

from eunomia.model.columns import column
from eunomia.model.leases import Holdings
from eunomia.model.shapes import reads
from eunomia.model.workload import Apps, Jobs
from eunomia.units import NONE, Ints, Reals, Rows


@reads
class AppRows(Apps):
    """The arbiter's columns of an app; stages see only the columns of ``Apps`` and the ledger."""

    area_at_arrival: Reals = column(float, float("nan"))
    """Integral of the number of apps over time, in app-seconds, at the app's arrival; NaN: the app's ledger is final,
    as stored in its columns."""
    ended: Rows = column("int32", 0)
    """1 if the app has ended but some of its GPUs are not released yet; else 0."""
    gpu_seconds: Reals = column(float, 0.0)
    """GPU-seconds received on released GPUs; those on held GPUs are computed from ``GpuRows.since``."""
    contention: Reals = column(float, float("nan"))
    """N_avg of an app that has ended, or whose ledger is final."""


@reads
class JobRows(Jobs):
    """The arbiter's columns of a job; stages see only the columns of ``Jobs``, the order of arrival, and the ledger."""

    lease: Ints = column("int64", NONE)
    """Number of the job's own lease; -1: none, or the app's tuner divides the app's leases."""
    gpus: Ints = column("int64", 0)
    """Number of GPUs on which the job runs."""
    ready_at: Reals = column(float, 0.0)
    """Time in seconds from which the job may be restarted after a failure."""
    reason: Rows = column("int32", 0)
    """``Reason`` of the last verdict; 0: none."""
    stage: Rows = column("int32", -1)
    """Number of the stage that gave the last verdict; -1: no stage."""
    plugin: Rows = column("int32", 0)
    """Number of the plugin that gave the last verdict."""
    verdict_round: Ints = column("int64", 0)
    """Number of the round of the last verdict."""
    verdict_at: Reals = column(float, 0.0)
    """Time of the last verdict, or of a later start, in seconds."""
    order: Ints = column("int64", 0)
    """Position in the order of arrival, which breaks ties between equal times."""
    attained: Reals = column(float, 0.0)
    """Seconds run until ``counted_at``."""
    waited: Reals = column(float, 0.0)
    """Seconds waited until ``counted_at``."""
    received: Reals = column(float, 0.0, width="gpu_types")
    """[job, GPU type] GPU-seconds received until ``counted_at``."""
    on: Ints = column("int64", 0, width="gpu_types")
    """[job, GPU type] number of GPUs assigned to the job, whether it runs or not."""
    last_ran: Reals = column(float, float("nan"))
    """Time in seconds at which the job last ran, as of ``counted_at``; NaN: never."""
    counted_at: Reals = column(float, float("nan"))
    """Time in seconds up to which service is counted; NaN: the job's ledger is final, as stored in its columns."""


@reads
class GpuRows(Holdings):
    """The arbiter's columns of a GPU; stages see only the columns of ``Holdings``."""

    since: Reals = column(float, float("nan"))
    """Time in seconds since which the holder has the GPU; NaN: the app's ``gpu_seconds`` already include its use."""
