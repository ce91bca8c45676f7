"""Reproducible sums by group: rows are added in a fixed order, unlike in polars, whose order varies."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from eunomia.units import Reals


def sums_by(frame: pl.DataFrame, keys: Sequence[str], *values: str, ordered: bool = True) -> pl.DataFrame:
    """Return a row for each group of ``keys``, with the count ``len`` and the sums of the columns ``values``.

    Unknown values are ignored.

    Args:
        frame: any frame.
        keys: names of the columns that define groups.
        values: names of numeric columns.
        ordered: sort groups by their keys; otherwise they come in order of appearance, which is faster.
    """
    if frame.is_empty():
        return frame.select(
            *keys, pl.lit(0, pl.Int64).alias("len"), *(pl.col(name).cast(pl.Float64) for name in values)
        )
    found = frame.select(keys).unique(maintain_order=not ordered)
    groups = (found.sort(keys, nulls_last=False) if ordered else found).with_row_index("group")
    joined = frame.select(*keys).join(groups, on=list(keys), how="left", nulls_equal=True, maintain_order="left")
    group = joined["group"].to_numpy()
    sums = [pl.Series(name, np.bincount(group, numbers(frame[name], unknown=0.0), groups.height)) for name in values]
    count = pl.Series("len", np.bincount(group, minlength=groups.height).astype(np.int64))
    return groups.select(keys).with_columns(count, *sums)


def numbers(column: pl.Series, unknown: float = float("nan")) -> Reals:
    """Return the column as float64, with ``unknown`` for null and NaN."""
    found = column.cast(pl.Float64).to_numpy()
    return np.asarray(found if np.isnan(unknown) else np.nan_to_num(found, nan=unknown, posinf=np.inf, neginf=-np.inf))


def highest(frame: pl.DataFrame, column: str, most: int) -> pl.DataFrame:
    """Return the rows with the highest known values, highest first, with ties ordered by ``app``."""
    known = frame.filter(pl.col(column).is_not_null() & pl.col(column).is_not_nan())
    if known.height > 4 * most:
        least = np.partition(known[column].to_numpy(), known.height - most)[known.height - most]
        known = known.filter(pl.col(column) >= least)
    return known.sort(column, "app", descending=[True, False]).head(most)
