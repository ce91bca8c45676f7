"""Part 4, fairness: the distribution of ρ, ρ over time, and the worst-off apps with their main reason for waiting."""

from __future__ import annotations

from typing import Final

import polars as pl

from eunomia_testbed.report.company import lone_apps
from eunomia_testbed.report.curves import distribution
from eunomia_testbed.report.part import Column, Json, Part, Table, kept_columns, rounded
from eunomia_testbed.report.sums import highest, numbers
from eunomia_testbed.report.thin import thin
from eunomia_testbed.report.view import View
from eunomia_testbed.report.waiting import waiting_by_app
from eunomia_testbed.report.words import RHO_NAMES
from eunomia_testbed.results.counting import apps_or_jobs, rho_column
from eunomia_testbed.results.gpu_types import apps_by_type

MOST_POINTS, MOST_LINES, WORST, MOST_DOTS = 300, 100, 10, 400
KINDS = {"rho": "ρ", "rho_static": "static ρ", "rho_contention": "ρ by contention", "rho_exclusive": "exclusive ρ"}
"""Names of the kinds of ρ, by column; a run is judged by one of the kinds."""
ASKS: Final = {
    "themis": "the time alone on the whole cluster with linear speed-up, times the apps present over its life",
    "static": "the time alone, times all jobs of the trace per GPU",
    "contention": "the time alone, times the jobs per GPU over its life",
    "exclusive": "the time alone",
}
"""The denominator of each kind of ρ: the reference time by which a JCT is divided."""


def fairness(view: View) -> Part | None:
    """Make the page's part on fairness; None: no ρ is known."""
    run = view.run
    judged = apps_or_jobs(run)
    kind = rho_column(run)
    final = judged.with_columns(pl.col(kind).fill_nan(None).alias("rho"), pl.col("rho").alias("rho_themis"))
    final = final.filter(pl.col("rho").is_not_null())
    named = highest(final, "rho", MOST_DOTS if final.height <= MOST_DOTS else WORST)
    lines = _lines(view, highest(final, "rho", MOST_LINES))
    if final.is_empty() and not lines:
        return None
    return Part(
        name="fairness",
        title="Fairness",
        question="Who was treated unfairly, when, and why?",
        data={
            "count": final.height,
            "kind": KINDS[kind],
            "above": final.filter(pl.col("rho") > 1.0).height,
            "final": [[app, rounded(rho)] for app, rho in named.select("app", "rho").iter_rows()],
            "distribution": distribution(numbers(final["rho"])),
            "lines": lines,
        },
        tables=[*_by_kind(view), _worst(view, named.head(WORST), kind)] if final.height else [],
    )


def _by_kind(view: View) -> list[Table]:
    """Return a table of all known kinds of ρ with the reference time of each; empty: fewer than two are known."""
    rows: list[list[Json]] = []
    for kind, asks in ASKS.items():
        found = [view.summary.rho_by_kind.get(f"rho_{kind}_{way}") for way in ("p90", "p99", "worst", "above_1_share")]
        if any(each is not None for each in found):
            rows.append([RHO_NAMES[kind], *map(rounded, found), asks])
    columns = [
        Column(label="kind"),
        Column(label="90th percentile", kind="number", digits=2),
        Column(label="99th percentile", kind="number", digits=2),
        Column(label="worst", kind="number", digits=2),
        Column(label="apps above 1", kind="percent"),
        Column(label="is the JCT over"),
    ]
    return [Table(title="By kind of ρ, this run", columns=columns, rows=rows)] if len(rows) > 1 else []


def _lines(view: View, final: pl.DataFrame) -> list[Json]:
    """Return points (seconds, ρ, slots) by app; with too many apps, only of those with the worst ρ."""
    rho, most = view.run.rho, view.most(MOST_LINES)
    if rho["app"].n_unique() > most:
        rho = rho.filter(pl.col("app").is_in(final["app"].head(most).to_list()))
    ordered = rho.sort("app", "time_seconds", maintain_order=True).select("app", "time_seconds", "rho", "slots")
    by_app = ordered.partition_by("app", maintain_order=True, include_key=True)
    return [{"app": rows["app"][0], "points": _points(rows.drop("app"), view.most(MOST_POINTS))} for rows in by_app]


def _points(rows: pl.DataFrame, most: int) -> list[Json]:
    points = [(rounded(time, 3), rounded(rho), slots) for time, rho, slots in rows.iter_rows()]
    return thin(points, at_most=most)


def _worst(view: View, worst: pl.DataFrame, kind: str) -> Table:
    others = {("rho_themis" if name == "rho" else name): label for name, label in KINDS.items() if name != kind}
    others = {name: "Themis' ρ" if name == "rho_themis" else label for name, label in others.items()}
    waited = waiting_by_app(view.waits, worst["app"].to_list(), lone=lone_apps(view.run))
    named = view.run.jobs.filter(pl.col("app").is_in(worst["app"].to_list()))
    sizes = dict(named.group_by("app").agg(pl.col("slots_asked").max()).iter_rows())
    several = apps_or_jobs(view.run)["user"].n_unique() > 1
    on_types = {each.app: each for each in apps_by_type(view.run) or ()}
    rows: list[list[Json]] = []
    for row in worst.iter_rows(named=True):
        why, ran = waited.get(row["app"]), on_types.get(row["app"])
        spent = [why.seconds, why.words, why.reason_seconds, why.plugin] if why else [None, None, None, None]
        facts = [row["app"], row["rho"], sizes.get(row["app"]), row["jct_seconds"], *spent]
        facts += [None if ran is None else ran.lost_seconds]
        facts += [row["user"] if several else None, *(row.get(name) for name in others)]
        rows.append([rounded(each) for each in facts])
    columns = [
        Column(label="app", kind="app"),
        Column(label=KINDS[kind], kind="number", digits=3, hint="what this run is judged by"),
        Column(label="slots asked", kind="number", hint="the largest gang of its jobs"),
        Column(label="JCT", kind="seconds", digits=1),
        Column(label="waited", kind="seconds", digits=1, hint="its jobs' waiting added up, own pauses left out"),
        Column(label="longest because"),
        Column(label="for", kind="seconds", digits=1),
        Column(label="says", kind="code", hint="the plugin that gave the reason"),
        Column(label="lost to its GPU types", kind="seconds", digits=1, hint="of its run time; below 0: saved"),
        Column(label="user"),
        *(Column(label=label, kind="number", digits=3) for label in others.values()),
    ]
    title = "Worst off, with the reason for which they waited longest"
    return kept_columns(Table(title=title, columns=columns, rows=rows, app=0))
