"""The slots that a table of very many rows names: by number, for sorting or grouping by names copies all of them."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from eunomia.units import Ints

SLOT: Final = ["machine", "slot"]


def numbered(names: pl.Series) -> tuple[Ints, pl.Series]:
    """By row the number of its name, and the names in order, each once."""
    known = names.unique().sort()
    return names.cast(pl.Enum(known)).to_physical().to_numpy().astype(np.int64), known


def slots_of(held: pl.DataFrame) -> pl.DataFrame:
    """Every machine and slot of a table once, in their order."""
    machine, names = numbered(held["machine"])
    slot = held["slot"].to_numpy()
    width = int(slot.max(initial=0)) + 1
    seen = np.flatnonzero(np.bincount(machine * width + slot))
    return pl.DataFrame({"machine": names.gather(seen // width), "slot": seen % width})
