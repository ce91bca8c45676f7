"""Part 4, fairness: the distribution of ρ, ρ over time, and the worst-off apps with their longest reason."""

from __future__ import annotations

import polars as pl

from eunomia_testbed.report.part import Column, Json, Part, Table, rounded
from eunomia_testbed.report.thin import thin
from eunomia_testbed.report.waiting import waiting_by_app
from eunomia_testbed.results.run_data import RunData
from eunomia_testbed.results.summary import apps_or_jobs

MOST_POINTS, MOST_LINES, WORST = 300, 100, 10


def fairness(run: RunData) -> Part | None:
    """The part; None where no ρ is known."""
    final = apps_or_jobs(run).filter(pl.col("rho").is_not_null()).sort("rho", "app", descending=[True, False])
    lines = _lines(run, final)
    if final.is_empty() and not lines:
        return None
    return Part(
        name="fairness",
        title="Fairness",
        question="Who was treated unfairly, when, and why?",
        data={
            "final": [[app, rounded(rho)] for app, rho in final.select("app", "rho").iter_rows()],
            "lines": lines,
        },
        tables=[_worst(run, final.head(WORST))] if final.height else [],
    )


def _lines(run: RunData, final: pl.DataFrame) -> list[Json]:
    """Points (seconds, ρ, slots) by app; of very many apps only the worst."""
    names = run.rho["app"].unique().sort().to_list()
    if len(names) > MOST_LINES:
        names = final["app"].head(MOST_LINES).sort().to_list()
    return [{"app": app, "points": _points(run.rho.filter(pl.col("app") == app))} for app in names]


def _points(rows: pl.DataFrame) -> list[Json]:
    columns = rows.sort("time_seconds").select("time_seconds", "rho", "slots")
    points = [(rounded(time, 3), rounded(rho), slots) for time, rho, slots in columns.iter_rows()]
    return thin(points, at_most=MOST_POINTS)


def _worst(run: RunData, worst: pl.DataFrame) -> Table:
    waited = waiting_by_app(run)
    rows: list[list[Json]] = []
    for app, rho, jct in worst.select("app", "rho", "jct_seconds").iter_rows():
        why = waited.get(app)
        spent = [why.seconds, why.words, why.reason_seconds, why.plugin] if why else [None, None, None, None]
        rows.append([rounded(each) for each in [app, rho, jct, *spent]])
    return Table(
        title="Worst off, with the reason for which they waited longest",
        columns=[
            Column(label="app", kind="app"),
            Column(label="ρ", kind="number", digits=3),
            Column(label="JCT", kind="seconds", digits=1),
            Column(label="waited", kind="seconds", digits=1, hint="its jobs' waiting added up, own pauses left out"),
            Column(label="longest because"),
            Column(label="for", kind="seconds", digits=1),
            Column(label="says", kind="code", hint="the plugin that gave the reason"),
        ],
        rows=rows,
        app=0,
    )
