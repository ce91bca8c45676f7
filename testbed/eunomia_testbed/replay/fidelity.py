"""The difference of each figure between a simulation and a real run, split by cause.

The simulation is repeated with one input after the other replaced by the real run's: rates, costs, arrivals. Each
replacement's change of a figure is attributed to that cause; the rest is unexplained.
So the parts always sum to the whole difference.
"""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean, median, stdev
from typing import Any, Final

import polars as pl

from eunomia.model.shapes import builds, value
from eunomia_testbed.evidence.draws import draws_of_seeds
from eunomia_testbed.evidence.intervals import Estimate, estimate
from eunomia_testbed.replay.sides import FRACTIONS
from eunomia_testbed.results.run_data import RunData
from eunomia_testbed.results.summary import summary_of

UNEXPLAINED: Final = "unexplained"
CHANCE: Final = "chance of one run"
"""Row of ``fidelity.csv`` that is not part of the difference: the spread of one run due to drawn rates."""
NORMAL_95: Final = 1.96
"""Standard deviations to both sides of the mean within which 95 % of a normal distribution lie."""
MAKESPAN, MEAN_JCT, UNFAIR = "makespan_seconds", "jct_mean_seconds", "rho_unfair_share"
HEADINGS: Final = ("policy", "figure", "cause", "repeats", "difference", "low", "high")


@builds
class RunFigures:
    """The figures of one run that are compared between simulation and real run.

    Attributes:
        figures: makespan, mean JCT and the fraction of apps treated unfairly; unknown ones are left out.
        rho: the rho of each app whose rho is known.
        deviations: standard deviations over runs, if the figures are means of several runs; empty: one run.
    """

    figures: Mapping[str, float]
    rho: Mapping[str, float]
    deviations: Mapping[str, float] = dataclasses.field(default_factory=dict)


def figures_in(data: RunData, policy: str, seed: int) -> RunFigures:
    """Return the figures of one policy and seed in the tables of a real or simulated run."""
    flat = summary_of(data, policy, seed).flat()
    found = {name: flat.get(name) for name in (MAKESPAN, MEAN_JCT, UNFAIR)}
    apps = data.apps.filter((pl.col("policy") == policy) & (pl.col("seed") == seed))
    rho = apps.select("app", pl.col("rho").cast(pl.Float64).fill_nan(None)).drop_nulls()
    return RunFigures(
        figures={name: float(each) for name, each in found.items() if isinstance(each, int | float)},
        rho={str(app): float(each) for app, each in rho.iter_rows()},
    )


def mean_figures(data: RunData, policy: str) -> RunFigures:
    """Return a policy's figures as means over its seeds; figures that any seed lacks are left out."""
    seeds = data.apps.filter(pl.col("policy") == policy)["seed"].unique(maintain_order=True).to_list()
    runs = [figures_in(data, policy, seed) for seed in seeds]
    figures, rho = _columns([run.figures for run in runs]), _columns([run.rho for run in runs])
    return RunFigures(
        figures={name: fmean(each) for name, each in figures.items()},
        rho={name: fmean(each) for name, each in rho.items()},
        deviations={name: stdev(each) for name, each in figures.items() if len(each) > 1},
    )


def _columns(runs: Sequence[Mapping[str, float]]) -> dict[str, list[float]]:
    """Return the values of all runs by name, for the names that all runs have."""
    return {name: [run[name] for run in runs] for name in runs[0] if all(name in run for run in runs)}


@value
class Stage:
    """A simulation of a run in which some causes are replaced by those of the real run.

    Attributes:
        cause: the cause that is replaced in addition to those of earlier stages; empty: none, the first simulation.
        figures: figures of the simulation.
    """

    cause: str
    figures: RunFigures


@value
class DifferenceSplit:
    """The difference of one figure between a simulation and a real run, by cause.

    Attributes:
        figure: the column of ``summary.csv``.
        real: the real value.
        simulated: the first simulation's value.
        parts: by cause, the part of real - simulated that the cause explains, in the order of replacement; the last
            cause is ``UNEXPLAINED``.
    """

    figure: str
    real: float
    simulated: float
    parts: Mapping[str, float]
    chance: float | None = None
    """Half-width of the 95 % interval of a single run due to drawn rates alone; None: nothing is drawn."""

    @property
    def whole(self) -> float:
        """Return real - simulated."""
        return self.real - self.simulated

    def relative(self, amount: float) -> float:
        """Return an amount relative to the real value (NaN if that is 0); in percentage points for FRACTIONS."""
        if self.figure in FRACTIONS:
            return 100.0 * amount
        return amount / self.real if self.real else math.nan

    @property
    def left(self) -> float:
        """Return the unexplained part, in the unit of ``relative``: the difference of the last simulation."""
        return self.relative(self.parts[UNEXPLAINED])


