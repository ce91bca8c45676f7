"""How a policy's runs were drawn: by seeds, as resamples or windows of one trace, or from several traces."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, Final, Self

from eunomia.model.shapes import value


class DrawKind(enum.StrEnum):
    """The way in which the runs of one policy were drawn."""

    ONE = "one"
    """A single run, or runs without randomness: intervals cannot be estimated."""
    SEEDS = "seeds"
    """Independent workloads or runs, one for each seed; intervals are Student's t over the seeds."""
    RESAMPLES = "resamples"
    """Circular block bootstrap of one trace, in blocks of apps; intervals are percentiles over the resamples."""
    WINDOWS = "windows"
    """Consecutive parts of one trace; intervals are Student's t over the parts (batch means)."""
    TRACES = "traces"
    """Independent traces of one cluster; intervals are Student's t over the traces."""


METHODS: Final[Mapping[DrawKind, str]] = {
    DrawKind.ONE: "one run",
    DrawKind.SEEDS: "95 % t intervals",
    DrawKind.RESAMPLES: "95 % percentile intervals, circular blocks of apps",
    DrawKind.WINDOWS: "95 % t intervals of batch means",
    DrawKind.TRACES: "95 % t intervals",
}


@value
class Draws:
    """The draws of a run, as stored in ``run.json``.

    Attributes:
        kind: how the runs of a policy were drawn.
        count: number of draws of each policy.
        source: the trace that is resampled or cut into windows; empty: none.
        block_apps: apps in a block of a resample; None: no resamples, or blocks by time.
        block_seconds: seconds in a block of a resample that begins at the same time of day; None: blocks of apps.
        seed: the seed of the resamples.
        asked: number of resamples requested, if a budget of CPU time allowed fewer; else None.
        budget_seconds: that budget in CPU seconds; None: all requested resamples were made.
        without: policies without resamples because of the budget, the slowest first.
        needed_seconds: CPU time that would probably suffice for every policy to have the fewest resamples for an
            interval; None: every policy has them.
        fixed: policies without randomness on a workload that is the same for all seeds; each was simulated once.
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
        """Return whether the draws give intervals, which show if a difference may be due to chance."""
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
        """Return the draws that a result of ``to_plain`` describes."""
        lists = {name: tuple(given.get(name, ())) for name in ("without", "fixed")}
        return cls(**{**given, "kind": DrawKind(given["kind"]), **lists})


NO_DRAWS: Final = Draws()


def draws_of_seeds(count: int) -> Draws:
    """Return the draws of a run with this number of seeds; one seed is a single run."""
    return Draws(kind=DrawKind.SEEDS, count=count) if count > 1 else NO_DRAWS
