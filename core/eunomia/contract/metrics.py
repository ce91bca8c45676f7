"""Metrics that a plugin adds to the tables of a run."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from eunomia.model.shapes import value

Better = Literal["low", "high"]


@value
class Metric:
    """A column that a plugin adds to a table of a run's results, and its figures in ``summary.csv``.

    Values are numbers; ``None`` and NaN mean unknown. The values must be a deterministic function of the tables.
    """

    name: str
    """Name in lower-case letters, digits and ``_``; it ends with ``_seconds`` if the values are in seconds."""
    table: str
    """The table to which the column is added, such as ``jobs`` or ``apps``."""
    unit: str
    """Unit of the values, such as ``s``, ``GPU-s``, ``GPUs`` or ``share``; empty: no unit."""
    meaning: str
    """Description without a full stop, shown on the report page."""
    compute: Callable[[Mapping[str, Any]], Any]
    """Function of the run's tables by name, as polars frames of one policy and seed; returns one value per row."""
    summary: Sequence[str] = ()
    """Figures written to ``summary.csv``: any of ``mean``, ``median``, ``p95``, ``p99``, ``max``, ``min``, ``sum``."""
    better: Better | None = "low"
    """Whether low or high values are better; None: neither."""
