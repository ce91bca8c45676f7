"""The tables of a result folder, with one dataclass for each kind of row, which declares each column once.

Rules for all tables: a column named ``*_seconds`` is a float64; times count from the first arrival; unknown values are
None (null), never -1; a job is named ``app/number``, or like its app if the app has only one job. The writer adds two
columns at the front of every table: ``policy`` and ``seed``.
"""

from __future__ import annotations

import dataclasses
import functools
import typing
from typing import Annotated, Final, Protocol

import numpy as np
import polars as pl

from eunomia.model.shapes import value
from eunomia_testbed.results.columns import col, figure, plain_type


class Row(Protocol):
    """A row of a table: a dataclass of strings, integers, floats and booleans, each of which may be optional."""

    __dataclass_fields__: typing.ClassVar[dict[str, dataclasses.Field[typing.Any]]]


@value
class JobRow:
    """A job: what it requested, when it ran, what it received."""

    app: Annotated[str, col("", "its app")]
    job: Annotated[str, col("", "its name")]
    user: Annotated[str | None, col("", "the owner of its app")] = None
    model: Annotated[str | None, col("", "the model or the script that it trains")] = None
    state: Annotated[
        str,
        col("", "finished, failed, cancelled, rejected, stopped (ended early by its tuner), or its state at the end"),
    ]
    slots_asked: Annotated[int | None, col("GPUs", "asked for")] = None
    arrival_seconds: Annotated[float | None, col("s", "when it arrived")] = None
    start_seconds: Annotated[float | None, col("s", "when it first held GPUs")] = None
    finish_seconds: Annotated[float | None, col("s", "when it finished")] = None
    jct_seconds: Annotated[float | None, col("s", "finish - arrival")] = None
    wait_seconds: Annotated[float | None, col("s", "wanted GPUs and held none")] = None
    run_seconds: Annotated[float | None, col("s", "made progress")] = None
    ideal_seconds: Annotated[float | None, col("s", "would have taken alone on the cluster")] = None
    slot_seconds: Annotated[float | None, col("GPU-s", "held, busy or idle")] = None
    iterations: Annotated[int | None, col("", "done")] = None
    iterations_lost: Annotated[
        int | None, col("", "done again, because they came after the last checkpoint", figure("iterations_lost", "sum"))
    ] = None
    restarts: Annotated[int | None, col("", "starts after the first", figure("restarts", "sum", "restarts"))] = None
    migrations: Annotated[int | None, col("", "moves to other GPUs", figure("migrations", "sum", "migrations"))] = None
    rho: Annotated[float | None, col("", "finish-time fairness by Themis' definition")] = None
    rho_static: Annotated[float | None, col("", "the same by the static contention")] = None
    rho_contention: Annotated[float | None, col("", "the same by the mean contention over its life")] = None
    rho_exclusive: Annotated[float | None, col("", "slowdown against an exclusive cluster")] = None
    exclusive_seconds: Annotated[float | None, col("s", "run time alone, what ρ is held against")] = None
    busy_slot_seconds: Annotated[float | None, col("GPU-s", "of slot_seconds, those that made progress")] = None
    placement_score: Annotated[float | None, col("", "1 / slowdown by placement, over its GPU time")] = None
    resizes: Annotated[
        int | None, col("", "times that it grew or shrank while it ran", figure("resizes", "sum", "resizes"))
    ] = None
    probes: Annotated[
        int | None, col("", "measurements of its rate in other settings", figure("probes", "sum", "probes"))
    ] = None


