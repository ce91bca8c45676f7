"""What orders by length share: how long a job would still run at its own size, wherever it runs now."""

from typing import Literal, NamedTuple

import numpy as np

from eunomia import Claims, Menus, Offer, PluginOptions, Scores, Snapshot, Unit, Valuations
from eunomia.units import Ints, Reals, Rows


class LengthOptions(PluginOptions):
    """Options of orders that must know how long a job is."""

    unknown: Literal["last", "first"] = "last"
    """Where jobs go whose work or rate is not known."""


class Lengths(NamedTuple):
    """By job."""

    left: Reals
    """Seconds that it would still run; NaN: not known."""
    total: Reals
    """Seconds that it runs in all."""
    gpus: Ints
    """Its own size: the largest on its menu."""


def lengths(snapshot: Snapshot, menus: Menus, jobs: Rows) -> Lengths:
    """Seconds left and in all at the job's own size.

    The rate that a job runs at now says nothing here: a job that was given fewer GPUs, or worse ones, would look
    longer, lose its turn, and take it back at the next round.
    """
    rate = menus.full_rate(jobs)
    rate[rate <= 0.0] = np.nan
    left, total = snapshot.iterations_left(jobs) / rate, snapshot.jobs.iterations[jobs] / rate
    return Lengths(left, total, menus.span(jobs)[1])


def by_length(snapshot: Snapshot, offer: Offer, score: Reals, unknown: str) -> Valuations:
    """Candidates by score and arrival; NaN goes where the option says."""
    jobs = offer.candidates
    known = np.where(np.isnan(score), np.inf if unknown == "last" else -np.inf, score)
    return Valuations(
        claims=Claims(unit=Unit.JOB, rows=jobs),
        forms=(Scores(score=np.column_stack([known, snapshot.jobs.arrived[jobs]])),),
    )
