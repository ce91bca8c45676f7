"""Part 8, decisions: the plugins' decision records, the rounds, and the time that each stage took."""

from __future__ import annotations

import polars as pl

from eunomia_testbed.report.part import Column, Json, Part, Table, kept_columns, rounded, table_of
from eunomia_testbed.report.view import View
from eunomia_testbed.report.words import count

MOST_ROWS = 1500


def decisions(view: View) -> Part | None:
    """Make the page's part on decisions; None: there were no rounds, and no plugin left a record."""
    run, most = view.run, view.most(MOST_ROWS)
    if run.rounds.is_empty() and not run.records:
        return None
    tables = [_record(name, frame, most) for name, frame in run.records.items() if frame.height]
    if run.rounds.height:
        in_order = run.rounds if run.rounds["round"].is_sorted() else run.rounds.sort("round")
        shown = in_order.head(most)
        tables.append(table_of(shown, _of("Rounds", run.rounds.height, most), folded=True))
    if run.counts.height:
        tables.append(table_of(run.counts, "What it came to"))
    if run.timings.height:
        tables.append(_timings(run.timings))
    payments = [_payments(name, frame, most) for name, frame in run.records.items()]
    return Part(
        name="decisions",
        title="Decisions",
        question="Does the policy do what it claims?",
        data={"payments": [each for each in payments if each is not None]},
        tables=tables,
    )


def _of(title: str, rows: int, shown: int) -> str:
    """Return the title with the number of rows, such as ``Rounds, 292``, or ``Rounds, the first 1500 of 9000``."""
    return f"{title}, {rows}" if rows <= shown else f"{title}, the first {shown} of {rows}"


def _record(name: str, frame: pl.DataFrame, most: int) -> Table:
    rounds = f", {count(frame['round'].n_unique(), 'round')}" if "round" in frame.columns else ""
    shown = frame.head(most)
    if "c" in shown.columns:
        shown = shown.with_columns((1 - pl.col("c")).alias("pays 1 - c"))
    return table_of(shown, f"Record of {name}{rounds}")


def _payments(name: str, frame: pl.DataFrame, most: int) -> Json:
    """Return points (seconds or round, app, fraction paid, slots won) of a record that has a hidden payment ``c``."""
    if not {"round", "app", "c"} <= set(frame.columns):
        return None
    paid = frame.filter(pl.col("c").is_not_null())
    timed = "time_seconds" in frame.columns
    points = [
        [
            row["time_seconds" if timed else "round"],
            row["app"],
            rounded(1 - row["c"]),
            row.get("won_slots"),
            row["round"],
        ]
        for row in paid.head(most).iter_rows(named=True)
    ]
    return {"plugin": name, "timed": timed, "points": points} if points else None


def _timings(timings: pl.DataFrame) -> Table:
    """Return CPU and wall time by stage and plugin; for a simulation, only sums over all rounds are known."""
    summed = timings["round"].n_unique() == 1
    timed = timings["wall_seconds"].null_count() < timings.height
    wall = pl.col("wall_seconds") * 1000
    columns = {
        Column(label="stage"): pl.col("stage").first(),
        Column(label="plugin", kind="code"): pl.col("plugin").first(),
        Column(label="calls", kind="number"): pl.lit(None, pl.Int64) if summed else pl.len(),
        Column(label="CPU ms", kind="number", digits=2): pl.col("cpu_seconds").sum() * 1000,
        Column(label="wall ms", kind="number", digits=2): wall.sum() if timed else wall.max(),
        Column(label="median ms", kind="number", digits=3): wall.median(),
        Column(label="most ms", kind="number", digits=3): wall.max(),
    }
    cells = [cell.alias(column.label) for column, cell in columns.items()]
    groups = timings.with_columns(pl.col("stage").alias("by"), pl.col("plugin").alias("of"))
    by_stage = groups.group_by("by", "of", maintain_order=True).agg(cells).drop("by", "of")
    rows: list[list[Json]] = [[rounded(value) for value in row] for row in by_stage.iter_rows()]
    return kept_columns(Table(title="What deciding took", columns=list(columns), rows=rows))
