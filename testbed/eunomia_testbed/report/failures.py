"""Lists failed trials with their last errors."""

from __future__ import annotations

import polars as pl

from eunomia_testbed.report.part import Column, Part, Table
from eunomia_testbed.report.searches import params_in_words
from eunomia_testbed.report.view import View

MOST_FAILURES = 500
MOST_APPS = 6
"""Largest number of apps named above the table."""


def failures(view: View) -> Part | None:
    """Make the page's part on failed trials; None: no trial failed."""
    trials = view.run.trials
    failed = trials.filter(pl.col("state") == "failed")
    if not failed.height:
        return None
    counted = trials.group_by("app").agg(pl.len().alias("all"), (pl.col("state") == "failed").sum().alias("failed"))
    apps = counted.filter(pl.col("failed") > 0).sort("app").select("app", "failed", "all").rows()
    said = [f"{app}: {of} of {every} trials failed" for app, of, every in apps[:MOST_APPS]]
    more = [f"and in {len(apps) - MOST_APPS} more apps"] if len(apps) > MOST_APPS else []
    shown = failed.head(view.most(MOST_FAILURES)).select("app", "job", "params", "iterations", "error").iter_rows()
    return Part(
        name="failures",
        title="Failed trials",
        question="; ".join([*said, *more]),
        tables=[
            Table(
                title=f"Failed trials, {failed.height}",
                columns=[
                    Column(label="app", kind="app"),
                    Column(label="trial", kind="code"),
                    Column(label="parameters", kind="code"),
                    Column(label="iterations", kind="number"),
                    Column(label="last error", kind="code", hint="whole: apps/APP/NUMBER/output/ of the run"),
                ],
                rows=[[app, job, params_in_words(params), done, error] for app, job, params, done, error in shown],
                app=0,
            )
        ],
    )
