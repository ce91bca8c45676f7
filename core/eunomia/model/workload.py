"""Who wants what: users hold apps, apps hold jobs, as columns with a row each."""

from enum import IntEnum

from eunomia.model.columns import column
from eunomia.model.shapes import reads
from eunomia.units import Ids, Ints, Reals, Rows


class JobState(IntEnum):
    """Where a job stands; EMPTY marks a row that is not in use."""

    EMPTY = 0
    WAITING = 1
    STARTING = 2
    """Granted GPUs; its start is ordered and not yet confirmed."""
    RUNNING = 3
    STOPPING = 4
    """Told to leave its GPUs, or done with them; they have not come back."""
    PAUSED = 5
    """Its app does not want it to run now."""


@reads
class Users:
    """Users."""

    id: Ids = column(object, None)
    weight: Reals = column(float, 1.0)


@reads
class Apps:
    """Apps: hyperparameter searches, or single training runs."""

    id: Ids = column(object, None)
    user: Rows = column("int32", -1)
    """Row of the user."""
    weight: Reals = column(float, 1.0)
    arrived: Reals = column(float, float("nan"))
    """When it came, in seconds since the arbiter's start."""
    tuner_kind: Rows = column("int32", 0)
    """Index into ``Names.tuner_kinds`` of the snapshot; 0: none."""
    divides: Rows = column("int32", 0)
    """1: an app master is there that divides a win of the app among its jobs."""


@reads
class Jobs:
    """Jobs: trials of a search, or the one job of a single training run."""

    id: Ids = column(object, None)
    app: Rows = column("int32", -1)
    """Row of the app."""
    job_kind: Rows = column("int32", -1)
    """Jobs of a kind share a menu; a number that the app's reports give, or one of its own."""
    state: Rows = column("int32", 0)
    """A ``JobState``."""
    least: Ints = column("int64", 1)
    """Smallest gang, in GPUs."""
    most: Ints = column("int64", 1)
    """Largest gang; equal to ``least`` for a fixed one."""
    gpu_type: Rows = column("int32", -1)
    """The GPU type that it asks for; -1: any."""
    cpus: Reals = column(float, float("nan"))
    """CPUs a GPU that it asks for; NaN: in proportion to GPUs."""
    memory_gib: Reals = column(float, float("nan"))
    """Memory a GPU in GiB; NaN: in proportion to GPUs."""
    arrived: Reals = column(float, float("nan"))
    iterations: Reals = column(float, float("nan"))
    """Its whole work, in optimizer steps."""
    seconds_per_iteration: Reals = column(float, float("nan"))
    """Declared serial time of an iteration on one GPU; NaN: not declared."""
    batch_size: Reals = column(float, float("nan"))
    """Global batch size last announced; NaN: never announced."""
    done: Reals = column(float, 0.0)
    """Iterations done at ``since``."""
    since: Reals = column(float, float("nan"))
    """When ``done`` was true; NaN: the job does not run."""
    rate: Reals = column(float, 0.0)
    """Iterations a second while it runs; progress is done + rate * (now - since) until a report says otherwise."""
    starts: Ints = column("int64", 0)
    """How often it was started."""
