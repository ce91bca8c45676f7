"""A part of the page: markup, tables, and data for its drawing."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeAlias

import polars as pl

from eunomia.model.shapes import value

Json: TypeAlias = Any
"""JSON values for the page; the scripts under ``assets`` document the expected form."""

Kind: TypeAlias = Literal["text", "app", "policy", "code", "number", "seconds", "percent", "flag"]


@value
class Column:
    """A column of a table on the page; ``digits`` is the number of decimals, ``hint`` the tooltip."""

    label: str
    kind: Kind = "text"
    digits: int = 0
    hint: str = ""


@value
class Table:
    """A sortable table; ``app`` and ``group`` are the positions of the columns to filter by and to group by."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Json]]
    app: int | None = None
    group: int | None = None
    folded: bool = False
    unit: str = ""
    """Unit of all times in the table: ``s``, ``min``, ``h`` or ``d``; empty: the page chooses one."""


@value
class Part:
    """A section of the page.

    Its ``html`` is markup in which all text from users is escaped; its ``data`` goes to the script that draws it.
    """

    name: str
    title: str
    question: str
    html: str = ""
    data: Json = None
    tables: Sequence[Table] = ()


def table_of(frame: pl.DataFrame, title: str, *, folded: bool = False) -> Table:
    """Return a frame as a table, without policy and seed, and without columns that have no known value."""
    kept = [
        name for name in frame.columns if name not in ("policy", "seed") and frame[name].null_count() < frame.height
    ]
    shown = frame.select(kept)
    return Table(
        title=title,
        columns=[_column(shown[name]) for name in kept],
        rows=[[rounded(value) for value in row] for row in shown.iter_rows()],
        app=kept.index("app") if "app" in kept else None,
        group=kept.index("round") if "round" in kept and "app" in kept else None,
        folded=folded,
    )


def kept_columns(table: Table) -> Table:
    """Return the table without columns that have no known value."""
    kept = [at for at in range(len(table.columns)) if any(row[at] is not None for row in table.rows)]
    return dataclasses.replace(
        table,
        columns=[table.columns[at] for at in kept],
        rows=[[row[at] for at in kept] for row in table.rows],
        app=kept.index(table.app) if table.app in kept else None,
    )


def rounded(value: object, digits: int = 4) -> Json:
    """Convert a value for the page: floats are rounded, NaN and infinity become null, other types become text."""
    if isinstance(value, float):
        return round(value, digits) if value - value == 0 else None
    return value if value is None or isinstance(value, str | int) else str(value)


def rounded_all(values: Iterable[object]) -> list[Json]:
    """Apply ``rounded`` to every value of a row."""
    return [rounded(value) for value in values]


def _column(values: pl.Series) -> Column:
    name = values.name
    label = name.removesuffix("_seconds").replace("_", " ").replace("rho", "ρ")
    if name.endswith("_seconds"):
        return Column(label=label, kind="seconds", digits=2)
    if name == "app":
        return Column(label=label, kind="app")
    if values.dtype == pl.Boolean:
        return Column(label=label, kind="flag")
    if values.dtype.is_float():
        return Column(label=label, kind="number", digits=3)
    return Column(label=label, kind="number" if values.dtype.is_integer() else "text")
