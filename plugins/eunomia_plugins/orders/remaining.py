"""Shared by orders by length: the time that a job has left at its own size, wherever it runs now.

The rate that a job has now is not used: a job with fewer or slower GPUs would look longer, lose its turn, and get it
back in the next round.
"""

import math
from typing import Literal, NamedTuple

import numpy as np

from eunomia import Claims, Menus, Offer, PluginOptions, Scores, Snapshot, Unit, Valuations
from eunomia.contract.valuations import Keys, Line, Lines
from eunomia.model.shapes import Later
from eunomia.units import Ints, Reals, Rows


class LengthOptions(PluginOptions):
    """Options of orders that need the length of a job."""

    unknown: Literal["last", "first"] = "last"
    """Whether jobs of unknown work or rate come last or first."""


class Lengths(NamedTuple):
    """Lengths by job."""

    left: Reals
    """Seconds that it has left; NaN: not known."""
    total: Reals
    """Seconds that it runs in all; NaN: not known."""
    gpus: Ints
    """Its own size: the largest on its menu."""


def lengths(snapshot: Snapshot, menus: Menus, jobs: Rows) -> Lengths:
    """Seconds left and in all at the job's own size."""
    rate = menus.full_rate(jobs)
    rate[rate <= 0.0] = np.nan
    left, total = snapshot.iterations_left(jobs) / rate, snapshot.jobs.iterations[jobs] / rate
    return Lengths(left, total, menus.span(jobs)[1])


def by_length(snapshot: Snapshot, offer: Offer, score: Reals, unknown: str) -> Valuations:
    """Candidates by score and arrival; jobs with score NaN come first or last, as ``unknown`` says."""
    jobs = offer.candidates
    known = np.where(np.isnan(score), np.inf if unknown == "last" else -np.inf, score)
    return Valuations(
        claims=Claims(unit=Unit.JOB, rows=jobs),
        forms=(Scores(score=np.column_stack([known, snapshot.jobs.arrived[jobs]])),),
    )


def by_work_left(
    owner: object, snapshot: Snapshot, menus: Menus, offer: Offer, unknown: str, *, by_gpus: bool
) -> Valuations:
    """Candidates by the work that they have left, and arrival; jobs of unknown work come first or last.

    Args:
        owner: the plugin.
        snapshot: the state of this moment.
        menus: rates by size.
        offer: its candidates are ordered.
        unknown: "last" or "first".
        by_gpus: GPU-seconds, else seconds.
    """

    def of(jobs: Rows) -> Lines:
        return _lines(snapshot, menus, jobs, unknown, by_gpus=by_gpus)

    def line(job: int) -> Line:
        return _line(snapshot, menus, job, unknown, by_gpus=by_gpus)

    def score() -> Reals:
        lines = of(offer.candidates)
        left = lines.at_zero + lines.each_second * snapshot.now
        return np.column_stack([left, snapshot.jobs.arrived[offer.candidates]])

    rows = Later(lambda: offer.candidates)
    return Valuations(
        claims=Claims(unit=Unit.JOB, rows=rows),  # type: ignore[arg-type]
        forms=(Scores(score=Later(score), keys=Keys(owner=owner, of=of, line=line)),),  # type: ignore[arg-type]
    )


def _lines(snapshot: Snapshot, menus: Menus, jobs: Rows, unknown: str, *, by_gpus: bool) -> Lines:
    """The work that jobs have left as lines of time, which end where no work is left."""
    full = menus.full_rate(jobs)
    if by_gpus:
        full = full / np.maximum(menus.span(jobs)[1], 1)
    return _as_columns(snapshot, jobs, full, _last(unknown))


def _line(snapshot: Snapshot, menus: Menus, job: int, unknown: str, *, by_gpus: bool) -> Line:
    """As ``_lines``, for one job."""
    known = menus.only(job)
    if known is None:
        at_zero, each, until = _lines(snapshot, menus, np.array([job]), unknown, by_gpus=by_gpus)
        return at_zero.item(), each.item(), until.item()
    gpus, full = known
    return _one(snapshot, job, full / max(gpus, 1) if by_gpus else full, _last(unknown))


def _last(unknown: str) -> float:
    return math.inf if unknown == "last" else -math.inf


def _one(snapshot: Snapshot, job: int, speed: float, last: float) -> Line:
    """As ``_as_columns`` to the last bit, for one job."""
    if not speed > 0.0:
        return last, 0.0, math.inf
    table = snapshot.jobs
    since, rate = table.since.item(job), table.rate.item(job)
    runs = since == since  # NaN: it does not run
    at_zero = (table.iterations.item(job) - table.done.item(job) + (since * rate if runs else 0.0)) / speed
    each = -rate / speed if runs else 0.0
    if at_zero != at_zero:
        return last, 0.0, math.inf
    if at_zero + each * snapshot.now <= 0.0:
        return 0.0, 0.0, math.inf
    return at_zero, each, at_zero / -each if each < 0.0 else math.inf


def _as_columns(snapshot: Snapshot, jobs: Rows, full: Reals, last: float) -> Lines:
    table = snapshot.jobs
    full = np.where(full > 0.0, full, np.nan)
    since, rate = table.since[jobs], table.rate[jobs]
    runs = since == since
    at_zero = (table.iterations[jobs] - table.done[jobs] + np.where(runs, since * rate, 0.0)) / full
    each = np.where(runs, -rate / full, 0.0)
    over = at_zero + each * snapshot.now <= 0.0
    at_zero, each = np.where(over, 0.0, at_zero), np.where(over, 0.0, each)
    not_known = at_zero != at_zero
    at_zero, each = np.where(not_known, last, at_zero), np.where(not_known, 0.0, each)
    until = np.full(jobs.size, np.inf)
    falls = each < 0.0
    until[falls] = at_zero[falls] / -each[falls]
    return Lines(at_zero, each, until)