@value
class AppRow:
    """An app: a search or a single training run."""

    app: Annotated[str, col("", "its name")]
    user: Annotated[str | None, col("", "its owner")] = None
    tuner: Annotated[str | None, col("", "its tuner; none: a single training run")] = None
    weight: Annotated[float | None, col("", "its weight among the apps")] = None
    state: Annotated[str, col("", "finished, failed, cancelled, or its state at the end")]
    jobs: Annotated[int | None, col("jobs", "that it had")] = None
    arrival_seconds: Annotated[float | None, col("s", "when it arrived")] = None
    finish_seconds: Annotated[
        float | None, col("s", "when it ended", figure("makespan_seconds", "max", "makespan"))
    ] = None
    jct_seconds: Annotated[
        float | None,
        col(
            "s",
            "finish - arrival; of an app that went on after an end, without the time in between",
            figure("jct_mean_seconds", "mean", "mean JCT"),
            figure("jct_median_seconds", "median", "median JCT"),
            figure("jct_p95_seconds", "p95", "p95 JCT"),
            figure("jct_p99_seconds", "p99", "p99 JCT"),
        ),
    ] = None
    slot_seconds: Annotated[float | None, col("GPU-s", "held, busy or idle")] = None
    placement_score: Annotated[
        float | None,
        col("", "1 / slowdown by placement, over its GPU time", figure("placement_score_mean", "mean", better="high")),
    ] = None
    rho: Annotated[
        float | None, col("", "finish-time fairness at the end: time shared over time with an equal share of one's own")
    ] = None
    rho_static: Annotated[float | None, col("", "the same by the static contention")] = None
    rho_contention: Annotated[float | None, col("", "the same by the mean contention over its life")] = None
    rho_exclusive: Annotated[float | None, col("", "slowdown against an exclusive cluster")] = None
    alone_seconds: Annotated[
        float | None, col("s", "its work on all GPUs that it can use: rho = jct / (alone x mean_apps)")
    ] = None
    mean_apps: Annotated[float | None, col("apps", "N_avg: present over its life on average, itself included")] = None
    wait_seconds: Annotated[float | None, col("s", "of all its jobs")] = None


@value
class UserRow:
    """A user: what the user's apps requested and received in total."""

    user: Annotated[str, col("", "the owner")]
    weight: Annotated[float | None, col("", "the weight among the users")] = None
    apps: Annotated[int | None, col("apps", "of the user")] = None
    jobs: Annotated[int | None, col("jobs", "of these apps")] = None
    apps_finished: Annotated[int | None, col("apps", "that finished")] = None
    arrival_seconds: Annotated[float | None, col("s", "of the first app")] = None
    finish_seconds: Annotated[float | None, col("s", "of the last app")] = None
    jct_mean_seconds: Annotated[float | None, col("s", "mean over the apps that finished")] = None
    jct_p99_seconds: Annotated[float | None, col("s", "99th percentile over them")] = None
    wait_seconds: Annotated[float | None, col("s", "of all jobs")] = None
    slot_seconds: Annotated[float | None, col("GPU-s", "held by all jobs")] = None
    slot_share: Annotated[float | None, col("share", "of the GPU time of all users")] = None
    rho_mean: Annotated[float | None, col("", "mean over the apps")] = None
    rho_worst: Annotated[float | None, col("", "largest of the apps")] = None
    rho_static_worst: Annotated[float | None, col("", "largest of the apps, by the static contention")] = None


@value
class RoundRow:
    """A round of the arbiter: its causes, the state before it, and its changes."""

    round: Annotated[int, col("", "its number")]
    time_seconds: Annotated[float, col("s", "when it began")]
    trigger: Annotated[str | None, col("", "the events that caused it")] = None
    free_slots: Annotated[int | None, col("GPUs", "free at its start, those of ended leases included")] = None
    busy_slots: Annotated[int | None, col("GPUs", "held at its start")] = None
    running_jobs: Annotated[int | None, col("jobs", "running at its start")] = None
    waiting_jobs: Annotated[int | None, col("jobs", "waiting at its start")] = None
    started: Annotated[int | None, col("jobs", "started")] = None
    kept: Annotated[int | None, col("jobs", "kept exactly their GPUs")] = None
    grown: Annotated[int | None, col("jobs", "got more GPUs")] = None
    shrunk: Annotated[int | None, col("jobs", "gave up some of their GPUs")] = None
    migrated: Annotated[int | None, col("jobs", "moved to other GPUs")] = None
    suspended: Annotated[int | None, col("jobs", "unfinished, lost all their GPUs", figure("suspensions", "sum"))] = (
        None
    )
    gap: Annotated[float | None, col("", "certified distance from the optimum, relative")] = None
    fault: Annotated[str | None, col("", "the faults of plugins: plugin (stage): error")] = None


