"""Makes the table of users: requested and received slot time, and waiting time."""

from __future__ import annotations

from typing import Final

import polars as pl

from eunomia_testbed.report.part import Column, Json, Table, kept_columns, rounded
from eunomia_testbed.report.sums import sums_by
from eunomia_testbed.report.view import View
from eunomia_testbed.report.words import count
from eunomia_testbed.results.run_data import RunData

MOST_USERS: Final = 300


COLUMNS: Final = {
    "user": Column(label="user"),
    "weight": Column(label="weight", kind="number", digits=2),
    "apps": Column(label="apps", kind="number"),
    "apps_finished": Column(label="finished", kind="number"),
    "jct_mean_seconds": Column(label="mean JCT", kind="seconds", digits=1),
    "jct_p99_seconds": Column(label="p99 JCT", kind="seconds", digits=1),
    "rho_worst": Column(label="worst ρ, this seed", kind="number", digits=2),
    "rho_static_worst": Column(label="worst static ρ, this seed", kind="number", digits=2),
    "wait_seconds": Column(label="waited", kind="seconds", digits=1, hint="all jobs together"),
    "slot_seconds": Column(label="slot time", kind="seconds", digits=1),
    "slot_share": Column(label="of all", kind="percent", hint="part of the slot time that all users had"),
}
"""Columns of the table ``users`` that are shown."""


def users_table(view: View) -> Table | None:
    """Return the users, from the run's own table or computed from apps and jobs; None: fewer than two users."""
    users = view.run.users if view.run.users.height else _counted(view.run)
    if users.height < 2:
        return None
    shown = users.sort("slot_seconds", "user", descending=[True, False], nulls_last=True).head(view.most(MOST_USERS))
    names = [name for name in COLUMNS if name in shown.columns]
    rows: list[list[Json]] = [[rounded(each) for each in row] for row in shown.select(names).iter_rows()]
    return kept_columns(Table(title=_title(users.height), columns=[COLUMNS[name] for name in names], rows=rows))


def _title(users: int) -> str:
    return f"Users, {count(users, 'user')}" if users <= MOST_USERS else f"Users, the largest of {users}"


def _counted(run: RunData) -> pl.DataFrame:
    owned = run.apps if run.apps.height else run.jobs
    judged = owned.filter(pl.col("user").is_not_null()).with_columns(
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
            pl.col("finished").cast(pl.Int64).alias("apps_finished"),
            pl.when(pl.col("timed") > 0).then(pl.col("jct_seconds") / pl.col("timed")).alias("jct_mean_seconds"),
            "rho_worst",
            "wait_seconds",
            "slot_seconds",
            (pl.col("slot_seconds") / max(float(sums["slot_seconds"].sum()), 1e-9)).alias("slot_share"),
        )
    )
