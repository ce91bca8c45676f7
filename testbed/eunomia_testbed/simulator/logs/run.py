"""The results of a simulation, as columns: the source of metrics, tables and reports."""

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
    """A job that cannot run on the cluster."""

    job: int
    rule: str
    """The broken rule, as in an error."""
    value: str


@builds
class SegmentLog:
    """Periods in which a job ran at one speed, one row each."""

    job: Ints
    start_seconds: Reals
    end_seconds: Reals
    gpus: Ints
    locality: Ints
    seconds_per_iteration: Reals
    batch_size: Reals


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class JobResults:
    """Columns by job and by app, in seconds since the start of the workload; rows are those of the workload."""

    start_seconds: Reals
    """When the job first held GPUs; NaN: never."""
    finish_seconds: Reals
    """Time when the job finished; NaN: it did not finish."""
    state: Words
    """``finished``, ``failed``, ``rejected``, ``stopped`` (ended early by its tuner), or its state at the end:
    ``waiting``, ``running``, ``paused``, ``awaited`` (had not arrived)."""
    run_seconds: Reals
    """Seconds in which the job made steps."""
    wait_seconds: Reals
    """Seconds in which the job wanted GPUs and held none."""
    slot_seconds: Reals
    """GPU-seconds that the job held."""
    iterations_done: Reals
    iterations_lost: Reals
    """Iterations done twice, since a failure lost them."""
    restarts: Ints
    """Starts after the first."""
    migrations: Ints
    resizes: Ints
    """Changes of the number of GPUs of a running job."""
    probes: Ints
    """Measurements of the job's rate in other settings."""
    ideal_seconds: Reals
    """Seconds that the job would take alone on this cluster, at its largest gang and best placement."""
    exclusive_seconds: Reals
    """Run time alone by the trace's profile; else ``ideal_seconds``."""
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
    """Records of each plugin, with time and round."""


@builds
class SimulatedRun(JobResults, RunLogs):
    """A run. Equal arguments give equal runs, except for ``timings``."""

    policy: str
    seed: int
    end_seconds: float
    """Time of the last event, in seconds since the start of the workload."""
    draws: bool = True
    """Whether the run may depend on chance: a stage drew, or failures, delays, errors, searches or rules may draw."""
    faults: tuple[str, ...]
    """Faults of plugins, each with its round."""
    fallback_round: int | None
    """The first round that the fallback decided; None: the profile decided all rounds."""
    dropped: tuple[Unfit, ...]
    steps: int
    events: int
    round_count: int
    quiet_rounds: int
    stage_calls: int
    timings: Mapping[str, float]
    """CPU seconds: by stage, ``step`` (the whole arbiter), ``driver`` (everything else)."""

    def same_as(self, other: "SimulatedRun") -> bool:
        """Whether two runs are equal, except for ``timings``."""
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