@value
class LeaseRow:
    """A slot leased to an app, from the grant until the slot was free again."""

    app: Annotated[str, col("", "the holder")]
    job: Annotated[str | None, col("", "the job of the lease; null: several, or none")] = None
    machine: Annotated[str, col("", "of the slot")]
    slot: Annotated[int, col("", "its number on the machine")]
    epoch: Annotated[int | None, col("", "of the order that granted it")] = None
    start_seconds: Annotated[float, col("s", "when the lease got the slot")]
    end_seconds: Annotated[float | None, col("s", "when the slot was free again; null: still held")] = None
    ended_by: Annotated[
        str | None, col("", "expired, released, preempted, lost, probed; divided: by the app, among its jobs")
    ] = None


@value
class WaitRow:
    """A period in which a job wanted slots but had none, for one reason."""

    job: Annotated[str, col("", "the job")]
    start_seconds: Annotated[float, col("s", "when it began")]
    end_seconds: Annotated[float | None, col("s", "when it ended; null: still waiting")] = None
    reason: Annotated[str, col("", "of eunomia.contract.verdicts.Reason, in lower case")]
    stage: Annotated[str | None, col("", "the stage that turned the job down")] = None
    plugin: Annotated[str | None, col("", "the plugin that did")] = None


@value
class GpuTypeRow:
    """A job's time on a GPU type on which it held GPUs; only for clusters with several GPU types."""

    app: Annotated[str, col("", "its app")]
    job: Annotated[str | None, col("", "the job; null: leases of several jobs of the app, or of none")] = None
    gpu_type: Annotated[str, col("", "the GPU type")]
    slot_seconds: Annotated[float, col("GPU-s", "held on this type, busy or idle")]
    run_seconds: Annotated[
        float | None, col("s", "made progress on this type: its run time, by the GPU time held of each type")
    ] = None
    wait_seconds: Annotated[
        float | None,
        col("s", "waited before it got GPUs of this type: each wait, by the GPUs of each type that ended it"),
    ] = None
    reference_type: Annotated[str | None, col("", "the type of the job's times, which speed refers to")] = None
    speed: Annotated[
        float | None,
        col("", "on this type over that on the reference type, at the job's largest gang on one machine"),
    ] = None
    lost_seconds: Annotated[
        float | None,
        col("s", "of run_seconds, those that the same work does not take on the reference type; negative: saved"),
    ] = None


@value
class QueueRow:
    """The queue and the cluster from a time to the next row; the last three columns are means over that period."""

    time_seconds: Annotated[float, col("s", "from this time on")]
    waiting_jobs: Annotated[
        int | None,
        col(
            "jobs",
            "that want GPUs and hold none",
            figure("queue_length_mean", "time_mean", "mean queue"),
            figure("queue_length_max", "max"),
        ),
    ] = None
    waiting_gpus: Annotated[int | None, col("GPUs", "that these jobs ask for")] = None
    busy_gpus: Annotated[int | None, col("GPUs", "held")] = None
    contention: Annotated[
        float | None,
        col("jobs/GPU", "present jobs, waiting or running, per GPU", figure("contention_mean", "time_mean")),
    ] = None
    efficiency: Annotated[
        float | None, col("", "AFS' cluster efficiency", figure("cluster_efficiency_mean", "time_mean", better="high"))
    ] = None
    blocking_index: Annotated[
        float | None, col("", "AFS' blocking index", figure("blocking_index_mean", "time_mean"))
    ] = None


@value
class RhoRow:
    """An app's finish-time fairness and its slots at a time, as the arbiter knows them."""

    app: Annotated[str, col("", "the app")]
    time_seconds: Annotated[float, col("s", "when")]
    rho: Annotated[float | None, col("", "its ρ at that time")] = None
    slots: Annotated[int | None, col("GPUs", "that it held")] = None


@value
class SearchRow:
    """The metric of an app's search, and its direction."""

    app: Annotated[str, col("", "the search")]
    metric: Annotated[str, col("", "the tag in the logs, such as val/accuracy")]
    mode: Annotated[str, col("", "max or min")]
    max_iterations: Annotated[int | None, col("", "of a trial that is trained to the end")] = None


