"""Alibaba's trace of 2020 (PAI): ``pai_task_table.csv``, with one row per task; the tasks of a job form a gang.

Source: ``cluster-trace-gpu-v2020`` of ``alibaba/clusterdata`` (Weng et al., NSDI'22). The file has no header; column
names are in ``pai_task_table.header``. Users and submission times are read from ``pai_job_table.csv`` in the same
folder.
"""

import re
from typing import ClassVar, Final

import numpy as np
import polars as pl

from eunomia.units import Reals
from eunomia_testbed.traces.building import Jobs, build
from eunomia_testbed.traces.options import ReadOptions
from eunomia_testbed.traces.rows import MOST_SECONDS, Rows
from eunomia_testbed.traces.source import TraceSource
from eunomia_testbed.traces.tables import read_table, resembles
from eunomia_testbed.workload import Workload

TASKS: Final = (
    *("job_name", "task_name", "inst_num", "status", "start_time", "end_time"),
    *("plan_cpu", "plan_mem", "plan_gpu", "gpu_type"),
)
JOBS: Final = ("job_name", "inst_id", "user", "status", "start_time", "end_time")
UNNAMED: Final = ("", "MISC", None)
"""Values of ``gpu_type`` that name no type; MISC stands for several older types."""
MOST_PLAN: Final = 1e8
_STATUS: Final = "(?:Terminated|Failed|Running|Waiting)"
_LINE: Final = re.compile(rf"[0-9a-f]+,\w+,[\d.]*,{_STATUS},[\d.]*,[\d.]*,[\d.]*,[\d.]*,[\d.]*,\w*\s*")


class PaiReader:
    """A reader of PAI: the fractional GPUs of a job's tasks are summed and rounded up to a gang.

    The GPU type on which a job's tasks ran is the type of its times, not a requirement.
    """

    format: ClassVar[str] = "pai"

    def matches(self, name: str, head: str) -> bool:
        """Return whether the first line has PAI's column names, or is a line of a PAI task."""
        return resembles(head, TASKS) or _LINE.fullmatch(head.split("\n", 1)[0]) is not None

    def read(self, source: TraceSource, options: ReadOptions) -> Workload:
        """Read the jobs of a PAI trace; errors and options are those of ``TraceReader.read``."""
        tasks = _tasks(source)
        rows = _jobs(tasks)
        users, submitted = _submissions(source, rows)
        columns = {name: _reals(rows, name) for name in ("gpus", "cpus", "memory", "started", "ended")}
        arrivals = np.where(np.isfinite(submitted), submitted, columns["started"])
        rows.one_unit("start_time", arrivals)
        gang = np.maximum(np.ceil(columns["gpus"] - 1e-9), 1.0)
        rows.refuse(columns["gpus"] <= 0.0, "a job's tasks must ask for GPUs", lambda row: "plan_gpu of 0 in all")
        ran = columns["ended"] - columns["started"]
        rows.bounds("end_time - start_time", ran, kind="a number of seconds", above=0.0, most=MOST_SECONDS)
        jobs = Jobs(
            ids=rows.text("job_name"),
            arrival_seconds=arrivals,
            gpus=gang.astype(np.int64),
            iterations=ran,
            seconds_per_iteration=np.ones(rows.size),
            users=users,
            cpus_per_gpu=columns["cpus"] / gang,
            memory_gib_per_gpu=columns["memory"] / gang,
            gpu_share=np.where(rows.good, columns["gpus"] / gang, 1.0),
            measured_on=_ran_on(rows),
        )
        return build(rows, jobs, options, source="PAI", absolute=True)


def _tasks(source: TraceSource) -> Rows:
    """Return the tasks with valid numbers; tasks that never ran are dropped."""
    names = None if resembles(source.head, TASKS) else TASKS
    rows = Rows.of(read_table(source, required=TASKS, names=names, format_name="pai"))
    rows.text("job_name")
    count = rows.numbers("inst_num", above=0.0, most=1e6)
    gpus = np.nan_to_num(rows.numbers("plan_gpu", least=0.0, most=MOST_PLAN, optional=True))
    cpus = np.nan_to_num(rows.numbers("plan_cpu", least=0.0, most=MOST_PLAN, optional=True))
    memory = np.nan_to_num(rows.numbers("plan_mem", least=0.0, most=MOST_PLAN, optional=True))
    started = rows.arrivals("start_time")
    ended = rows.numbers("end_time", kind="a number of seconds", least=0.0)
    count = np.where(rows.good, count, 0.0)  # the values of dropped rows are arbitrary
    gpus, cpus, memory = (np.where(rows.good, column, 0.0) for column in (gpus, cpus, memory))
    if rows.frame is not None:
        rows.frame = rows.frame.select("job_name", "gpu_type").with_columns(
            line=rows.lines,
            gpus=count * gpus / 100.0,
            cpus=count * cpus / 100.0,
            memory=count * memory,
            started=started,
            ended=ended,
        )
    return rows


def _jobs(tasks: Rows) -> Rows:
    if tasks.frame is None:
        raise LookupError("tasks")
    good = tasks.frame.filter(pl.Series(tasks.good))
    jobs = good.group_by("job_name", maintain_order=True).agg(
        pl.col("line").min(),
        pl.col("gpus", "cpus", "memory").sum(),
        pl.col("started").min(),
        pl.col("ended").max(),
        types=pl.col("gpu_type").filter(pl.col("gpus") > 0.0).str.strip_chars().unique().sort(),
    )
    rows = Rows(tasks.file, jobs["line"].to_numpy(), jobs, tasks.dropped)
    rows.notes += tasks.notes
    return rows


def _submissions(source: TraceSource, rows: Rows) -> tuple[list[str] | None, Reals]:
    """Return users and submission times from the job table in the same folder; None and NaN if there is none."""
    beside = source.beside("pai_job_table.csv")
    if beside is None or rows.frame is None:
        rows.note("no pai_job_table.csv next to it: one user, and a job arrives when its first task started")
        return None, np.full(rows.size, np.nan)
    names = None if resembles(beside.head, JOBS) else JOBS
    table = read_table(beside, required=JOBS, names=names, format_name="pai").frame
    submitted = table.select(
        pl.col("job_name").str.strip_chars(),
        pl.col("user").str.strip_chars(),
        submitted=pl.col("start_time").str.strip_chars().cast(pl.Float64, strict=False),
    ).unique("job_name", keep="first", maintain_order=True)
    joined = rows.frame.select("job_name").join(submitted, on="job_name", how="left", maintain_order="left")
    users = joined["user"].replace("", None).fill_null("unknown").to_list()
    return users, joined["submitted"].fill_null(np.nan).to_numpy()


def _ran_on(rows: Rows) -> list[str | None]:
    """Return for each job the GPU type on which all its tasks ran; None: there were several types, or no named one."""
    if rows.frame is None:
        raise LookupError("gpu_type")
    return [
        found[0] if len(found) == 1 and found[0] not in UNNAMED else None for found in rows.frame["types"].to_list()
    ]


def _reals(rows: Rows, name: str) -> Reals:
    if rows.frame is None:
        raise LookupError(name)
    return rows.frame[name].to_numpy()
