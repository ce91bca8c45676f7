"""The results of a simulation as columns, from which metrics, tables and reports are computed."""

import dataclasses
import math
from collections.abc import Mapping

import numpy as np

from eunomia.contract.decisions import RecordTable
from eunomia.model.shapes import builds, value
from eunomia.units import Ints, Reals
from eunomia_testbed.run_log.log import Leases, QueueLog, RoundLog, WaitLog, Words

__all__ = ["Leases", "QueueLog", "RoundLog", "SegmentLog", "SimulatedRun", "Unfit", "WaitLog", "Words"]


@value
class Unfit:
    """A job that cannot run on the cluster, and why."""

    job: int
    rule: str
    """The broken rule, as in an error."""
    value: str


@builds
class SegmentLog:
    """Periods in which a job ran at constant speed, one row each."""

    job: Ints
    start_seconds: Reals
    end_seconds: Reals
    gpus: Ints
    locality: Ints
    seconds_per_iteration: Reals
    batch_size: Reals


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class JobResults:
    """Results by job and by app, in seconds since the start of the workload; the rows are those of the workload."""

    start_seconds: Reals
    """Time at which the job first held GPUs; NaN: never."""
    finish_seconds: Reals
    """Time at which the job finished; NaN: it did not finish."""
    state: Words
    """``finished``, ``failed``, ``rejected``, ``stopped`` (ended early by its tuner), or its state at the end:
    ``waiting``, ``running``, ``paused``, ``awaited`` (had not arrived)."""
    run_seconds: Reals
    """Seconds in which the job made steps."""
    wait_seconds: Reals
    """Seconds in which the job wanted GPUs but held none."""
    slot_seconds: Reals
    """GPU-seconds that the job held."""
    iterations_done: Reals
    iterations_lost: Reals
    """Iterations that had to be repeated because a failure lost them."""
    restarts: Ints
    """Number of starts after the first."""
    migrations: Ints
    resizes: Ints
    """Number of times that the job grew or shrank while it ran."""
    probes: Ints
    """Number of measurements of the job's rate in other settings."""
    ideal_seconds: Reals
    """Seconds that the job would take alone on this cluster, at its best size (least or most) and placement."""
    exclusive_seconds: Reals
    """Seconds that the job takes alone by the trace's profile, or else ``ideal_seconds``."""
    app_finish_seconds: Reals
    app_state: Words


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class RunLogs:
    """The logs of a run."""

    leases: Leases
    rounds: RoundLog
    waits: WaitLog
    queue: QueueLog
    segments: SegmentLog
    records: Mapping[str, tuple[tuple[float, int, RecordTable], ...]]
    """Records of each plugin, with their time and round."""


@builds
class SimulatedRun(JobResults, RunLogs):
    """A simulated run; equal arguments give equal runs, except for ``timings``."""

    policy: str
    seed: int
    end_seconds: float
    """Time of the last event, in seconds since the start of the workload."""
    draws: bool = True
    """Whether the run may depend on chance: a stage drew random numbers, or failures, delays, errors, searches or rules
    might."""
    faults: tuple[str, ...]
    """Faults of plugins as text, each with its round."""
    fallback_round: int | None
    """The first round that the fallback decided; None: the profile decided all rounds."""
    dropped: tuple[Unfit, ...]
    steps: int
    events: int
    round_count: int
    quiet_rounds: int
    stage_calls: int
    timings: Mapping[str, float]
    """CPU seconds by stage, of ``step`` (the whole arbiter), and of ``driver`` (everything else)."""

    def same_as(self, other: "SimulatedRun") -> bool:
        """Return whether two runs are equal, except for ``timings``."""
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
