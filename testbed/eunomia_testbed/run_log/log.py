"""The log of a run as columns: jobs and apps, leases, rounds, waits with their reasons, and GPU activities."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from numpy.typing import NDArray

from eunomia.model.cluster import Cluster
from eunomia.model.shapes import builds
from eunomia.units import Bools, Ints, Reals

Words = NDArray[Any]
"""A numpy object array of strings."""

Column: TypeAlias = Any
"""A column of a table: array, list or series, with NaN and None for unknown values; None: all unknown."""


@builds
class Leases:
    """Leased GPUs: a row for each lease and GPU, from the start of the lease until the GPU was free again."""

    app: Ints
    job: Ints
    """Index of the job; -1: none (the app moved the GPU between jobs, or no job ran on it)."""
    gpu: Ints
    lease: Ints
    start_seconds: Reals
    end_seconds: Reals
    """Time at which the GPU was free again; NaN: it was still held at the end of the run."""
    ended_by: Words
    """``released``, ``expired``, ``preempted`` or ``lost``; empty: still held at the end."""


@builds
class RoundLog:
    """Rounds, one row each, with the state before the round."""

    round: Ints
    time_seconds: Reals
    causes: Words
    """Causes in alphabetical order, joined by ``+``."""
    free_gpus: Ints
    running_jobs: Ints
    waiting_jobs: Ints
    started: Ints
    suspended: Ints
    grown: Ints
    shrunk: Ints
    migrated: Ints
    quiet: Bools
    """Whether the round called no stage."""
    fault: Words
    """Fault of a plugin, as ``plugin (stage): error``; empty: none."""
    busy_gpus: Column = None
    """Number of GPUs held; a column of None: all GPUs that were not free."""
    kept: Column = None
    """Number of jobs that kept exactly their GPUs; a column of None: all running jobs without a change."""
    gap: Column = None
    """Relative optimality gap that the solver certified; None: unknown."""


@builds
class WaitLog:
    """Periods in which a job waited for a single reason, one row each."""

    job: Ints
    start_seconds: Reals
    end_seconds: Reals
    reason: Words
    stage: Words
    plugin: Words


@builds
class QueueLog:
    """The queue as a step function of time: each row holds until the next row's time."""

    time_seconds: Reals
    waiting_jobs: Ints
    waiting_gpus: Ints
    busy_gpus: Ints


@builds
class Activity:
    """Activities of GPUs, a row for each GPU and period: ``start``, ``restore``, ``run``, ``save`` or ``idle``."""

    job: Ints
    """Index of the job; -1: no single job."""
    app: Ints
    gpu: Ints
    start_seconds: Reals
    end_seconds: Reals
    activity: Sequence[str]


@builds
class Arrivals:
    """Jobs, one row each in the order of ``RunLog.jobs``: requests, times, work and numbers of transitions."""

    app: Ints
    user: Column
    model: Column
    state: Column
    slots_asked: Column
    arrival_seconds: Column
    start_seconds: Column
    finish_seconds: Column
    jct_seconds: Column
    wait_seconds: Column
    run_seconds: Column
    slot_seconds: Column
    iterations: Column
    iterations_lost: Column
    restarts: Column
    migrations: Column = None
    resizes: Column = None
    probes: Column = None


@builds
class AppLog:
    """Apps, one row each in the order of ``RunLog.apps``."""

    user: Column
    tuner: Column
    weight: Column
    state: Column
    jobs: Column
    arrival_seconds: Column
    finish_seconds: Column
    jct_seconds: Column
    slot_seconds: Column
    rho: Column = None
    """Themis's rho, if the log suffices to compute it; for a simulation, ``metrics.judged`` computes it."""


@builds
class RunLog:
    """A run, in seconds since the first arrival. Columns refer to apps, jobs and GPUs by index.

    Attributes:
        apps: names of the apps.
        jobs: names of the jobs in tables; the first ones are the rows of ``arrivals``.
        cluster: the cluster in which GPUs are numbered; None: no GPU was held.
        queue: the queue over time; None: unknown.
        activity: returns the activities of GPUs, which it computes at each call.
        end_seconds: time of the last event; None: the last time in the log.
    """

    apps: Sequence[str]
    jobs: Sequence[str]
    cluster: Cluster | None
    arrivals: Arrivals
    app_log: AppLog
    leases: Leases
    rounds: RoundLog
    waits: WaitLog
    activity: Callable[[], Activity]
    queue: QueueLog | None = None
    end_seconds: float | None = None
