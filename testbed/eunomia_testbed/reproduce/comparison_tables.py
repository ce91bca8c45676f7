"""Tables of numbers next to the claims: by policy and setting, with their ratio to a base on the same seeds."""

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from eunomia.model.shapes import value
from eunomia_testbed.metrics.intervals import interval
from eunomia_testbed.reproduce.measures import ratio_effects

Plain = dict[str, Any]
Levels = Callable[[dict[str, Any], str], Mapping[int, float]]
"""Returns a number of a cell by seed, for seeds that were run, from the cell's fields and the number's name."""


@value
class TableLine:
    """A line of a table."""

    labels: tuple[str, str]
    """Labels of the line's setting, and of its policy or other fields."""
    fields: dict[str, Any]
    base: dict[str, Any] | None
    """The fields of the cell to which its ratios refer; None: the line's own cell."""


def filled_table(
    title: str, lines: Sequence[TableLine], columns: Sequence[tuple[str, dict[str, Any], str]], levels: Levels
) -> Plain | None:
    """Return a table as plain values: title, heading, lines of text, largest and smallest number of seeds.

    Args:
        title: heading of the table.
        lines: the lines.
        columns: heading, additional cell fields, and number's name of each column.
        levels: returns the numbers of a cell by seed.

    Returns:
        The table; None: none of its cells has been run.
    """
    seeds: list[int] = []
    made = []
    for line in lines:
        texts = []
        for _, fields, number in columns:
            own = levels({**line.fields, **fields}, number)
            seeds.append(len(own))
            texts.append(_text(own, {} if line.base is None else levels({**line.base, **fields}, number)))
        made.append([*line.labels, *texts])
    if not any(seeds):
        return None
    heads = ["", "", *(head for head, _, _ in columns)]
    return {"title": title, "head": heads, "lines": made, "seeds": [min(seeds), max(seeds)]}


def _text(own: Mapping[int, float], base: Mapping[int, float]) -> str:
    """Return a mean as text, with its ratio to the base and a 95 % interval, as in ``1.83 (2.030: 1.7 to 2.4)``."""
    if not own:
        return "-"
    mean = fmean(own.values())
    level = f"{mean:.3g}" if mean < 1000.0 else f"{mean:.0f}"
    both = sorted(own.keys() & base.keys())
    if not both:
        return level
    found = interval(ratio_effects([own[seed] for seed in both], [base[seed] for seed in both]))
    if found is None or not math.isfinite(found.mean):
        return level
    ratio = f"{math.exp(found.mean):.3f}"
    if found.low is None or found.high is None:
        return f"{level} ({ratio})"
    return f"{level} ({ratio}: {math.exp(found.low):.3f} to {math.exp(found.high):.3f})"
