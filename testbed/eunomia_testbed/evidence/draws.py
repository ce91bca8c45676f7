"""What the runs of a policy are draws of: seeds, resamples of one trace, its windows, or several traces."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, Final, Self

from eunomia.model.shapes import value


class DrawKind(enum.StrEnum):
    """How the runs of one policy differ from each other."""

    ONE = "one"
    """A single run, or runs in which nothing is drawn: nothing is known about chance."""
    SEEDS = "seeds"
    """Independent workloads or runs, one for each seed: Student's t over the seeds."""
    RESAMPLES = "resamples"
    """Draws of one trace's uncertainty, by circular blocks of apps: percentiles over the resamples."""
    WINDOWS = "windows"
    """Consecutive parts of one trace: Student's t over the parts (batch means)."""
    TRACES = "traces"
    """Independent traces of one cluster: Student's t over the traces."""


METHODS: Final[Mapping[DrawKind, str]] = {
    DrawKind.ONE: "one run",
    DrawKind.SEEDS: "95 % t intervals",
    DrawKind.RESAMPLES: "95 % percentile intervals, circular blocks of apps",
    DrawKind.WINDOWS: "95 % t intervals of batch means",
    DrawKind.TRACES: "95 % t intervals",
}


@value
class Draws:
    """The draws of a run, as ``run.json`` keeps them.

    Attributes:
        kind: how the runs of a policy differ.
        count: number of draws of each policy.
        source: the trace that is resampled or cut into windows; empty: none.
        block_apps: apps in a block of a resample; None: no resamples, or blocks by time.
        block_seconds: seconds in a block of a resample that begins at the same time of day; None: blocks of apps.
        seed: the seed of the resamples.
        asked: number of resamples that were asked for, where a budget of CPU time allowed fewer; else None.
        budget_seconds: that budget; None: all that were asked for.
        without: policies that the budget left without resamples, the slowest first.
        needed_seconds: CPU time by which every policy would probably have the fewest resamples that give an interval;
            None: every policy has them.
        fixed: policies whose runs draw nothing on a workload that is the same for all seeds; each was simulated once.
    """

    kind: DrawKind = DrawKind.ONE
    count: int = 1
    source: str = ""
    block_apps: int | None = None
    block_seconds: float | None = None
    seed: int = 0
    asked: int | None = None
    budget_seconds: float | None = None
    without: tuple[str, ...] = ()
    needed_seconds: float | None = None
    fixed: tuple[str, ...] = ()

    @property
    def shows_chance(self) -> bool:
        """Return whether intervals exist, so that a difference can be distinguished from chance."""
        return self.kind is not DrawKind.ONE and self.count > 1

    def to_plain(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return {
            "kind": self.kind.value,
            "count": self.count,
            "source": self.source,
            "block_apps": self.block_apps,
            "block_seconds": self.block_seconds,
            "seed": self.seed,
            "asked": self.asked,
            "budget_seconds": self.budget_seconds,
            "without": list(self.without),
            "needed_seconds": self.needed_seconds,
            "fixed": list(self.fixed),
        }

    @classmethod
    def from_plain(cls, given: Mapping[str, Any]) -> Self:
        """Return the draws of the JSON object that ``to_plain`` makes."""
        lists = {name: tuple(given.get(name, ())) for name in ("without", "fixed")}
        return cls(**{**given, "kind": DrawKind(given["kind"]), **lists})


NO_DRAWS: Final = Draws()


def draws_of_seeds(count: int) -> Draws:
    """Return the draws of a run with this number of seeds; of one seed, a single run."""
    return Draws(kind=DrawKind.SEEDS, count=count) if count > 1 else NO_DRAWS
