"""Helpers of orders by length: the remaining time of a job at its own size, regardless of its present GPUs.

The rate that a job has now is not used: a job with fewer or slower GPUs would look longer, lose its turn, and get it
back in the next round.
"""

from typing import Literal, NamedTuple

import numpy as np

from eunomia import Claims, LinearKey, Menus, Offer, PluginOptions, Scores, Snapshot, Unit, Valuations
from eunomia.units import Ints, Reals, Rows
from eunomia_plugins.orders.coming import Now, seconds_through, through_regimes


class UnknownOptions(PluginOptions):
    """Options of orders that need the length of a job, whatever its size."""

    unknown: Literal["last", "first"] = "last"
    """Whether jobs of unknown work or rate come last or first."""


class LengthOptions(UnknownOptions):
    """Options of ``srtf`` and ``srsf``."""

    size: Literal["largest", "smallest"] = "largest"
    """The size of an elastic job at which its length counts."""


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


def by_work_left(
    snapshot: Snapshot, menus: Menus, offer: Offer, options: LengthOptions, *, by_gpus: bool
) -> Valuations:
    """Candidates by the work that they have left, and arrival; jobs of unknown work come first or last.

    Args:
        snapshot: the current state.
        menus: rates by size, and coming regimes where they are known.
        offer: its candidates are ordered.
        options: of the order.
        by_gpus: whether work is in GPU-seconds rather than seconds.
    """
    otherwise = np.nan if options.unknown == "last" else -np.inf
    smallest = options.size == "smallest" and not menus.one_size

    def key(jobs: Rows) -> LinearKey:
        speed = _least_rate(menus, jobs) if smallest else menus.full_rate(jobs)
        gpus = np.maximum(menus.span(jobs)[0 if smallest else 1], 1) if by_gpus else np.ones(jobs.size)
        known = _work_left(snapshot, jobs, speed / gpus, otherwise)
        if menus.regimes is None:
            return known
        running = snapshot.jobs.since[jobs] == snapshot.jobs.since[jobs]  # NaN: it does not run
        rate = np.where(running, snapshot.jobs.rate[jobs], 0.0)
        now = Now(left=snapshot.iterations_left(jobs), rate=rate, seconds=snapshot.now, gpus=gpus)
        return through_regimes(known, menus, jobs, speed, now)

    return Valuations.by_key(snapshot, offer, key)


def _least_rate(menus: Menus, jobs: Rows) -> Reals:
    """By job, iterations a second at the smallest size on its menu; NaN: not known."""
    curves, first, owner = np.unique(menus.curve[jobs], return_index=True, return_inverse=True)
    least = menus.span(jobs[first])[0].tolist()
    rates = [menus.rate(job, size) for job, size in zip(jobs[first].tolist(), least, strict=True)]
    found: Reals = np.where(curves < 0, np.nan, np.array(rates, float))[owner]
    return found


def _work_left(snapshot: Snapshot, jobs: Rows, speed: Reals, otherwise: float) -> LinearKey:
    """Return the iterations left divided by a speed, as a key that falls until no work is left.

    Args:
        snapshot: the current state.
        jobs: job rows.
        speed: by job, iterations per unit of work.
        otherwise: the key of jobs whose work or speed is not known.
    """
    table = snapshot.jobs
    speed = np.where(speed > 0.0, speed, np.nan)
    since, left = table.since[jobs], table.iterations[jobs] - table.done[jobs]
    slope, until = np.zeros(jobs.size), np.full(jobs.size, np.inf)
    runs = (since == since).nonzero()[0]  # NaN: it does not run
    if runs.size:
        rate = table.rate[jobs[runs]]
        left[runs] += since[runs] * rate
        slope[runs] = -rate / speed[runs]
    left /= speed
    over = left + slope * snapshot.now <= 0.0
    left[over] = slope[over] = 0.0
    unknown = left != left
    left[unknown], slope[unknown] = otherwise, 0.0
    falls = (slope < 0.0).nonzero()[0]
    if falls.size:
        until[falls] = left[falls] / -slope[falls]
    return LinearKey(intercept=left, slope=slope, valid_until=until)
