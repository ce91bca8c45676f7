"""Users, their apps and the apps' jobs, as tables with one row each."""

from enum import IntEnum

from eunomia.model.columns import column
from eunomia.model.shapes import reads
from eunomia.units import Ids, Ints, Reals, Rows


class JobState(IntEnum):
    """The state of a job; EMPTY marks a row that is not in use."""

    EMPTY = 0
    WAITING = 1
    STARTING = 2
    """The job was granted GPUs; its start was ordered but not confirmed yet."""
    RUNNING = 3
    STOPPING = 4
    """The job was ordered to release its GPUs and has not released all of them; afterwards it waits."""
    PAUSED = 5
    """The job is paused by its app, suspended with its app or user, or backing off after a failure."""


@reads
class Users:
    """The table of users, one row per user."""

    id: Ids = column(object, None)
    weight: Reals = column(float, 1.0)


@reads
class Apps:
    """The table of apps, one row per hyperparameter search or single training run."""

    id: Ids = column(object, None)
    user: Rows = column("int32", -1)
    """Row of the app's user."""
    weight: Reals = column(float, 1.0)
    arrived: Reals = column(float, float("nan"))
    """Time of arrival in seconds since the arbiter's start."""
    tuner_kind: Rows = column("int32", 0)
    """Number of the tuner kind of the app; 0: no tuner."""
    divides: Rows = column("int32", 0)
    """1 if the app has an app master, which divides the app's GPUs among its jobs; else 0."""


@reads
class Jobs:
    """The table of jobs, one row per trial of a search or single training run."""

    id: Ids = column(object, None)
    app: Rows = column("int32", -1)
    """Row of the job's app."""
    job_kind: Rows = column("int32", -1)
    """Number of the job's kind, by default one per app; jobs of a kind share a menu."""
    state: Rows = column("int32", 0)
    """State of the job: a ``JobState``."""
    least: Ints = column("int64", 1)
    """Smallest gang of the job, in GPUs."""
    most: Ints = column("int64", 1)
    """Largest gang of the job, in GPUs; equal to ``least`` for a rigid job."""
    gpu_type: Rows = column("int32", -1)
    """Index of the GPU type that the job requests; -1: any."""
    cpus: Reals = column(float, float("nan"))
    """CPUs per GPU that the job requests; NaN: in proportion to GPUs."""
    memory_gib: Reals = column(float, float("nan"))
    """Memory per GPU in GiB that the job requests; NaN: in proportion to GPUs."""
    arrived: Reals = column(float, float("nan"))
    iterations: Reals = column(float, float("nan"))
    """The job's total work in optimizer steps; NaN: not known."""
    seconds_per_iteration: Reals = column(float, float("nan"))
    """Declared duration of an iteration on one GPU in seconds; NaN: not declared."""
    batch_size: Reals = column(float, float("nan"))
    """Global batch size last announced; NaN: never announced."""
    epochs: Reals = column(float, float("nan"))
    """Declared number of epochs (passes over the data set) of the job; NaN: not declared."""
    samples_per_epoch: Reals = column(float, float("nan"))
    """Declared number of samples per epoch; NaN: not declared."""
    adapts: Rows = column("int32", 0)
    """How the job changes its batch size: an ``Adapts``; 0: not declared."""
    done: Reals = column(float, 0.0)
    """Iterations done at time ``since``."""
    since: Reals = column(float, float("nan"))
    """Time in seconds at which ``done`` was recorded; NaN: the job does not run."""
    rate: Reals = column(float, 0.0)
    """Iterations per second while the job runs; its present progress is ``done + rate * (now - since)``."""
    starts: Ints = column("int64", 0)
    """Number of times that the job was started; a live change of its size is no start."""