@value
class MetricRow:
    """A value that a job logged; for a series of over 500 values, a live run keeps 500, including the extremes."""

    job: Annotated[str, col("", "the job")]
    app: Annotated[str, col("", "its app")]
    step: Annotated[int, col("", "the iteration")]
    time_seconds: Annotated[float | None, col("s", "when it was logged")] = None
    slot_seconds: Annotated[float | None, col("GPU-s", "that the app had had by then; of its metric")] = None
    tag: Annotated[str, col("", "the name in the logs")]
    value: Annotated[float | None, col("", "null where it was not a number")] = None


@value
class TrialRow:
    """A trial of a search at the end of the run."""

    app: Annotated[str, col("", "the search")]
    job: Annotated[str, col("", "the trial's job")]
    params: Annotated[str | None, col("", "a JSON object")] = None
    state: Annotated[str, col("", "finished, failed, stopped, or its state at the end")]
    rung: Annotated[int | None, col("", "the highest that it reached, from 0")] = None
    iterations: Annotated[int | None, col("", "done")] = None
    metric: Annotated[float | None, col("", "its best value")] = None
    best: Annotated[bool, col("", "whether it is the best of its app")] = False
    error: Annotated[str | None, col("", "of one that failed: its exit code and the last line of its stderr")] = None


@value
class RungRow:
    """The end of a trial, its arrival at a rung, or a stop by its tuner; with the tuner's decision."""

    app: Annotated[str, col("", "the search")]
    job: Annotated[str, col("", "the trial's job")]
    rung: Annotated[int, col("", "from 0")]
    iterations: Annotated[int, col("", "done at that time")]
    time_seconds: Annotated[float | None, col("s", "when")] = None
    metric: Annotated[float | None, col("", "the last value by then")] = None
    verdict: Annotated[str | None, col("", "promoted, paused, stopped, finished")] = None


@value
class SegmentRow:
    """The activity of a slot: start, restore, run, save, or idle (held without work)."""

    job: Annotated[str, col("", "the job")]
    app: Annotated[str, col("", "its app")]
    slot: Annotated[int, col("", "its number on the machine")]
    machine: Annotated[str, col("", "of the slot")]
    start_seconds: Annotated[float, col("s", "when it began")]
    end_seconds: Annotated[float, col("s", "when it ended")]
    activity: Annotated[str, col("", "start, restore, run, save or idle")]


@value
class EventRow:
    """An event as text; kinds that begin with ``fault`` are marked in the report."""

    time_seconds: Annotated[float, col("s", "when")]
    kind: Annotated[str, col("", "such as app.arrived or job.suspended")]
    app: Annotated[str | None, col("", "the app that it concerns")] = None
    job: Annotated[str | None, col("", "the job that it concerns")] = None
    text: Annotated[str | None, col("", "a sentence")] = None


@value
class CountRow:
    """Counts of the work of a simulation."""

    steps: Annotated[int, col("", "of the arbiter")]
    events: Annotated[int, col("", "reported by the simulator", figure("events", "max"))]
    rounds: Annotated[int, col("", "of the arbiter")]
    quiet_rounds: Annotated[
        int, col("", "in which nothing waited, so that no stage was asked", figure("quiet_rounds", "max"))
    ]
    stage_calls: Annotated[int, col("", "calls of stages", figure("stage_calls", "max"))]
    end_seconds: Annotated[float, col("s", "when the last event happened")]
    fallback_round: Annotated[
        int | None,
        col(
            "",
            "the first that the fallback decided; null: the profile decided all",
            figure("fallback_round", "max", "fallback from round"),
        ),
    ] = None


@value
class TimingRow:
    """The time that a stage took on this machine, which differs from run to run."""

    round: Annotated[int, col("", "the last round that it counts")]
    stage: Annotated[str, col("", "the stage; step: the whole arbiter; driver: everything else")]
    plugin: Annotated[str | None, col("", "the plugin that answers the stage")] = None
    cpu_seconds: Annotated[float | None, col("s", "of the CPU")] = None
    wall_seconds: Annotated[float | None, col("s", "of the clock")] = None


