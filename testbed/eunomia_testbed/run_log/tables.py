"""Makes the result tables that need only a run's log, column by column, without an object for each row."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import polars as pl

from eunomia.contract.decisions import CHANGED
from eunomia.units import Ints
from eunomia_testbed.results.tables import frame_of_columns, schema_of
from eunomia_testbed.run_log.gpu_types import TypeSpeeds, held_by_type, speed_columns
from eunomia_testbed.run_log.log import Column, RunLog

Maker = Callable[[], pl.DataFrame]


class MadeTables(Mapping[str, pl.DataFrame]):
    """Tables by name; each access makes the table."""

    def __init__(self, makers: Mapping[str, Maker]) -> None:
        self._makers = makers

    def __getitem__(self, table: str) -> pl.DataFrame:
        return self._makers[table]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)


class LogTables:
    """Makes a log's tables ``jobs``, ``apps``, ``rounds``, ``leases``, ``waits``, ``gpu_types`` and ``segments``.

    Args:
        log: log of the run.
        policy: value of the column ``policy``.
        seed: value of the column ``seed``.
        jobs: dataclasses whose fields are further columns by job; fields that are not columns are ignored.
        apps: dataclasses whose fields are further columns by app.
        speeds: speeds of jobs by GPU type; None: unknown.
    """

    def __init__(
        self,
        log: RunLog,
        *,
        policy: str,
        seed: int,
        jobs: tuple[Any, ...] = (),
        apps: tuple[Any, ...] = (),
        speeds: TypeSpeeds | None = None,
    ) -> None:
        self._log, self._policy, self._seed, self._speeds = log, policy, seed, speeds
        self._of_jobs, self._of_apps = jobs, apps
        self._apps = pl.Series("app", list(log.apps), pl.String())
        names = pl.Series("job", list(log.jobs), pl.String())
        own = self._apps.gather(log.arrivals.app)
        self.lone = names.len() == own.len() and bool((names == own).all())
        """Whether every job has the name of its app."""
        self.jobs = own if self.lone else names

    def makers(self) -> dict[str, Maker]:
        """Return by table name the function that makes the table."""
        return {
            "jobs": self._job_table,
            "apps": self._app_table,
            "rounds": self._rounds,
            "leases": self._leases,
            "waits": self._waits,
            "gpu_types": self._gpu_types,
            "segments": self._segments,
        }

    def frame(self, table: str, columns: Mapping[str, Column], height: int) -> pl.DataFrame:
        """Return ``table`` as a frame of ``height`` rows, from its columns; policy and seed are added."""
        return frame_of_columns(table, columns, policy=self._policy, seed=self._seed, height=height)

    def _job_table(self) -> pl.DataFrame:
        arrivals = self._log.arrivals
        size = arrivals.app.size
        names = {"job": self.jobs.head(size), "app": self._apps.gather(arrivals.app)}
        return self.frame("jobs", {**fields_of("jobs", arrivals, *self._of_jobs), **names}, size)

    def _app_table(self) -> pl.DataFrame:
        log = self._log.app_log
        columns = fields_of("apps", log, *self._of_apps)
        return self.frame("apps", {**columns, "app": self._apps.head(len(log.state))}, len(log.state))

    def _rounds(self) -> pl.DataFrame:
        log = self._log.rounds
        touched = sum(getattr(log, name) for name in CHANGED)
        gpus = 0 if self._log.cluster is None else self._log.cluster.gpus
        derived = {
            "trigger": words(log.causes),
            "free_slots": log.free_gpus,
            "busy_slots": gpus - log.free_gpus if log.busy_gpus is None else log.busy_gpus,
            "kept": np.maximum(log.running_jobs - touched, 0) if log.kept is None else log.kept,
            "fault": or_null(log.fault),
        }
        return self.frame("rounds", {**fields_of("rounds", log), **derived}, len(log.round))

    def _leases(self) -> pl.DataFrame:
        log = self._log.leases
        apps = self._apps.gather(log.app)
        columns = {
            "app": apps,
            "job": apps if self.lone and bool((log.job >= 0).all()) else gathered(self.jobs, log.job),
            **self._places(log.gpu),
            "epoch": log.lease,
            "start_seconds": log.start_seconds,
            "end_seconds": log.end_seconds,
            "ended_by": or_null(log.ended_by),
        }
        return self.frame("leases", columns, log.gpu.size)

    def _waits(self) -> pl.DataFrame:
        log = self._log.waits
        named = {
            "job": self.jobs.gather(log.job),
            "reason": words(log.reason),
            "stage": or_null(log.stage),
            "plugin": or_null(log.plugin),
        }
        return self.frame("waits", {**fields_of("waits", log), **named}, log.job.size)

    def _gpu_types(self) -> pl.DataFrame:
        """Return the table of jobs by GPU type; it has no rows if the cluster has only one type."""
        cluster = self._log.cluster
        if cluster is None or len(cluster.gpu_types) < 2:
            return self.frame("gpu_types", {}, 0)
        held = held_by_type(self._log, cluster)
        names = pl.Series("gpu_type", list(cluster.gpu_types), pl.String())
        columns = {
            **fields_of("gpu_types", held),
            **speed_columns(held, self._speeds),
            "app": self._apps.gather(held.app),
            "job": gathered(self.jobs, held.job),
            "gpu_type": names.gather(held.kind),
        }
        return self.frame("gpu_types", columns, held.kind.size)

    def _segments(self) -> pl.DataFrame:
        log = self._log.activity()
        apps = self._apps.gather(log.app)
        named = {"job": gathered(self.jobs, log.job).zip_with(pl.Series(log.job >= 0), apps), "app": apps}
        return self.frame("segments", {**fields_of("segments", log), **named, **self._places(log.gpu)}, log.gpu.size)

    def _places(self, gpu: Ints) -> dict[str, Column]:
        """Return machine and slot of each GPU."""
        cluster = self._log.cluster
        if cluster is None:
            return {"machine": [], "slot": []}
        machine = cluster.machine[gpu].astype(np.int64)
        names = pl.Series("machine", [each.name for each in cluster.machines], pl.String())
        return {"machine": names.gather(machine), "slot": gpu - cluster.machine_start[machine]}


def fields_of(table: str, *parts: Any) -> dict[str, Column]:
    """Return the fields of dataclasses that are columns of a table; a later dataclass overrides earlier ones."""
    schema = schema_of(table)
    return {
        field.name: getattr(part, field.name)
        for part in parts
        for field in dataclasses.fields(part)
        if field.name in schema
    }


def gathered(names: pl.Series, rows: Ints) -> pl.Series:
    """Return the name at each index in ``rows``; null where the index is -1."""
    index = pl.Series("row", rows)
    return names.gather(index.set(index < 0, None))


def words(texts: Any) -> pl.Series:
    """Return an array or a list of strings as a polars column."""
    return pl.Series("words", texts if isinstance(texts, list) else texts.tolist(), pl.String())


def or_null(texts: Any) -> pl.Series:
    """Return strings as a polars column, with null for empty ones."""
    series = words(texts)
    return series.set(series == "", None)
