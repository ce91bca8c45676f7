"""Declarations of columns: unit, meaning, and the figures derived from a column for ``summary.csv`` and the page.

A column is declared once, in the annotation of a row's field; schema, frames, summary, reference page and labels on the
report page are derived from that declaration.
"""

from __future__ import annotations

import functools
import types
import typing
from collections.abc import Mapping
from typing import Final, Literal

from eunomia.model.shapes import value

Aggregate = Literal["mean", "median", "p95", "p99", "max", "min", "sum", "time_mean"]
"""The aggregation of a column to one number. ``time_mean`` is the time-weighted mean from the first arrival to the last
finish, where a value holds until the next row. Unknown values are ignored."""

Better = Literal["low", "high"]

AGGREGATES: Final[tuple[Aggregate, ...]] = typing.get_args(Aggregate)


@value
class Figure:
    """A number in ``summary.csv`` for each policy and seed, computed from a column.

    Attributes:
        name: name of the column of ``summary.csv``.
        aggregate: how the column is aggregated.
        label: label on the report page; empty: the page does not show the figure.
        better: the direction that is better; None: neither.
    """

    name: str
    aggregate: Aggregate
    label: str = ""
    better: Better | None = "low"


@value
class ColumnSpec:
    """The declaration of a column.

    Attributes:
        unit: unit such as ``s``, ``GPU-s``, ``GPUs``, ``share`` (a fraction of 1) or ``jobs``; empty: none.
        meaning: the meaning, as a clause without a full stop.
        summary: the figures computed from the column.
        label: label on the page, for a column of ``summary.csv`` that is not an aggregate of a column.
        better: the direction that is better; None: neither.
    """

    unit: str
    meaning: str
    summary: tuple[Figure, ...] = ()
    label: str = ""
    better: Better | None = "low"


def col(unit: str, meaning: str, *summary: Figure, label: str = "", better: Better | None = "low") -> ColumnSpec:
    """Return the declaration of a column, for the annotation of its field."""
    return ColumnSpec(unit=unit, meaning=meaning, summary=summary, label=label, better=better)


def figure(name: str, aggregate: Aggregate, label: str = "", better: Better | None = "low") -> Figure:
    """Return a figure that ``summary.csv`` computes from a column."""
    return Figure(name=name, aggregate=aggregate, label=label, better=better)


@functools.cache
def declared(row: type) -> Mapping[str, ColumnSpec]:
    """Return the declarations of a row's fields by name, in order; fields without a declaration are skipped."""
    hints = typing.get_type_hints(row, include_extras=True)
    specs = {name: _spec(hint) for name, hint in hints.items()}
    return {name: spec for name, spec in specs.items() if spec is not None}


def plain_type(hint: object) -> object:
    """Return the type inside an annotation, such as ``str`` for ``Annotated[str | None, ...]``."""
    if typing.get_origin(hint) is typing.Annotated:
        return plain_type(typing.get_args(hint)[0])
    if isinstance(hint, types.UnionType):
        return next(part for part in typing.get_args(hint) if part is not type(None))
    return hint


def _spec(hint: object) -> ColumnSpec | None:
    given = typing.get_args(hint)[1:] if typing.get_origin(hint) is typing.Annotated else ()
    return next((each for each in given if isinstance(each, ColumnSpec)), None)
