"""Part 3, holders of slots: a row for each slot with leases and activity, or a heat map for large clusters."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from eunomia.contract.decisions import CHANGED, COUNTED
from eunomia_testbed.report.after_lease import notes
from eunomia_testbed.report.groups import Groups
from eunomia_testbed.report.heat import heat_map, levels_of, used_by_bucket
from eunomia_testbed.report.part import Json, Part, Table, rounded, table_of
from eunomia_testbed.report.sums import numbers
from eunomia_testbed.report.view import View
from eunomia_testbed.report.words import count
from eunomia_testbed.results.run_data import RunData
from eunomia_testbed.results.slots import SLOT, slots_of

MOST_ROWS, MOST_EVENTS, MOST_ROUNDS = 64, 2_000, 2_000
"""Limits on rows, events and rounds, beyond which a Gantt chart is neither readable nor small."""
OCCUPANCY_COLUMNS = 1_000
"""Number of time buckets in which leases without a bar of their own are summed."""
MOST_BARS, MOST_BARS_OF_ONE, MOST_BARS_WITH_WAITS = 48_000, 12_000, 3_000
"""Largest number of bars on the page, of one run, and of one run with notes on waits."""


def who_held_what(view: View, until: float, groups: Groups) -> Part | None:
    """Make the page's part on holders of slots; None: no slot was leased.

    Args:
        view: the run.
        until: end of the page's time axes, in seconds.
        groups: groups of jobs for colours.
    """
    run = view.run
    slots = pl.concat([slots_of(run.leases), slots_of(run.segments)]).unique().sort(SLOT)
    if slots.is_empty():
        return None
    heat = slots.height > MOST_ROWS and run.leases.height > 0
    events = run.events.sort("time_seconds", maintain_order=True).head(view.most(MOST_EVENTS))
    title = f"What happened, {count(run.events.height, 'event')}"
    tables: list[Table] = [table_of(events, title, folded=True)] if events.height else []
    return Part(
        name="held",
        title="Who held what",
        question="Who ran when, what was interrupted, what stood idle?",
        data={"heat": heat_map(view, until, groups)} if heat else _gantt(view, slots.head(MOST_ROWS), until, groups),
        tables=tables,
    )


def _gantt(view: View, slots: pl.DataFrame, until: float, groups: Groups) -> Json:
    run = view.run
    bars, small, drawn = _bars(run, min(view.most(MOST_BARS), MOST_BARS_OF_ONE))
    placed = bars.join(slots.with_row_index("row"), on=SLOT, how="inner", maintain_order="left")
    texts, numbers = notes(run, placed, waits=bars.height <= MOST_BARS_WITH_WAITS)
    return {
        "rows": [{"machine": machine, "slot": slot} for machine, slot in slots.iter_rows()],
        "bars": _packed(placed.with_columns(note=numbers), run.jobs, groups),
        "notes": texts,
        "drawn": drawn,
        "occupied": _occupancy(small, slots, until),
        "rounds": list(_rounds(run, view.most(MOST_ROUNDS))),
        "faults": list(_faults(run)),
    }


def _bars(run: RunData, most: int) -> tuple[pl.DataFrame, pl.DataFrame, str]:
    """Return the bars of slots, the leases without a bar of their own, and a note on what the bars show.

    Bars are periods of activity if the page can hold them all; otherwise leases, the longest ones if there are too
    many. If only leases are known, each is a bar.
    """
    order = [*SLOT, "start_seconds"]
    if 0 < run.segments.height <= most:
        return run.segments.sort(order, maintain_order=True), run.segments.clear(), ""
    leases = _leases_as_bars(run.leases) if run.leases.height else run.segments
    said = (
        f"A bar a lease: {run.segments.height:,} stretches are too many to draw apart." if run.segments.height else ""
    )
    if leases.height <= most:
        return leases.sort(order, maintain_order=True), leases.clear(), said
    length = (pl.col("end_seconds") - pl.col("start_seconds")).alias("length")
    longest = leases.with_columns(length).sort("length", descending=True, maintain_order=True)
    added_up = f"The shortest {leases.height - most:,} of {leases.height:,} leases are drawn together, as occupancy."
    return longest.head(most).sort(order, maintain_order=True), longest.tail(leases.height - most), added_up


def _occupancy(leases: pl.DataFrame, slots: pl.DataFrame, until: float) -> Json:
    """Return the leased fraction of each time bucket by slot, as in a heat map; None: there are no leases."""
    placed = leases.join(slots.with_row_index("row"), on=SLOT, how="inner")
    if placed.is_empty():
        return None
    rows = placed["row"].cast(pl.Int64).to_numpy()
    starts, ends = numbers(placed["start_seconds"]), numbers(placed["end_seconds"])
    used = used_by_bucket(rows, starts, ends, slots.height, until, OCCUPANCY_COLUMNS)
    return {"until": until, "rows": [{"levels": text} for text in levels_of(used)]}


def _leases_as_bars(leases: pl.DataFrame) -> pl.DataFrame:
    """Merge consecutive leases of a job on a slot into one bar."""
    last = pl.col("end_seconds").max()
    named = leases.with_columns(pl.col("end_seconds").fill_null(last), job=pl.coalesce("job", "app"))
    ordered = named.sort(*SLOT, "start_seconds", maintain_order=True)
    renewed = pl.all_horizontal(pl.col(name) == pl.col(name).shift(1) for name in (*SLOT, "job"))
    follows = (pl.col("start_seconds") - pl.col("end_seconds").shift(1)).abs() < 1e-6
    stretch = ordered.with_columns((~(renewed & follows).fill_null(value=False)).cum_sum().alias("stretch"))
    merged = stretch.group_by("stretch", maintain_order=True).agg(
        pl.col("job", "app", "slot", "machine", "start_seconds").first(), pl.col("end_seconds").last()
    )
    return merged.drop("stretch").with_columns(activity=pl.lit("run"))


def _packed(bars: pl.DataFrame, known: pl.DataFrame, groups: Groups) -> Json:
    """Return the bars as columns of indices, with each name stored once."""
    jobs = bars.select("job", "app").unique(maintain_order=True).with_row_index("at")
    activities = bars.select("activity").unique(maintain_order=True).with_row_index("what")
    packed = bars.join(jobs, on=["job", "app"], how="left", maintain_order="left").join(
        activities, on="activity", how="left", maintain_order="left"
    )
    return {
        "jobs": [list(each) for each in jobs.select("job", "app").iter_rows()],
        "by": groups.of(known, jobs["job"]),
        "activities": activities["activity"].to_list(),
        "row": packed["row"].to_list(),
        "start": packed["start_seconds"].round(3).to_list(),
        "length": (packed["end_seconds"] - packed["start_seconds"]).round(3).to_list(),
        "job": packed["at"].to_list(),
        "activity": packed["what"].to_list(),
        "note": packed["note"].to_list(),
    }


def _rounds(run: RunData, most: int) -> Iterator[Json]:
    """Yield time, number and changes of each round; if there are too many, of evenly spaced rounds."""
    changes = (*(name for name in COUNTED if name not in CHANGED), "kept", *CHANGED)
    every = -(-run.rounds.height // most) if run.rounds.height else 1
    for row in run.rounds.sort("round").gather_every(every).iter_rows(named=True):
        text = ", ".join(f"{row[name]} {name}" for name in changes if row[name])
        yield [rounded(row["time_seconds"], 3), row["round"], row["trigger"], row["free_slots"], text, row["fault"]]


def _faults(run: RunData) -> Iterator[Json]:
    """Yield time, text and app of every fault, which the drawing marks with a cross."""
    marked = run.events.filter(pl.col("kind").str.starts_with("fault"))
    for row in marked.sort("time_seconds", maintain_order=True).head(MOST_EVENTS).iter_rows(named=True):
        yield [rounded(row["time_seconds"], 3), row["text"] or row["kind"], row["app"]]
    for row in run.rounds.filter(pl.col("fault").is_not_null()).head(MOST_EVENTS).iter_rows(named=True):
        yield [rounded(row["time_seconds"], 3), f"round {row['round']}: {row['fault']}", None]
