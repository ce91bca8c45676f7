"""Part 6, cluster and queue: use of the cluster, overheads of sharing, and reasons for waiting."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Final

import polars as pl

from eunomia_testbed.report.company import lone_apps
from eunomia_testbed.report.curves import counted, series, steps
from eunomia_testbed.report.part import Column, Json, Part, Table, rounded
from eunomia_testbed.report.sums import numbers, sums_by
from eunomia_testbed.report.users import users_table
from eunomia_testbed.report.view import View
from eunomia_testbed.report.words import reason_in_words
from eunomia_testbed.results.run_data import RunData

MOST_ROWS: Final = 300
MOST_BARS: Final = 8
LINES: Final = (
    ("busy_gpus", "Slots in use", ""),
    ("waiting_jobs", "Jobs that wait", ""),
    ("waiting_gpus", "Slots that waiting jobs ask for", ""),
    ("contention", "Contention", "jobs that are there, waiting or running, per slot"),
    ("efficiency", "Cluster efficiency", "throughput of all running jobs in units of a job on one slot, by slot (AFS)"),
    ("blocking_index", "Blocking index", "time waited over time left, on average over waiting jobs (AFS)"),
)
"""Columns of the table ``queue`` with their titles, in the order of the charts."""


def cluster(view: View, until: float) -> Part | None:
    """Make the page's part on cluster and queue; None: there are no data on either.

    Args:
        view: the run.
        until: end of the page's time axes, in seconds.
    """
    lines = _lines(view.run, until)
    waits = sums_by(view.waits, ["reason", "plugin", "user", "app"], "seconds", ordered=False)
    spent = _slot_time(view)
    table = users_table(view)
    if not lines and waits.is_empty() and spent is None and table is None:
        return None
    words = _words(waits, lone_apps(view.run))
    tables = [_reasons(waits, view.most(MOST_ROWS), words)] if waits.height else []
    return Part(
        name="cluster",
        title="Cluster and queue",
        question="Is it full, what does sharing cost, what would shorten the queue?",
        data={
            "slots": view.summary.slots,
            "lines": lines,
            "slotTime": spent,
            "waiting": {
                name: _waited(waits, name, words if name == "reason" else {}) for name in ("reason", "plugin", "user")
            },
        },
        tables=[*tables, *([table] if table is not None else [])],
    )


def _lines(run: RunData, until: float) -> list[Json]:
    """Return the lines over time from the logged queue, or otherwise from leases and waits."""
    found: dict[str, Json] = {name: series(run.queue, "time_seconds", name, until) for name, _, _ in LINES}
    if found.get("busy_gpus") is None and run.leases.height:
        found["busy_gpus"] = _counted(run.leases, until)
    if found.get("waiting_jobs") is None and run.waits.height:
        found["waiting_jobs"] = _counted(run.waits.filter(pl.col("reason") != "paused_by_app"), until)
    return [
        {"name": name, "title": title, "hint": hint, **found[name]}
        for name, title, hint in LINES
        if found.get(name) is not None
    ]


def _counted(spans: pl.DataFrame, until: float) -> Json:
    """Return the number of ``spans`` that are open, over time up to ``until`` seconds, as ``steps`` does."""
    moments, levels = counted(numbers(spans["start_seconds"]), numbers(spans["end_seconds"]))
    return steps(moments, levels, until) if len(moments) else None


def _slot_time(view: View) -> Json:
    """Return the fractions of slot time until the last finish: useful, overheads, held but idle, free.

    None: unknown.
    """
    summary = view.summary
    used = summary.slots_in_use_share
    if used is None:
        return None
    if summary.run_share is None:
        return {"held": rounded(used), "free": rounded(1.0 - used)}
    if summary.start_share is None:
        useful = summary.run_share * used
        return {"useful": rounded(useful), "idle": rounded(used - useful), "free": rounded(max(1.0 - used, 0.0))}
    named = {
        "useful": summary.run_share,
        "start": summary.start_share,
        "save": summary.save_share,
        "restore": summary.restore_share,
        "idle": summary.idle_share,
    }
    parts = {name: rounded((share or 0.0) * used) for name, share in named.items()}
    return {**parts, "free": rounded(max(1.0 - used, 0.0))}


def _words(waits: pl.DataFrame, lone: Set[str]) -> dict[str, str]:
    """Return the clause that explains each reason; ``lone``: the apps that were alone in the cluster."""
    others = set(waits.filter(~pl.col("app").is_in(list(lone)))["reason"].unique())
    return {reason: reason_in_words(reason, alone=reason not in others) for reason in waits["reason"].unique()}


def _waited(waits: pl.DataFrame, key: str, words: Mapping[str, str]) -> list[Json]:
    """Return name, clause and job-hours waited by each value of ``key``, longest first; a last row may sum the rest."""
    known = waits.filter(pl.col(key).is_not_null())
    by_key = sums_by(known, [key], "seconds").sort("seconds", key, descending=[True, False])
    rows: list[Json] = [
        [name, words.get(name, name), rounded(seconds / 3600, 5)]
        for name, seconds in by_key.head(MOST_BARS).select(key, "seconds").iter_rows()
    ]
    rest = by_key[MOST_BARS:]
    if rest.height:
        rows.append([f"{rest.height} others", f"{rest.height} others", rounded(sum(rest["seconds"]) / 3600, 5)])
    return rows


def _reasons(waits: pl.DataFrame, most: int, words: Mapping[str, str]) -> Table:
    """Return a row for each reason, plugin and user: job-hours, and the job that waited longest."""
    keys = ["reason", "plugin", "user"]
    longest = waits.filter(pl.col("seconds") == pl.col("seconds").max().over(keys))
    longest = longest.group_by(keys).agg(pl.col("app").min())
    total = sums_by(waits, keys, "seconds").rename({"len": "apps"})
    shown = total.join(longest, on=keys, how="left", nulls_equal=True, maintain_order="left")
    shown = shown.sort("seconds", *keys, descending=[True, False, False, False], nulls_last=True).head(most)
    everything = float(total["seconds"].sum()) or 1.0
    rows: list[list[Json]] = [
        [
            reason,
            words[reason],
            plugin,
            user,
            rounded(seconds / 3600),
            rounded(seconds / everything),
            apps,
            app,
        ]
        for reason, plugin, user, seconds, apps, app in shown.select(*keys, "seconds", "apps", "app").iter_rows()
    ]
    return Table(
        title="Waiting by reason, plugin and user",
        columns=[
            Column(label="reason", kind="code"),
            Column(label="because"),
            Column(label="says", kind="code", hint="the plugin that gave the reason"),
            Column(label="user"),
            Column(label="hours", kind="number", digits=2, hint="of all jobs together, own pauses left out"),
            Column(label="of all waiting", kind="percent"),
            Column(label="apps", kind="number"),
            Column(label="longest", kind="app"),
        ],
        rows=rows,
        folded=True,
    )  # fmt: skip
