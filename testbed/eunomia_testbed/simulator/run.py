"""What a simulation came to, as columns: what metrics, tables and reports are made of."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eunomia.decisions import RecordTable
from eunomia.shapes import builds, value
from eunomia.units import Bools, Ints, Reals

Words = NDArray[Any]
"""Texts, as an object array."""


@value
class Unfit:
    """A job that cannot run here."""

    job: int
    rule: str
    """What must hold, as in an error."""
    value: str


@builds
class Leases:
    """GPUs held, a row a GPU and lease: from the moment at which it was a lease's own until it came back."""

    app: Ints
    job: Ints
    """-1: no single job (an app's division changed meanwhile, or none ran on it)."""
    gpu: Ints
    lease: Ints
    start_seconds: Reals
    end_seconds: Reals
    """NaN: held at the end."""
    ended_by: Words
    """``released``, ``expired``, ``preempted`` or ``lost``; empty: held at the end."""


@builds
class RoundLog:
    """Rounds, a row each, with the state that each met."""

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
    """No stage was asked."""
    fault: Words
    """``plugin (stage): what``; empty: none."""


@builds
class WaitLog:
    """Stretches in which a job waited for one reason, a row each."""

    job: Ints
    start_seconds: Reals
    end_seconds: Reals
    reason: Words
    stage: Words
    plugin: Words


@builds
class QueueLog:
    """A step function of time: what held from each row's time to the next row's."""

    time_seconds: Reals
    waiting_jobs: Ints
    waiting_gpus: Ints
    busy_gpus: Ints


@builds
class SegmentLog:
    """Stretches in which a job ran at one speed, a row each."""

    job: Ints
    start_seconds: Reals
    end_seconds: Reals
    gpus: Ints
    locality: Ints
    seconds_per_iteration: Reals
    batch_size: Reals


@builds
class SimulatedRun:
    """A run, in seconds since the start of the workload. Rows of jobs and apps are those of the workload.

    Equal arguments give equal runs, but for ``timings``.
    """

    policy: str
    seed: int
    end_seconds: float
    """When the last thing happened."""
    start_seconds: Reals
    """First time that it held GPUs; NaN: never."""
    finish_seconds: Reals
    """NaN: it did not finish."""
    state: Words
    """``finished``, ``failed``, ``rejected``, ``stopped`` (ended early by its tuner), or what it was at the end:
    ``waiting``, ``running``, ``paused``, ``awaited`` (had not arrived)."""
    run_seconds: Reals
    """Made steps."""
    wait_seconds: Reals
    """Wanted GPUs and held none."""
    slot_seconds: Reals
    """GPU-seconds held."""
    iterations_done: Reals
    iterations_lost: Reals
    """Done again after a failure."""
    restarts: Ints
    """Starts after the first."""
    migrations: Ints
    ideal_seconds: Reals
    """Would have taken alone on this cluster, at its largest gang, placed best."""
    exclusive_seconds: Reals
    """Run time alone as the trace's profile tells it; else ``ideal_seconds``."""
    app_finish_seconds: Reals
    app_state: Words
    leases: Leases
    rounds: RoundLog
    waits: WaitLog
    queue: QueueLog
    segments: SegmentLog
    records: Mapping[str, tuple[tuple[float, int, RecordTable], ...]]
    """By plugin: time, round, table."""
    faults: tuple[str, ...]
    """Of plugins, each with its round."""
    fallback_round: int | None
    """The first round that the fallback decided; None: the profile decided all."""
    dropped: tuple[Unfit, ...]
    steps: int
    events: int
    round_count: int
    quiet_rounds: int
    stage_calls: int
    timings: Mapping[str, float]
    """CPU seconds: by stage, ``step`` (all of the arbiter), ``driver`` (all but the arbiter)."""

    def same_as(self, other: "SimulatedRun") -> bool:
        """Whether two runs are equal, but for ``timings``."""
        return all(
            _same(getattr(self, field.name), getattr(other, field.name))
            for field in dataclasses.fields(self)
            if field.name != "timings"
        )


def _same(one: object, other: object) -> bool:
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        if one.dtype == object or other.dtype == object:
            return bool(one.tolist() == other.tolist())
        return np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return list(one) == list(other) and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    if dataclasses.is_dataclass(one) and type(one) is type(other):
        return all(_same(getattr(one, f.name), getattr(other, f.name)) for f in dataclasses.fields(one))
    return bool(one == other)
