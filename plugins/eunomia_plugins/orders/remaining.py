"""Helpers of orders by length: the remaining time of a job at its own size, regardless of its present GPUs.

The rate that a job has now is not used: a job with fewer or slower GPUs would look longer, lose its turn, and get it
back in the next round.
"""

import math
from typing import Literal, NamedTuple

import numpy as np

from eunomia import Claims, Facts, Menus, Offer, PluginOptions, Scores, Snapshot, Unit, Valuations
from eunomia.contract.keys import Line
from eunomia.units import Ints, Reals, Rows
from eunomia_plugins.orders.coming import seconds_through, through_regimes


class UnknownOptions(PluginOptions):
    """Options of orders that need the length of a job, whatever its size."""

    unknown: Literal["last", "first"] = "last"
    """Whether jobs of unknown work or rate come last or first."""


class LengthOptions(UnknownOptions):
    """Options of ``srtf`` and ``srsf``."""

    size: Literal["largest", "smallest"] = "largest"
    """Whether the length of an elastic job is its run time at its largest or its smallest size."""


class Lengths(NamedTuple):
    """The job size whose run time counts as the job's length, for each job."""

    left: Reals
    """Seconds that it has left; NaN: not known."""
    total: Reals
    """Seconds that it runs in all; NaN: not known."""
    gpus: Ints
    """Its own size: the largest on its menu."""


def lengths(snapshot: Snapshot, menus: Menus, jobs: Rows) -> Lengths:
    """Return the seconds left and in total at the job's own size, through known coming regimes.

    Of a job that changes its batch size, the seconds that it has run and those left are its total.
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
    """Order candidates by score and arrival; jobs with score NaN come first or last, as ``unknown`` selects."""
    jobs = offer.candidates
    known = np.where(np.isnan(score), np.inf if unknown == "last" else -np.inf, score)
    return Valuations(
        claims=Claims(unit=Unit.JOB, rows=jobs),
        forms=(Scores(score=np.column_stack([known, snapshot.jobs.arrived[jobs]])),),
    )


class WorkLeft:
    """Keys by the work that jobs have left at their own sizes, which fall while the jobs run.

    Args:
        options: of the order.
        by_gpus: whether work is in GPU-seconds rather than seconds.
    """

    def __init__(self, options: LengthOptions, *, by_gpus: bool) -> None:
        self._by_gpus, self._smallest = by_gpus, options.size == "smallest"
        self._otherwise = math.nan if options.unknown == "last" else -math.inf

    def valuations(self, snapshot: Snapshot, menus: Menus, offer: Offer) -> Valuations:
        """Return the candidates by the work that they have left, and arrival; jobs of unknown work come first or last.

        Args:
            snapshot: the current state.
            menus: rates by size, and coming regimes where they are known.
            offer: its candidates are ordered.
        """
        return Valuations.by_job(snapshot, menus, offer, self.key)

    def key(self, facts: Facts, job: int) -> Line:
        """Return the iterations left divided by the job's speed, until no work is left."""
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
