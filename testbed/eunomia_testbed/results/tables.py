"""The tables of a result folder: one dataclass a row; the schema of each table is read off its dataclass.

Rules that hold for all: a column named ``*_seconds`` is a float64, and a moment is counted from the first arrival;
what is unknown is None (null), never -1; a job is named ``app/number``, or by its app alone where that has one job.
The writer puts two columns in front of every table: ``policy`` and ``seed``.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from typing import Final, Protocol

import numpy as np
import polars as pl

from eunomia.model.shapes import value


class Row(Protocol):
    """Any row of a table: a dataclass of strings, integers, floats and booleans, each of them optional or not."""

    __dataclass_fields__: typing.ClassVar[dict[str, dataclasses.Field[typing.Any]]]


@value
class JobRow:
    """A job: what it asked for, when it ran, what it got."""

    app: str
    job: str
    user: str | None = None
    model: str | None = None
    state: str  # finished, failed, cancelled, rejected, stopped (ended early by its tuner), or what it was at the end
    slots_asked: int | None = None
    arrival_seconds: float | None = None
    start_seconds: float | None = None
    finish_seconds: float | None = None
    jct_seconds: float | None = None  # finish - arrival
    wait_seconds: float | None = None  # wanted slots and held none
    run_seconds: float | None = None  # made progress
    ideal_seconds: float | None = None  # would have taken alone on the cluster
    slot_seconds: float | None = None  # held, whatever it did with them
    iterations: int | None = None
    iterations_lost: int | None = None  # done again, because they came after the last checkpoint
    restarts: int | None = None  # starts after the first
    migrations: int | None = None
    rho: float | None = None  # finish-time fairness by Themis' definition
    rho_static: float | None = None
    rho_contention: float | None = None
    rho_exclusive: float | None = None
    exclusive_seconds: float | None = None  # run time alone, what rho is held against
    busy_slot_seconds: float | None = None  # of slot_seconds, those that made progress
    placement_score: float | None = None  # 1 / slowdown by placement, over its slot time


@value
class AppRow:
    """An app: one search, or one training run."""

    app: str
    user: str | None = None
    tuner: str | None = None
    weight: float | None = None
    state: str
    jobs: int | None = None
    arrival_seconds: float | None = None
    finish_seconds: float | None = None
    jct_seconds: float | None = None
    slot_seconds: float | None = None
    placement_score: float | None = None
    rho: float | None = None  # finish-time fairness at the end: time shared over time with an equal share of one's own
    rho_static: float | None = None
    rho_contention: float | None = None
    rho_exclusive: float | None = None
    alone_seconds: float | None = None  # its work on all GPUs that it can use: rho = jct / (alone x mean_apps)
    mean_apps: float | None = None  # N_avg: how many apps were there over its life, itself included
    wait_seconds: float | None = None  # of all its jobs


@value
class UserRow:
    """A user: what all apps of one owner asked for and got."""

    user: str
    weight: float | None = None
    apps: int | None = None
    jobs: int | None = None
    apps_finished: int | None = None
    arrival_seconds: float | None = None  # of the first app
    finish_seconds: float | None = None  # of the last
    jct_mean_seconds: float | None = None
    jct_p99_seconds: float | None = None
    wait_seconds: float | None = None
    slot_seconds: float | None = None
    slot_share: float | None = None  # of the slot time of all users
    rho_mean: float | None = None
    rho_worst: float | None = None
    rho_static_worst: float | None = None


@value
class RoundRow:
    """A round of the arbiter: why it was held, the state that it met, what it changed."""

    round: int
    time_seconds: float
    trigger: str | None = None
    free_slots: int | None = None  # at the start of the round, those of ended leases included
    busy_slots: int | None = None
    running_jobs: int | None = None
    waiting_jobs: int | None = None
    started: int | None = None
    kept: int | None = None
    grown: int | None = None
    shrunk: int | None = None
    migrated: int | None = None
    suspended: int | None = None  # unfinished jobs that lost all their slots
    gap: float | None = None  # certified distance from the optimum, relative
    fault: str | None = None


@value
class LeaseRow:
    """A slot held by an app from its grant until it was free again."""

    app: str
    job: str | None = None
    machine: str
    slot: int
    epoch: int | None = None
    start_seconds: float
    end_seconds: float | None = None
    ended_by: str | None = None  # expired, released, preempted, lost


@value
class WaitRow:
    """A stretch in which a job wanted slots and had none, for one reason."""

    job: str
    start_seconds: float
    end_seconds: float | None = None
    reason: str  # of eunomia.contract.verdicts.Reason, in lower case
    stage: str | None = None
    plugin: str | None = None


@value
class QueueRow:
    """The queue and the cluster from a moment on, until the next row; the last three are means over that time."""

    time_seconds: float
    waiting_jobs: int | None = None
    waiting_gpus: int | None = None
    busy_gpus: int | None = None
    contention: float | None = None  # jobs that are there, waiting or running, per GPU
    efficiency: float | None = None  # AFS' cluster efficiency
    blocking_index: float | None = None  # AFS' blocking index


@value
class RhoRow:
    """An app's finish-time fairness and its slots at a moment, as the arbiter saw them."""

    app: str
    time_seconds: float
    rho: float | None = None
    slots: int | None = None


