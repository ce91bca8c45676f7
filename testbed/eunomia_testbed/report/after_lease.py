"""Makes the tooltips of bars: how a lease ended, and why its job waited afterwards."""

from __future__ import annotations

import dataclasses
from typing import Final

import polars as pl

from eunomia_testbed.report.company import lone_apps
from eunomia_testbed.report.words import duration, reason_in_words
from eunomia_testbed.results.run_data import RunData

SLACK: Final = 1e-6
SLOT: Final = ["machine", "slot"]
REASONS_TOLD: Final = 2


def notes(run: RunData, bars: pl.DataFrame, *, waits: bool) -> tuple[list[str], pl.Series]:
    """Return the distinct texts of all tooltips, and for each bar the index of its text.

    An example is ``lease expired at 41.2 s; then waited 6.1 s because ...``; a text is empty if nothing is known.

    Args:
        run: the run with its leases and waits.
        bars: table with ``machine, slot, job, end_seconds``.
        waits: whether texts include the wait after the lease.
    """
    ends = _lease_ends(run, bars)
    after = _waits_after(run if waits else dataclasses.replace(run, waits=run.waits.clear()), ends)
    joined = ends.join(after, on=["job", "lease_end"], how="left", maintain_order="left")
    lone = run.leases.filter(pl.col("app").is_in(list(lone_apps(run))))["job"].drop_nulls().unique()
    joined = joined.with_columns(
        pl.col("lease_end").fill_null(-1.0),
        pl.col("ended_by").fill_null(""),
        pl.col("job").is_in(lone.to_list()).fill_null(False).alias("alone"),
    )
    key = ["lease_end", "ended_by", "reasons", "plugins", "seconds", "alone"]
    distinct = joined.select(key).unique(maintain_order=True).with_row_index("note")
    numbers = joined.join(distinct, on=key, how="left", maintain_order="left", nulls_equal=True)["note"]
    numbered: dict[str, int] = {}
    place = [numbered.setdefault(_text(*row), len(numbered)) for row in distinct.select(key).iter_rows()]
    return list(numbered), pl.Series("note", place, dtype=pl.Int64).gather(numbers)


def _lease_ends(run: RunData, bars: pl.DataFrame) -> pl.DataFrame:
    """Return for each bar its job and its lease's end; its lease is the first one that covers the end of the bar."""
    leases = run.leases.select(
        *SLOT, pl.col("start_seconds").alias("lease_start"), pl.col("end_seconds").alias("lease_end"), "ended_by"
    ).drop_nulls("lease_end")
    asked = bars.select(*SLOT, "job", pl.col("end_seconds").alias("bar_end")).with_row_index("bar")
    found = asked.with_columns((pl.col("bar_end") - SLACK).alias("from")).sort("from").join_asof(
        leases.with_columns(pl.col("lease_end").alias("until")).sort("until", maintain_order=True),
        left_on="from", right_on="until", by=SLOT, strategy="forward", check_sortedness=False,
    ).sort("bar")  # fmt: skip
    began = pl.col("lease_start") <= pl.col("bar_end")
    return found.select(
        "job", pl.when(began).then("lease_end").alias("lease_end"), pl.when(began).then("ended_by").alias("ended_by")
    )


def _waits_after(run: RunData, ends: pl.DataFrame) -> pl.DataFrame:
    """Return by job and end of lease the reasons for the wait until the job's next lease, the longest wait first."""
    after = ends.select("job", "lease_end").drop_nulls().unique(maintain_order=True).sort("lease_end")
    starts = run.leases.drop_nulls("job").select("job", pl.col("start_seconds").alias("next")).sort("next")
    spans = (
        after.with_columns((pl.col("lease_end") - SLACK).alias("from"))
        .join_asof(starts, left_on="from", right_on="next", by="job", strategy="forward", check_sortedness=False)
        .with_columns(pl.col("next").fill_null(float("inf")))
    )
    waits = run.waits.drop_nulls("end_seconds").with_columns((pl.col("start_seconds") + SLACK).alias("at"))
    owned = waits.sort("at", maintain_order=True).join_asof(
        spans.sort("lease_end"), left_on="at", right_on="lease_end", by="job", strategy="backward",
        check_sortedness=False,
    ).drop_nulls("lease_end")  # fmt: skip
    overlap = pl.min_horizontal("end_seconds", "next") - pl.max_horizontal("start_seconds", "lease_end")
    spent = owned.with_columns(overlap.alias("seconds")).filter(pl.col("seconds") > SLACK)
    keys = ["job", "lease_end", "reason", "plugin"]
    by_reason = spent.sort(*keys, "start_seconds").group_by(keys, maintain_order=True).agg(pl.col("seconds").sum())
    ordered = by_reason.sort("job", "lease_end", "seconds", descending=[False, False, True], maintain_order=True)
    return ordered.group_by("job", "lease_end", maintain_order=True).agg(
        pl.col("reason").head(REASONS_TOLD).alias("reasons"),
        pl.col("plugin").fill_null("").head(REASONS_TOLD).alias("plugins"),
        pl.col("seconds").head(REASONS_TOLD).round(3),
    )


def _text(end: float, ended_by: str, reasons: list[str], plugins: list[str], seconds: list[float], alone: bool) -> str:
    if end < 0:
        return ""
    said = [f"lease {ended_by or 'ended'} at {duration(end)}"]
    for reason, plugin, spent in zip(reasons or [], plugins or [], seconds or [], strict=True):
        says = f" (says {plugin})" if plugin else ""
        said.append(f"then waited {duration(spent)} because {reason_in_words(reason, alone=alone)}{says}")
    return "; ".join(said)
