"""Encodes machine names as integers, since sorting or grouping a very long table by strings copies each string."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from eunomia.units import Ints

SLOT: Final = ["machine", "slot"]


def numbered(names: pl.Series) -> tuple[Ints, pl.Series]:
    """Return the index of each row's name in the sorted distinct names, and these names."""
    known = names.unique().sort()
    return names.cast(pl.Enum(known)).to_physical().to_numpy().astype(np.int64), known


def slots_of(held: pl.DataFrame) -> pl.DataFrame:
    """Return the distinct machines and slots of a table, sorted."""
    machine, names = numbered(held["machine"])
    slot = held["slot"].to_numpy()
    width = int(slot.max(initial=0)) + 1
    seen = np.flatnonzero(np.bincount(machine * width + slot))
    return pl.DataFrame({"machine": names.gather(seen // width), "slot": seen % width})