@value
class SearchRow:
    """What an app looks for: the metric that its tuner compares, and which way is better."""

    app: str
    metric: str  # the tag in the logs, such as val/accuracy
    mode: str  # max or min


@value
class MetricRow:
    """A value that a job logged."""

    job: str
    app: str
    step: int
    time_seconds: float | None = None
    slot_seconds: float | None = None  # slot time that its app had had by then
    tag: str
    value: float | None = None  # null where it was not a number


@value
class TrialRow:
    """A trial of a search at the end of the run."""

    app: str
    job: str
    params: str | None = None  # a JSON object
    state: str
    rung: int | None = None  # the highest that it reached, from 0
    iterations: int | None = None
    metric: float | None = None  # its best value
    best: bool = False  # of its app
    error: str | None = None  # of one that failed: its exit code and the last line of its stderr


@value
class RungRow:
    """A trial reached a rung or its end, or was stopped by its tuner on the way, and what its tuner decided."""

    app: str
    job: str
    rung: int
    iterations: int
    time_seconds: float | None = None
    metric: float | None = None
    verdict: str | None = None  # promoted, paused, stopped, finished


@value
class SegmentRow:
    """What a slot did for its holder: start, restore, run, save, or idle (held, and nothing done with it)."""

    job: str
    app: str
    slot: int
    machine: str
    start_seconds: float
    end_seconds: float
    activity: str


@value
class EventRow:
    """Something that happened, in words; a kind that begins with ``fault`` is marked in the report."""

    time_seconds: float
    kind: str
    app: str | None = None
    job: str | None = None
    text: str | None = None


@value
class CountRow:
    """How much a simulation had to do."""

    steps: int  # of the arbiter
    events: int
    rounds: int
    quiet_rounds: int  # in which nothing waited, so that no stage was asked
    stage_calls: int
    end_seconds: float  # when the last thing happened
    fallback_round: int | None = None  # the first that the fallback decided; null: the profile decided all


@value
class TimingRow:
    """What a stage of a round cost this machine; not the same from run to run."""

    round: int
    stage: str
    plugin: str | None = None
    cpu_seconds: float | None = None
    wall_seconds: float | None = None


TABLES: Final[dict[str, type[Row]]] = {
    "jobs": JobRow,
    "apps": AppRow,
    "users": UserRow,
    "rounds": RoundRow,
    "leases": LeaseRow,
    "waits": WaitRow,
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
"""The table that each kind of row goes to, in the order in which the documents list them."""

KEY: Final[dict[str, pl.DataType]] = {"policy": pl.String(), "seed": pl.Int64()}
"""The columns in front of every table: which run of several a row belongs to."""

_LARGE: Final = 100_000
"""Rows from which on their keys are worth a query."""

_TYPES: Final[dict[object, pl.DataType]] = {str: pl.String(), int: pl.Int64(), float: pl.Float64(), bool: pl.Boolean()}


@functools.cache
def schema_of(table: str) -> pl.Schema:
    """The schema of a table, policy and seed included; KeyError for a name that is no table."""
    hints = typing.get_type_hints(TABLES[table])
    return pl.Schema(KEY | {name: _TYPES[_plain(hint)] for name, hint in hints.items()})


def frame_of(table: str, rows: typing.Iterable[Row], *, policy: str, seed: int) -> pl.DataFrame:
    """The rows as a frame with the table's schema."""
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
    """The columns as a frame with the table's schema, without a Row for each; what is not given is null.

    Args:
        table: its name.
        columns: by name numpy arrays, lists or series of ``height``; NaN counts as unknown.
        policy: goes in front of every row.
        seed: likewise.
        height: how many rows there are.
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
    """The frame with the key of all its rows in front; in a large one it takes no memory by row."""
    keys = [pl.Series("policy", [policy], pl.String()), pl.Series("seed", [seed], pl.Int64())]
    if frame.height >= _LARGE:
        return frame.select(*(pl.lit(key).first().alias(key.name) for key in keys), pl.all())
    for place, key in enumerate(keys):
        frame.insert_column(place, key.new_from_index(0, frame.height))
    return frame


def _series(name: str, given: typing.Any, dtype: pl.DataType) -> pl.Series:
    """A column of a type; NaN is null."""
    if isinstance(given, np.ndarray) and given.dtype == np.float64 and dtype == pl.Float64():
        return pl.Series(name, given, nan_to_null=True)
    series = given.alias(name) if isinstance(given, pl.Series) else pl.Series(name, given, strict=False)
    series = series if series.dtype == dtype else series.cast(dtype)
    return series.fill_nan(None) if dtype == pl.Float64() else series


def _plain(hint: object) -> object:
    """``str`` of ``str | None``."""
    if isinstance(hint, types.UnionType):
        return next(part for part in typing.get_args(hint) if part is not type(None))
    return hint
