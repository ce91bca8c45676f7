"""A simulated run as the tables of a result folder, made from columns without an object per row."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from eunomia.model.cluster import Cluster
from eunomia.model.shapes import builds
from eunomia.units import Ints, Reals
from eunomia_testbed.metrics import queueing
from eunomia_testbed.metrics.judged import Judged, judge
from eunomia_testbed.metrics.users import user_columns
from eunomia_testbed.results.record_names import COLUMNS
from eunomia_testbed.results.tables import frame_of_columns
from eunomia_testbed.simulator.run import SimulatedRun
from eunomia_testbed.workload import Workload

Columns = Mapping[str, object]


@builds
class Frames:
    """The tables of one policy and seed, by name, and the plugins' records, by plugin.

    Each table is made on access, and not kept: all tables of a long run at once take several times its memory.
    """

    tables: Mapping[str, pl.DataFrame]
    records: Mapping[str, pl.DataFrame]


def frames_of(
    run: SimulatedRun, workload: Workload, cluster: Cluster, *, serial_seconds: Reals | None = None, label: str = ""
) -> Frames:
    """Makes all tables of a run.

    Args:
        run: of that workload on that cluster.
        workload: of the run.
        cluster: of the run.
        serial_seconds: by job, its work on one GPU; None: linear.
        label: for the column ``policy``; empty: the run's policy.
    """
    return _Maker(run, workload, cluster, judge(run, workload, cluster, serial_seconds), label or run.policy).frames()


class _Made(Mapping[str, pl.DataFrame]):
    """Tables by name, made on access."""

    def __init__(self, makers: Mapping[str, Callable[[], pl.DataFrame]]) -> None:
        self._makers = makers

    def __getitem__(self, table: str) -> pl.DataFrame:
        return self._makers[table]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)


class _Maker:
    def __init__(self, run: SimulatedRun, workload: Workload, cluster: Cluster, judged: Judged, label: str) -> None:
        self._run, self._workload, self._cluster, self._judged, self._label = run, workload, cluster, judged, label
        lone = judged.apps.jobs[workload.jobs.app] == 1
        self._apps = pl.Series("app", list(workload.apps.id), pl.String())
        self._app_of_job = self._apps.gather(workload.jobs.app)
        ids = pl.Series("job", list(workload.jobs.id), pl.String())
        self._jobs = self._app_of_job if lone.all() else ids.zip_with(pl.Series(~lone), self._app_of_job)

    def frames(self) -> Frames:
        run, workload = self._run, self._workload
        tables = {
            "jobs": lambda: self._frame("jobs", self._job_columns(), workload.size),
            "apps": lambda: self._frame("apps", self._app_columns(), len(workload.apps.id)),
            "users": lambda: self._frame("users", self._user_columns(), len(workload.users.id)),
            "rounds": lambda: self._frame("rounds", self._round_columns(), run.rounds.round.size),
            "leases": lambda: self._frame("leases", self._lease_columns(), run.leases.gpu.size),
            "waits": lambda: self._frame("waits", self._wait_columns(), run.waits.job.size),
            "queue": lambda: self._frame("queue", self._queue_columns(), run.queue.time_seconds.size),
            "segments": self._segments,
            "counts": lambda: self._frame("counts", self._count_columns(), 1),
            "timings": lambda: self._frame("timings", self._timing_columns(), len(run.timings)),
        }
        return Frames(tables=_Made(tables), records={name: self._record(name) for name in run.records})

    def _frame(self, table: str, columns: Columns, height: int) -> pl.DataFrame:
        return frame_of_columns(table, columns, policy=self._label, seed=self._run.seed, height=height)

    # -- jobs, apps, users

    def _job_columns(self) -> Columns:
        run, jobs, figures = self._run, self._workload.jobs, self._judged.jobs
        return {
            "app": self._app_of_job,
            "job": self._jobs,
            "user": self._users().gather(self._workload.apps.user).gather(jobs.app),
            "model": _named(self._workload.models, jobs.model),
            "state": _words(run.state),
            "slots_asked": jobs.most,
            "arrival_seconds": jobs.arrival_seconds,
            "start_seconds": run.start_seconds,
            "finish_seconds": run.finish_seconds,
            "jct_seconds": figures.jct_seconds,
            "wait_seconds": run.wait_seconds,
            "run_seconds": run.run_seconds,
            "ideal_seconds": np.where(np.isfinite(run.ideal_seconds), run.ideal_seconds, np.nan),
            "slot_seconds": run.slot_seconds,
            "iterations": np.rint(run.iterations_done),
            "iterations_lost": np.rint(run.iterations_lost),
            "restarts": run.restarts,
            "migrations": run.migrations,
            "rho": figures.rho,
            "rho_static": figures.rho_static,
            "rho_contention": figures.rho_contention,
            "rho_exclusive": figures.rho_exclusive,
            "exclusive_seconds": np.where(np.isfinite(run.exclusive_seconds), run.exclusive_seconds, np.nan),
            "busy_slot_seconds": figures.busy_slot_seconds,
            "placement_score": figures.placement_score,
        }

    def _app_columns(self) -> Columns:
        run, apps, figures = self._run, self._workload.apps, self._judged.apps
        tuners = {row: search.tuner for row, search in self._workload.searches.items()}
        return {
            "app": self._apps,
            "user": self._users().gather(apps.user),
            "tuner": [tuners.get(row, "none") for row in range(len(apps.id))] if tuners else ["none"] * len(apps.id),
            "weight": apps.weight,
            "state": _words(run.app_state),
            "jobs": figures.jobs,
            "arrival_seconds": apps.arrival_seconds,
            "finish_seconds": run.app_finish_seconds,
            "jct_seconds": figures.jct_seconds,
            "slot_seconds": figures.slot_seconds,
            "placement_score": figures.placement_score,
            "rho": figures.rho,
            "rho_static": figures.rho_static,
            "rho_contention": figures.rho_contention,
            "rho_exclusive": figures.rho_exclusive,
            "alone_seconds": figures.alone_seconds,
            "mean_apps": figures.mean_apps,
            "wait_seconds": figures.wait_seconds,
        }

    def _users(self) -> pl.Series:
        return pl.Series("user", list(self._workload.users.id), pl.String())

    def _user_columns(self) -> Columns:
        return {"user": self._users(), **user_columns(self._run, self._workload, self._judged)}

    # -- rounds, leases, waits

    def _round_columns(self) -> Columns:
        log = self._run.rounds
        touched = log.suspended + log.grown + log.shrunk + log.migrated
        return {
            "round": log.round,
            "time_seconds": log.time_seconds,
            "trigger": _words(log.causes),
            "free_slots": log.free_gpus,
            "busy_slots": self._cluster.gpus - log.free_gpus,
            "running_jobs": log.running_jobs,
            "waiting_jobs": log.waiting_jobs,
            "started": log.started,
            "kept": np.maximum(log.running_jobs - touched, 0),
            "grown": log.grown,
            "shrunk": log.shrunk,
            "migrated": log.migrated,
            "suspended": log.suspended,
            "fault": _or_null(log.fault),
        }

    def _lease_columns(self) -> Columns:
        log, cluster = self._run.leases, self._cluster
        names = pl.Series("machine", [machine.name for machine in cluster.machines], pl.String())
        machine = cluster.machine[log.gpu].astype(np.int64)
        apps = self._apps.gather(log.app)
        lone = self._jobs is self._app_of_job and bool((log.job >= 0).all())
        return {
            "app": apps,
            "job": apps if lone else _gathered(self._jobs, log.job),
            "machine": names.gather(machine),
            "slot": log.gpu - cluster.machine_start[machine],
            "epoch": log.lease,
            "start_seconds": log.start_seconds,
            "end_seconds": log.end_seconds,
            "ended_by": _or_null(log.ended_by),
        }

    def _wait_columns(self) -> Columns:
        log = self._run.waits
        return {
            "job": self._jobs.gather(log.job),
            "start_seconds": log.start_seconds,
            "end_seconds": log.end_seconds,
            "reason": _words(log.reason),
            "stage": _or_null(log.stage),
            "plugin": _or_null(log.plugin),
        }

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

    # -- activity, timings, records of plugins

    def _segments(self) -> pl.DataFrame:
        """The activity of each GPU, if the run kept its segments: leases, split by the activity of the job."""
        from eunomia_testbed.metrics.activity import segment_columns

        columns = segment_columns(self._run)
        job, gpu = np.asarray(columns.pop("job_row")), np.asarray(columns.pop("gpu"))
        machine = self._cluster.machine[gpu].astype(np.int64)
        names = pl.Series("machine", [each.name for each in self._cluster.machines], pl.String())
        named = {
            "job": self._jobs.gather(job),
            "app": self._app_of_job.gather(job),
            "slot": gpu - self._cluster.machine_start[machine],
            "machine": names.gather(machine),
        }
        return self._frame("segments", {**named, **columns}, gpu.size)

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
        """A plugin's tables, concatenated, each row with its round and time."""
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
    """A record's columns with the names of results: an auction's as in the demo, others as in the plugin."""
    known = COLUMNS if table == "auction" else {}
    return {known.get(name, name): column for name, column in columns.items()}


def _named(names: Sequence[str], rows: Ints) -> pl.Series:
    return _gathered(pl.Series("name", list(names), pl.String()), rows)


def _gathered(names: pl.Series, rows: Ints) -> pl.Series:
    """Names by row; null where the row is -1."""
    index = pl.Series("row", rows)
    return names.gather(index.set(index < 0, None))


def _words(texts: Any) -> pl.Series:
    """A column of texts with few distinct values, as categories."""
    return pl.Series("words", texts.tolist(), pl.String())


def _or_null(texts: Any) -> pl.Series:
    """The same, with null for empty texts."""
    series = _words(texts)
    return series.set(series == "", None)
