"""Helpers for orders by length: the remaining time of a job at its own size, regardless of its present GPUs.

A job's present rate is not used: a job on fewer or slower GPUs would look longer, be preempted, and be restarted in the
next round.
"""

import math
from typing import Literal, NamedTuple

import numpy as np

from eunomia import Claims, Facts, Menus, Offer, PluginOptions, Scores, Snapshot, Unit, Valuations
from eunomia.contract.keys import Line
from eunomia.units import Ints, Reals, Rows
from eunomia_plugins.orders.coming import seconds_through, through_regimes


class UnknownOptions(PluginOptions):
    """Options of orders that need the length of a job."""

    unknown: Literal["last", "first"] = "last"
    """Whether jobs with unknown work or rate come last or first."""


class LengthOptions(UnknownOptions):
    """Options of ``srtf`` and ``srsf``."""

    size: Literal["largest", "smallest"] = "largest"
    """Whether the length of an elastic job is its run time at its largest or its smallest size."""


class Lengths(NamedTuple):
    """The length of each job, at the size chosen for it."""

    left: Reals
    """Seconds left; NaN: not known."""
    total: Reals
    """Total run time in seconds; NaN: not known."""
    gpus: Ints
    """The job's own size: the largest on its menu."""


def lengths(snapshot: Snapshot, menus: Menus, jobs: Rows) -> Lengths:
    """Return seconds left and total run time at the jobs' own sizes, including known future regimes.

    For a job that changes its batch size, the total is the sum of the seconds that it has run and those left.
    """
    rate = menus.full_rate(jobs)
    rate[rate <= 0.0] = np.nan
    left, total = snapshot.iterations_left(jobs) / rate, snapshot.jobs.iterations[jobs] / rate
    if menus.regimes is not None:
        work = snapshot.iterations_left(jobs)
        coming = np.isin(jobs, menus.regimes.job)
        left[coming] = seconds_through(menus.regimes, jobs[coming], work[coming], rate[coming])
        adapts = coming | np.isin(jobs, list(snapshot.ledger.adaptations))
        total = np.where(adapts, snapshot.ledger.jobs.attained[jobs] + left, total)
    return Lengths(left, total, menus.span(jobs)[1])


def by_length(snapshot: Snapshot, offer: Offer, score: Reals, unknown: str) -> Valuations:
    """Order candidates by score and arrival; jobs with score NaN come first or last, depending on ``unknown``."""
    jobs = offer.candidates
    known = np.where(np.isnan(score), np.inf if unknown == "last" else -np.inf, score)
    return Valuations(
        claims=Claims(unit=Unit.JOB, rows=jobs),
        forms=(Scores(score=np.column_stack([known, snapshot.jobs.arrived[jobs]])),),
    )


class WorkLeft:
    """Keys by the remaining work of jobs at their own sizes, which decrease while the jobs run.

    Args:
        options: options of the order.
        by_gpus: whether work is in GPU-seconds instead of seconds.
    """

    def __init__(self, options: LengthOptions, *, by_gpus: bool) -> None:
        self._by_gpus, self._smallest = by_gpus, options.size == "smallest"
        self._otherwise = math.nan if options.unknown == "last" else -math.inf

    def valuations(self, snapshot: Snapshot, menus: Menus, offer: Offer) -> Valuations:
        """Order candidates by remaining work and arrival; jobs of unknown work come first or last.

        Args:
            snapshot: the current state.
            menus: rates by size, and future regimes if known.
            offer: the offer, whose candidates are ordered.
        """
        return Valuations.by_job(snapshot, menus, offer, self.key)

    def key(self, facts: Facts, job: int) -> Line:
        """Return the key of a job: iterations left divided by its speed, valid until no work is left."""
        size, speed = facts.smallest(job) if self._smallest else facts.largest(job)
        gpus, table = size or 1 if self._by_gpus else 1, facts.jobs
        since, left, slope = table.since[job], table.iterations[job] - table.done[job], 0.0
        pace = speed / gpus if speed > 0.0 else math.nan
        if since == since:  # NaN: it does not run
            rate = table.rate[job]
            left += since * rate
            slope = -rate / pace
        left /= pace
        if left + slope * facts.now <= 0.0:
            left = slope = 0.0
        known = (left, slope, left / -slope if slope < 0.0 else math.inf)
        if left != left:
            known = self._otherwise, 0.0, math.inf
        return known if facts.menus.regimes is None else through_regimes(known, facts, job, speed, gpus)
