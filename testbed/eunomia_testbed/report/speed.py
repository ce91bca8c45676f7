"""Part 5, speed: the distribution of JCT, and waiting and running times by gang size."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from eunomia_testbed.report.curves import distribution
from eunomia_testbed.report.part import Column, Json, Part, Table, rounded
from eunomia_testbed.report.sums import numbers, sums_by
from eunomia_testbed.report.view import View
from eunomia_testbed.results.summary import apps_or_jobs

MOST_NAMED: Final = 400
MOST_SIZES: Final = 8
"""Largest number of gang sizes that are shown separately; with more, sizes are grouped by powers of two."""


def speed(view: View) -> Part | None:
    """Make the page's part on speed; None: no JCT is known."""
    judged = apps_or_jobs(view.run).filter(pl.col("jct_seconds").is_not_null() & pl.col("jct_seconds").is_not_nan())
    if judged.is_empty():
        return None
    ordered = judged.sort("jct_seconds", "app") if judged.height <= MOST_NAMED else judged
    sizes = by_size(view.run.jobs)
    return Part(
        name="speed",
        title="Speed",
        question="Who waits: small jobs, large gangs, everyone?",
        data={
            "count": judged.height,
            "unit": "app" if view.run.apps.height else "job",
            "distribution": distribution(numbers(ordered["jct_seconds"])),
            "named": [[app, rounded(jct, 2)] for app, jct in ordered.select("app", "jct_seconds").iter_rows()]
            if judged.height <= MOST_NAMED
            else [],
            "sizes": [
                {"label": label, "jobs": jobs, "wait": rounded(wait, 2), "run": rounded(run, 2)}
                for label, jobs, wait, run in sizes.select("label", "len", "wait", "run").iter_rows()
            ],
        },
        tables=[_size_table(sizes)] if sizes.height else [],
    )  # fmt: skip


def by_size(jobs: pl.DataFrame) -> pl.DataFrame:
    """Return, by gang size over finished jobs: count, mean wait and run time, mean, median and p95 of JCT, in seconds.

    A job's run time is the time from arrival to finish in which it did not wait; it includes restarts.
    """
    jct, wait = pl.col("jct_seconds"), pl.col("wait_seconds")
    since = pl.col("start_seconds") - pl.col("arrival_seconds")
    known = jobs.filter(jct.is_not_null() & jct.is_not_nan() & pl.col("slots_asked").is_not_null())
    timed = known.select(
        "slots_asked", jct.alias("jct"), pl.coalesce(wait.fill_nan(None), since, pl.lit(0.0)).alias("wait")
    ).with_columns((pl.col("jct") - pl.col("wait")).clip(lower_bound=0.0).alias("run"))
    classes = _classes(timed)
    sums = sums_by(classes, ["size", "label"], "wait", "run", "jct")
    spread = classes.group_by("size").agg(
        pl.col("jct").quantile(0.5, "linear").alias("median"), pl.col("jct").quantile(0.95, "linear").alias("p95")
    )
    means = sums.with_columns(pl.col("wait", "run", "jct") / pl.col("len"))
    return means.join(spread, on="size", how="left", maintain_order="left").sort("size")


def _classes(timed: pl.DataFrame) -> pl.DataFrame:
    """Add the columns ``size``, the smallest of the class, and ``label``, such as ``4`` or ``5 to 8``."""
    sizes = timed["slots_asked"].unique().sort()
    if sizes.len() <= MOST_SIZES:
        return timed.with_columns(size=pl.col("slots_asked"), label=pl.col("slots_asked").cast(pl.String))
    power = np.ceil(np.log2(np.maximum(timed["slots_asked"].to_numpy(), 1))).astype(np.int64)
    least, most = np.where(power > 0, 2 ** np.maximum(power - 1, 0) + 1, 1), 2**power
    frame = timed.with_columns(pl.Series("size", least), pl.Series("most", most))
    single = pl.col("size") == pl.col("most")
    label = pl.when(single).then(pl.format("{}", "size")).otherwise(pl.format("{} to {}", "size", "most"))
    return frame.with_columns(label.alias("label"))


def _size_table(sizes: pl.DataFrame) -> Table:
    shown = sizes.select(
        "label", "len", "wait", "run", "jct", "median", "p95", (pl.col("wait") / pl.col("jct")).alias("part")
    )
    rows: list[list[Json]] = [[rounded(each) for each in row] for row in shown.iter_rows()]
    return Table(
        title="Finished jobs by gang size",
        columns=[
            Column(label="slots asked", kind="text"),
            Column(label="jobs", kind="number"),
            Column(label="mean wait", kind="seconds", digits=1),
            Column(label="mean run", kind="seconds", digits=1, hint="time in the cluster without waiting"),
            Column(label="mean JCT", kind="seconds", digits=1),
            Column(label="median JCT", kind="seconds", digits=1),
            Column(label="p95 JCT", kind="seconds", digits=1),
            Column(label="waiting of JCT", kind="percent"),
        ],
        rows=rows,
        folded=True,
    )