TABLES: Final[dict[str, type[Row]]] = {
    "jobs": JobRow,
    "apps": AppRow,
    "users": UserRow,
    "rounds": RoundRow,
    "leases": LeaseRow,
    "waits": WaitRow,
    "gpu_types": GpuTypeRow,
    "queue": QueueRow,
    "rho": RhoRow,
    "searches": SearchRow,
    "metrics": MetricRow,
    "trials": TrialRow,
    "rungs": RungRow,
    "segments": SegmentRow,
    "events": EventRow,
    "counts": CountRow,
    "timings": TimingRow,
}
"""The row type of each table, in the order of the documents."""

KEY: Final[dict[str, pl.DataType]] = {"policy": pl.String(), "seed": pl.Int64()}
"""The key columns of every table: the policy and seed of a row."""

_LARGE: Final = 100_000
"""Number of rows from which a frame stores its key columns once instead of in each row."""

_TYPES: Final[dict[object, pl.DataType]] = {str: pl.String(), int: pl.Int64(), float: pl.Float64(), bool: pl.Boolean()}


@functools.cache
def schema_of(table: str, added: tuple[str, ...] = ()) -> pl.Schema:
    """Return a table's schema with policy, seed and plugins' columns; raise KeyError for an unknown table."""
    hints = typing.get_type_hints(TABLES[table])
    own = {name: _TYPES[plain_type(hint)] for name, hint in hints.items()}
    return pl.Schema(KEY | own | dict.fromkeys(added, pl.Float64()))


def frame_of(table: str, rows: typing.Iterable[Row], *, policy: str, seed: int) -> pl.DataFrame:
    """Return rows of one policy and seed as a frame with the table's schema."""
    schema = schema_of(table)
    names = [name for name in schema if name not in KEY]
    columns: dict[str, list[object]] = {name: [] for name in names}
    for row in rows:
        for name in names:
            columns[name].append(getattr(row, name))
    height = len(columns[names[0]])
    keys: dict[str, list[object]] = {"policy": [policy] * height, "seed": [seed] * height}
    return pl.DataFrame(keys | columns, schema=schema)


def frame_of_columns(
    table: str, columns: typing.Mapping[str, typing.Any], *, policy: str, seed: int, height: int
) -> pl.DataFrame:
    """Return columns as a frame with the table's schema, without creating row objects; missing columns are null.

    Args:
        table: name of the table.
        columns: numpy arrays, lists or series of length ``height`` by name; NaN counts as unknown.
        policy: value of the column ``policy``.
        seed: value of the column ``seed``.
        height: number of rows.
    """
    schema = schema_of(table)
    filled: list[pl.Series] = []
    for name, dtype in schema.items():
        if name in KEY:
            continue
        given = columns.get(name)
        if given is None:
            filled.append(pl.Series(name, [None], dtype).new_from_index(0, height))
            continue
        filled.append(_series(name, given, dtype))
    return keyed(pl.DataFrame(filled), policy=policy, seed=seed)


def keyed(frame: pl.DataFrame, *, policy: str, seed: int) -> pl.DataFrame:
    """Return a frame with policy and seed as first columns; a large frame stores these once, not in each row."""
    keys = [pl.Series("policy", [policy], pl.String()), pl.Series("seed", [seed], pl.Int64())]
    if frame.height >= _LARGE:
        return frame.select(*(pl.lit(key).first().alias(key.name) for key in keys), pl.all())
    for place, key in enumerate(keys):
        frame.insert_column(place, key.new_from_index(0, frame.height))
    return frame


def _series(name: str, given: typing.Any, dtype: pl.DataType) -> pl.Series:
    """Return values as a column of a type; NaN becomes null."""
    if isinstance(given, np.ndarray) and given.dtype == np.float64 and dtype == pl.Float64():
        return pl.Series(name, given, nan_to_null=True)
    series = given.alias(name) if isinstance(given, pl.Series) else pl.Series(name, given, strict=False)
    series = series if series.dtype == dtype else series.cast(dtype)
    return series.fill_nan(None) if dtype == pl.Float64() else series
