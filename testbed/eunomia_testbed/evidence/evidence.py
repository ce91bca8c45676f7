"""Every policy's metrics (figures) by draw, with estimates of them and of differences between two policies."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Final

import polars as pl

from eunomia.model.shapes import builds
from eunomia_testbed.evidence.draws import NO_DRAWS, DrawKind, Draws
from eunomia_testbed.evidence.goals import FEWEST_APPS_FOR_P99
from eunomia_testbed.evidence.intervals import Estimate, difference, estimate, log_ratio

if TYPE_CHECKING:
    from eunomia_testbed.results.facts import RunFacts

RESAMPLES: Final = "resamples.parquet"
"""The file of a result folder with a row for each policy and resample."""
MAXIMA: Final = frozenset({"makespan_seconds", "queue_length_max"})
"""Figures that are maxima over a trace, for which (as for those that end in ``_worst``) resamples give no interval."""


@builds
class Evidence:
    """The figures of every policy, by draw.

    Attributes:
        draws: how the rows of ``drawn`` were drawn.
        drawn: a row for each policy and draw (column ``seed``), with the columns of ``summary.csv``.
        whole: a row for each policy with the figures of the trace itself, if ``drawn`` has resamples; else None.
    """

    draws: Draws
    drawn: pl.DataFrame
    whole: pl.DataFrame | None = None

    def figure(self, policy: str, name: str) -> Estimate | None:
        """Return a policy's figure with its interval; None: the figure is unknown.

        With resamples, a maximum has no interval, and neither has the 99th percentile of fewer than 300 apps: they
        describe this trace only.
        """
        whole = self._of_trace(policy, name)
        if self._has_no_interval(name):
            return None if whole is None else Estimate(value=whole, low=None, high=None, count=1)
        return estimate(list(self._by_draw(policy, name).values()), self.draws, whole=whole)

    def ratio(self, one: str, other: str, name: str) -> Estimate | None:
        """Return the estimate of ln(figure of ``other`` / figure of ``one``), paired by draw; None: unknown."""
        return self._paired(one, other, name, relative=True)

    def difference(self, one: str, other: str, name: str) -> Estimate | None:
        """Return the estimate of figure of ``other`` - figure of ``one``, paired by draw; None: unknown."""
        return self._paired(one, other, name, relative=False)

    def log_ratios(self, one: str, other: str, name: str) -> list[float]:
        """Return ln(figure of ``other`` / figure of ``one``) for each draw, in order of the draws."""
        mine, others = self._by_draw(one, name), self._by_draw(other, name)
        both = sorted(mine.keys() & others.keys())
        return [math.log(others[draw] / mine[draw]) for draw in both if mine[draw] > 0.0 and others[draw] > 0.0]

    def _paired(self, one: str, other: str, name: str, *, relative: bool) -> Estimate | None:
        here, there = self._of_trace(one, name), self._of_trace(other, name)
        whole = None if here is None or there is None else (here, there)
        if self._has_no_interval(name):
            first, second = ([], []) if whole is None else ([whole[0]], [whole[1]])
            return (log_ratio if relative else difference)(first, second, NO_DRAWS)
        mine, others = self._by_draw(one, name), self._by_draw(other, name)
        mine, others = self._repeated(one, mine, others), self._repeated(other, others, mine)
        both = sorted(mine.keys() & others.keys())
        first, second = [mine[draw] for draw in both], [others[draw] for draw in both]
        return (log_ratio if relative else difference)(first, second, self.draws, whole=whole)

    def _repeated(self, policy: str, mine: dict[int, float], others: dict[int, float]) -> dict[int, float]:
        """Return ``mine`` by draw; a policy without randomness repeats its figure for the draws of ``others``."""
        if policy not in self.draws.fixed or len(mine) != 1:
            return mine
        return dict.fromkeys(others, next(iter(mine.values()))) if others else mine

    def _has_no_interval(self, name: str) -> bool:
        """Return whether resamples give no interval: for a maximum, and for a percentile set by one or two apps."""
        if self.draws.kind is not DrawKind.RESAMPLES:
            return False
        return name in MAXIMA or name.endswith("_worst") or ("_p99" in name and self._apps < FEWEST_APPS_FOR_P99)

    @property
    def _apps(self) -> int:
        most = self.drawn["apps"].max() if "apps" in self.drawn.columns else None
        return int(most) if isinstance(most, int | float) else 0

    def _by_draw(self, policy: str, name: str) -> dict[int, float]:
        if name not in self.drawn.columns:
            return {}
        mine = self.drawn.filter(pl.col("policy") == policy).select(
            "seed", pl.col(name).cast(pl.Float64).fill_nan(None)
        )
        return {int(seed): float(figure) for seed, figure in mine.drop_nulls().iter_rows()}

    def _of_trace(self, policy: str, name: str) -> float | None:
        if self.whole is None or name not in self.whole.columns:
            return None
        mine = self.whole.filter(pl.col("policy") == policy)[name].cast(pl.Float64).fill_nan(None).drop_nulls()
        return float(mine[0]) if mine.len() else None


def evidence_of(facts: RunFacts | None, summaries: pl.DataFrame, resamples: pl.DataFrame | None = None) -> Evidence:
    """Return the evidence of a run.

    Args:
        facts: the facts of the run; None: the run has a single draw.
        summaries: a row for each policy and seed, as in ``summary.csv``.
        resamples: a row for each policy and resample, for a run that resamples a trace.
    """
    draws = NO_DRAWS if facts is None else facts.draws
    if draws.kind in (DrawKind.WINDOWS, DrawKind.RESAMPLES) and resamples is not None and resamples.height:
        whole = summaries if draws.kind is DrawKind.RESAMPLES else None
        return Evidence(draws=draws, drawn=_complete(resamples, draws), whole=whole)
    return Evidence(draws=draws if draws.kind is not DrawKind.RESAMPLES else NO_DRAWS, drawn=summaries)


def _complete(rows: pl.DataFrame, draws: Draws) -> pl.DataFrame:
    """Return the rows of draws that are complete, that is, finished under all policies that have resamples."""
    rows = rows.filter(~pl.col("policy").is_in(list(draws.without)))
    policies = rows["policy"].n_unique()
    whole = rows.group_by("seed").len().filter(pl.col("len") == policies)
    return rows.filter(pl.col("seed").is_in(whole["seed"].implode()))


def evidence_in(folder: Path, facts: RunFacts | None, summaries: pl.DataFrame) -> Evidence:
    """Return the evidence of a run; its resamples are read from its result folder."""
    path = folder / RESAMPLES
    return evidence_of(facts, summaries, pl.read_parquet(path) if path.exists() else None)
