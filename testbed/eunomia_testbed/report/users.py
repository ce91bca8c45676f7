"""The users' table: what each asked for, got, and waited for."""

from __future__ import annotations

from typing import Final

import polars as pl

from eunomia_testbed.report.part import Column, Json, Table, kept_columns, rounded, table_of
from eunomia_testbed.report.sums import sums_by
from eunomia_testbed.report.view import View
from eunomia_testbed.report.words import count
from eunomia_testbed.results.run_data import RunData

MOST_USERS: Final = 300


def users_table(view: View) -> Table | None:
    """As the run's own table tells; where it left none, counted from apps and jobs. None for fewer than two users."""
    told = view.run.users
    if told.height > 1:
        shown = told.sort("slot_seconds", "user", descending=[True, False], nulls_last=True)
        return table_of(shown.head(view.most(MOST_USERS)), _title(told.height))
    counted = _counted(view.run)
    if counted.height < 2:
        return None
    total = float(counted["slot_seconds"].sum()) or 1.0
    shown = counted.with_columns((pl.col("slot_seconds") / total).alias("part"))
    shown = shown.sort("slot_seconds", "user", descending=[True, False]).head(view.most(MOST_USERS))
    names = ["user", "apps", "finished", "jct", "rho_worst", "wait_seconds", "slot_seconds", "part"]
    rows: list[list[Json]] = [[rounded(each) for each in row] for row in shown.select(names).iter_rows()]
    columns = [
        Column(label="user"),
        Column(label="apps", kind="number"),
        Column(label="finished", kind="number"),
        Column(label="mean JCT", kind="seconds", digits=1),
        Column(label="worst ρ", kind="number", digits=2),
        Column(label="waited", kind="seconds", digits=1, hint="of all jobs together"),
        Column(label="slot time", kind="seconds", digits=1),
        Column(label="of all", kind="percent", hint="part of the slot time that all users had"),
    ]
    return kept_columns(Table(title=_title(counted.height), columns=columns, rows=rows))


def _title(users: int) -> str:
    return f"Users, {count(users, 'user')}" if users <= MOST_USERS else f"Users, the largest of {users}"


def _counted(run: RunData) -> pl.DataFrame:
    whose = run.apps if run.apps.height else run.jobs
    judged = whose.filter(pl.col("user").is_not_null()).with_columns(
        (pl.col("state") == "finished").cast(pl.Float64).alias("finished"),
        pl.col("jct_seconds").is_not_null().cast(pl.Float64).alias("timed"),
    )
    sums = sums_by(judged, ["user"], "finished", "timed", "jct_seconds", "slot_seconds")
    worst = judged.group_by("user").agg(pl.col("rho").max().alias("rho_worst"))
    waited = sums_by(run.jobs.filter(pl.col("user").is_not_null()), ["user"], "wait_seconds").drop("len")
    return (
        sums.join(worst, on="user", how="left", maintain_order="left")
        .join(waited, on="user", how="left", maintain_order="left")
        .select(
            "user",
            pl.col("len").alias("apps"),
            pl.col("finished").cast(pl.Int64),
            pl.when(pl.col("timed") > 0).then(pl.col("jct_seconds") / pl.col("timed")).alias("jct"),
            "rho_worst",
            "wait_seconds",
            "slot_seconds",
        )
    )
