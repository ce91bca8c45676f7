"""Metrics that a plugin adds to the tables of a run."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from eunomia.model.shapes import value

Better = Literal["low", "high"]


@value
class Metric:
    """A column that a plugin adds to a table of a run's results, and the figures that ``summary.csv`` takes from it.

    Values are numbers; ``None`` and NaN are unknown. Equal tables must give equal values.
    """

    name: str
    """Lower-case letters, digits and ``_``; a metric in seconds ends with ``_seconds``."""
    table: str
    """The table that gets the column, such as ``jobs`` or ``apps``."""
    unit: str
    """Such as ``s``, ``GPU-s``, ``GPUs`` or ``share``; empty: none."""
    meaning: str
    """A clause without a full stop, shown on the page."""
    compute: Callable[[Mapping[str, Any]], Any]
    """Takes the run's tables by name, as polars frames of one policy and seed, and returns one value for each row."""
    summary: Sequence[str] = ()
    """Figures of ``summary.csv``: ``mean``, ``median``, ``p95``, ``p99``, ``max``, ``min``, ``sum``."""
    better: Better | None = "low"
    """Whether low or high values are better; None: neither."""
