"""Computes the tables of a result folder from a simulated run by columns, without an object for each row."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from eunomia.model.cluster import Cluster
from eunomia.model.shapes import builds
from eunomia.units import Reals
from eunomia_testbed.metrics import queueing
from eunomia_testbed.metrics.judged import Judged, judge
from eunomia_testbed.metrics.simulated_log import log_of, user_names
from eunomia_testbed.metrics.users import user_columns
from eunomia_testbed.results.plugin_metrics import PluginMetric, with_metrics
from eunomia_testbed.results.record_names import COLUMNS
from eunomia_testbed.run_log.gpu_types import TypeSpeeds
from eunomia_testbed.run_log.tables import LogTables, MadeTables, Maker
from eunomia_testbed.simulator.logs.run import SimulatedRun
from eunomia_testbed.workload import Workload

Columns = Mapping[str, object]


@builds
class Frames:
    """The tables of one policy and seed by name, and the plugins' records by plugin.

    Each table is computed when it is read, and is not cached: all tables of a long run together take several times the
    run's memory.
    """

    tables: Mapping[str, pl.DataFrame]
    records: Mapping[str, pl.DataFrame]


def frames_of(
    run: SimulatedRun,
    workload: Workload,
    cluster: Cluster,
    *,
    serial_seconds: Reals | None = None,
    speeds: TypeSpeeds | None = None,
    label: str = "",
    metrics: Sequence[PluginMetric] = (),
) -> Frames:
    """Return all tables of a simulated run, with the plugins' records.

    Args:
        run: the simulated run.
        workload: workload of the run.
        cluster: cluster of the run.
        serial_seconds: by job, the seconds of the job's work on one GPU; None: linear speed-up.
        speeds: speeds of jobs by GPU type; None: unknown.
        label: value of the column ``policy``; empty: the run's policy.
        metrics: metrics whose columns plugins add.
    """
    judged = judge(run, workload, cluster, serial_seconds)
    return _Maker(run, workload, cluster, judged, label or run.policy, speeds).frames(metrics)


@builds
class Alone:
    """By job, the seconds of the job alone on the cluster; NaN: unknown."""

    ideal_seconds: Reals
    exclusive_seconds: Reals


class _Maker:
    def __init__(
        self,
        run: SimulatedRun,
        workload: Workload,
        cluster: Cluster,
        judged: Judged,
        label: str,
        speeds: TypeSpeeds | None,
    ) -> None:
        self._run, self._workload, self._cluster, self._judged, self._label = run, workload, cluster, judged, label
        log = log_of(run, workload, cluster, judged.apps)
        alone = Alone(
            ideal_seconds=np.where(np.isfinite(run.ideal_seconds), run.ideal_seconds, np.nan),
            exclusive_seconds=np.where(np.isfinite(run.exclusive_seconds), run.exclusive_seconds, np.nan),
        )
        self._of_log = LogTables(
            log, policy=label, seed=run.seed, jobs=(judged.jobs, alone), apps=(judged.apps,), speeds=speeds
        )

    def frames(self, metrics: Sequence[PluginMetric]) -> Frames:
        run, workload = self._run, self._workload
        made = self._of_log.makers()
        own: dict[str, Maker] = {
            "users": lambda: self._frame("users", self._user_columns(), len(workload.users.id)),
            "queue": lambda: self._frame("queue", self._queue_columns(), run.queue.time_seconds.size),
            "counts": lambda: self._frame("counts", self._count_columns(), 1),
            "timings": lambda: self._frame("timings", self._timing_columns(), len(run.timings)),
        }
        return Frames(
            tables=with_metrics(MadeTables(made | own), metrics),
            records={name: self._record(name) for name in run.records},
        )

    def _frame(self, table: str, columns: Columns, height: int) -> pl.DataFrame:
        return self._of_log.frame(table, columns, height)

    def _user_columns(self) -> Columns:
        return {"user": user_names(self._workload), **user_columns(self._run, self._workload, self._judged)}

    def _queue_columns(self) -> Columns:
        run, log, jobs, until = self._run, self._run.queue, self._workload.jobs, self._run.end_seconds
        crowd = self._judged.crowd
        steps = queueing.Series(time_seconds=crowd.moments, value=crowd.present, slope=np.zeros(crowd.moments.size))
        waits = queueing.Waits(
            job=run.waits.job, start_seconds=run.waits.start_seconds, end_seconds=run.waits.end_seconds
        )
        blocking = queueing.blocking_index(
            waits, jobs.arrival_seconds, run.finish_seconds, self._judged.jobs.serial_seconds, until
        )
        return {
            "time_seconds": log.time_seconds,
            "waiting_jobs": log.waiting_jobs,
            "waiting_gpus": log.waiting_gpus,
            "busy_gpus": log.busy_gpus,
            "contention": steps.means(log.time_seconds, until) / max(1, self._cluster.gpus),
            "efficiency": self._efficiency().means(log.time_seconds, until) if run.leases.gpu.size else None,
            "blocking_index": blocking.means(log.time_seconds, until) if run.waits.job.size else None,
        }

    def _efficiency(self) -> queueing.Series:
        run, log = self._run, self._run.leases
        known = log.job >= 0
        end = np.where(np.isnan(log.end_seconds), run.end_seconds, log.end_seconds)[known]
        with np.errstate(divide="ignore", invalid="ignore"):
            done = run.iterations_done / self._workload.jobs.iterations
            per_second = np.nan_to_num(self._judged.jobs.serial_seconds * done / run.slot_seconds, posinf=0.0)
        return queueing.cluster_efficiency(
            log.start_seconds[known], end, per_second[log.job[known]], self._cluster.gpus
        )

    def _count_columns(self) -> Columns:
        run = self._run
        return {
            "steps": [run.steps],
            "events": [run.events],
            "rounds": [run.round_count],
            "quiet_rounds": [run.quiet_rounds],
            "stage_calls": [run.stage_calls],
            "end_seconds": [run.end_seconds],
            "fallback_round": [run.fallback_round],
        }

    def _timing_columns(self) -> Columns:
        stages = list(self._run.timings)
        return {
            "round": np.full(len(stages), self._run.round_count),
            "stage": stages,
            "cpu_seconds": [self._run.timings[stage] for stage in stages],
        }

    def _record(self, plugin: str) -> pl.DataFrame:
        """Return a plugin's record tables as one frame, with policy, seed, round and time in each row."""
        columns: dict[str, list[Any]] = {}
        height = 0
        for at, number, table in self._run.records[plugin]:
            rows = len(next(iter(table.columns.values()), []))
            given = {"round": [number] * rows, "time_seconds": [at] * rows, **result_names(table.table, table.columns)}
            for name in [*columns, *(name for name in given if name not in columns)]:
                column = columns.setdefault(name, [None] * height)
                column.extend(given.get(name, [None] * rows))
            height += rows
        keys = {"policy": [self._label] * height, "seed": [self._run.seed] * height}
        return pl.DataFrame(keys | columns, strict=False)


def result_names(table: str, columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record's columns by their names in results; only columns of the table ``auction`` are renamed."""
    known = COLUMNS if table == "auction" else {}
    return {known.get(name, name): column for name, column in columns.items()}
