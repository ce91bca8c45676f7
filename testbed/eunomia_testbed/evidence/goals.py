"""The goals by which policies are judged, each a column of ``summary.csv`` and a direction."""

from __future__ import annotations

from typing import Final

from eunomia.model.shapes import value

FEWEST_APPS_FOR_P99: Final = 300
"""Fewest apps for which resamples give the 99th percentile an interval; with fewer, one or two apps determine it."""


@value
class Goal:
    """A goal of the cluster's owner, by which policies are compared.

    Attributes:
        name: the goal as a value of ``--goal``.
        label: the goal in words, such as ``shortest mean JCT``.
        figure: the column of ``summary.csv`` that measures the goal.
        more_is_better: whether a larger figure is better.
        relative: whether policies are compared by ratios; otherwise by differences, for figures that may be 0.
        unit: ``s``, or empty for a plain number.
    """

    name: str
    label: str
    figure: str
    more_is_better: bool = False
    relative: bool = True
    unit: str = ""


MEAN_JCT: Final = Goal(name="mean_jct", label="Shortest mean JCT", figure="jct_mean_seconds", unit="s")
_TAIL_JCT: Final = Goal(name="p99_jct", label="Shortest p99 JCT", figure="jct_p99_seconds", unit="s")
_END: Final = Goal(name="end", label="Earliest end", figure="makespan_seconds", unit="s")
_WORK: Final = Goal(name="work", label="Most work while jobs waited", figure="work_while_waiting", more_is_better=True)
_MOVES: Final = Goal(name="moves", label="Fewest moves", figure="moves_per_job", relative=False)
FAIRNESS: Final = "fairness"
"""The value of ``--goal`` for the fairest policy; the kind of ρ determines the goal's figure."""
GOALS: Final = ("mean_jct", "p99_jct", "end", "work", FAIRNESS, "moves")
"""The values of ``--goal``, in the order of screens and pages."""


def fairness_goals(kind: str, apps: int) -> tuple[Goal, ...]:
    """Return the fairness goals for one kind of ρ: mean, 90th and 99th percentile, and the fraction of apps above 1.

    The worst ρ is not a goal, since a single app determines it. Screens show the 90th percentile.

    Args:
        kind: themis, static, contention or exclusive.
        apps: number of apps; the 99th percentile is a goal from ``FEWEST_APPS_FOR_P99`` apps on.
    """
    ways = [("p90", "90th percentile of ρ", True), ("mean", "mean ρ", True), ("above_1_share", "part above 1", False)]
    if apps >= FEWEST_APPS_FOR_P99:
        ways.append(("p99", "99th percentile of ρ", True))
    return tuple(
        Goal(name=f"{FAIRNESS}_{kind}_{way}", label=label, figure=f"rho_{kind}_{way}", relative=relative)
        for way, label, relative in ways
    )


def plain_goals() -> tuple[Goal, ...]:
    """Return the goals that do not depend on the kind of ρ."""
    return (MEAN_JCT, _TAIL_JCT, _END, _WORK, _MOVES)
