"""Real and simulated figures of a policy side by side."""

from typing import Final

from eunomia.model.shapes import value

HEADINGS: Final = (
    *("policy", "metric", "repeats", "real", "real_low", "real_high"),
    *("simulated", "simulated_low", "simulated_high", "apart"),
)
FRACTIONS: Final = ("rho_unfair_share",)
"""Metrics whose difference is given in points, not relative to the real value."""
WORDS: Final = {
    "makespan_seconds": "makespan",
    "jct_mean_seconds": "mean JCT",
    "rho_unfair_share": "unfair",
    "rho_mean": "mean rho",
    "rho_worst": "worst rho",
}


@value
class SideFigure:
    """One metric of a policy, real and simulated, with intervals of the means over repeats or draws; None: unknown."""

    metric: str
    real: float | None
    low: float | None
    high: float | None
    simulated: float | None
    simulated_low: float | None = None
    simulated_high: float | None = None

    @property
    def apart(self) -> float | None:
        """Return simulated - real as a fraction of the real value, or in points if the metric is a fraction."""
        if self.real is None or self.simulated is None:
            return None
        if self.metric in FRACTIONS:
            return 100.0 * (self.simulated - self.real)
        return (self.simulated - self.real) / self.real if self.real else None

    def words(self) -> tuple[str, str, str]:
        """Return real value, simulated value and their difference as text."""
        seconds = self.metric.endswith("_seconds")
        percent = self.metric in FRACTIONS

        def text(number: float | None) -> str:
            if number is None:
                return "-"
            return f"{number:.0f} s" if seconds else f"{number:.0%}" if percent else f"{number:.2f}"

        def spread(low: float | None, high: float | None) -> str:
            return "" if low is None or high is None else f" ({text(low)} to {text(high)})"

        apart = self.apart
        unit = " points" if percent else " %"
        distance = "-" if apart is None else f"{apart * (1.0 if percent else 100.0):+.1f}{unit}"
        real = f"{text(self.real)}{spread(self.low, self.high)}"
        return real, f"{text(self.simulated)}{spread(self.simulated_low, self.simulated_high)}", distance


@value
class Side:
    """The real and simulated figures of a policy."""

    policy: str
    repeats: int
    figures: tuple[SideFigure, ...]

    def rows(self) -> list[tuple[object, ...]]:
        """Return a row for each metric, as in ``HEADINGS``."""
        return [
            (
                *(self.policy, each.metric, self.repeats, each.real, each.low, each.high),
                *(each.simulated, each.simulated_low, each.simulated_high, each.apart),
            )
            for each in self.figures
        ]


def table_lines(sides: tuple[Side, ...]) -> list[str]:
    """Return the lines of a table with a row for each known metric of each policy."""
    rows = [("", "", "real", "simulated", "apart")]
    for side in sides:
        shown = [each for each in side.figures if each.real is not None or each.simulated is not None]
        rows += [(side.policy if at == 0 else "", WORDS[each.metric], *each.words()) for at, each in enumerate(shown)]
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