def split(real: RunFigures, stages: Sequence[Stage]) -> tuple[DifferenceSplit, ...]:
    """Split the differences between a real run and the first stage's simulation by cause.

    Args:
        real: figures of the real run.
        stages: the simulation without a replacement, then simulations with one more replaced cause each.
    """
    made = []
    for name, came in real.figures.items():
        values = [stage.figures.figures.get(name) for stage in stages]
        if not values or None in values:
            continue
        known = [each for each in values if each is not None]
        parts: dict[str, float] = {}
        for stage, before, after in zip(stages[1:], known, known[1:], strict=False):
            parts[stage.cause] = parts.get(stage.cause, 0.0) + after - before
        parts[UNEXPLAINED] = came - known[-1]
        deviation = stages[0].figures.deviations.get(name)
        chance = None if deviation is None else NORMAL_95 * deviation
        made.append(DifferenceSplit(figure=name, real=came, simulated=known[0], parts=parts, chance=chance))
    return tuple(made)


@value
class RhoError:
    """The errors of the simulated rho of apps: simulated / real - 1.

    Attributes:
        apps: number of apps with a real and a simulated rho.
        median_error: median of the errors' absolute values.
        worst_error: the error with the largest absolute value.
        worst_app: the app with the worst error.
    """

    apps: int
    median_error: float
    worst_error: float
    worst_app: str


def rho_error(real: RunFigures, simulated: RunFigures) -> RhoError | None:
    """Return the errors of the simulated rho of apps; None: no app has a real and a simulated rho."""
    errors = {
        app: simulated.rho[app] / came - 1.0 for app, came in real.rho.items() if app in simulated.rho and came > 0.0
    }
    if not errors:
        return None
    worst = max(errors, key=lambda app: abs(errors[app]))
    middle = median(abs(each) for each in errors.values())
    return RhoError(apps=len(errors), median_error=middle, worst_error=errors[worst], worst_app=worst)


def over_repeats(splits: Mapping[str, Sequence[tuple[DifferenceSplit, ...]]]) -> list[tuple[object, ...]]:
    """Return a row for each policy, figure and cause, with its mean and 95 % interval over repeats, as ``HEADINGS``.

    Args:
        splits: by policy, the splits of each repeat.
    """
    rows: list[tuple[object, ...]] = []
    for policy, repeats in splits.items():
        parts: dict[tuple[str, str], list[float]] = defaultdict(list)
        for one in repeats:
            for each in one:
                chance = {} if each.chance is None else {CHANCE: each.chance}
                for cause, amount in {"whole": each.whole, **each.parts, **chance}.items():
                    parts[each.figure, cause].append(each.relative(amount))
        for (figure, cause), amounts in parts.items():
            found = _estimate(amounts)
            if found is not None:
                rows.append((policy, figure, cause, found.count, found.value, found.low, found.high))
    return rows


def _estimate(amounts: Sequence[float]) -> Estimate | None:
    return estimate(amounts, draws_of_seeds(len(amounts)))


def words_of(rows: Sequence[Sequence[Any]]) -> list[str]:
    """Return a line for each policy and figure: the whole difference, and the part that each cause explains."""
    by_figure: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for policy, figure, cause, _, amount, _, _ in rows:
        by_figure[policy, figure][cause] = amount

    def text(figure: str, amount: float) -> str:
        return f"{amount:+.1f} points" if figure in FRACTIONS else f"{amount:+.1%}"

    lines = []
    for (policy, figure), parts in by_figure.items():
        whole, chance = parts.pop("whole"), parts.pop(CHANCE, None)
        causes = ", ".join(f"{cause} {text(figure, amount)}" for cause, amount in parts.items())
        drawn = "" if chance is None else f"; by chance one run is within {text(figure, chance)} of the mean"
        lines.append(f"{policy}, {figure}: real is {text(figure, whole)} from simulated: {causes}{drawn}")
    return lines
