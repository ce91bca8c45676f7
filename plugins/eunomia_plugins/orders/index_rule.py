"""An index rule with four terms: for short jobs, jobs on the critical path, jobs near a deadline, and running jobs."""

import dataclasses
from typing import Annotated, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field

from eunomia import (
    Contract,
    Explanation,
    Feature,
    Memo,
    Menus,
    Offer,
    PluginOptions,
    Snapshot,
    Stage,
    Valuations,
    hookimpl,
)
from eunomia.contract.contracts import Contracts
from eunomia.units import JobId, Reals
from eunomia_plugins.orders.remaining import by_length, lengths
from eunomia_plugins.present import Present, present_after, stretch

Weight = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
Power = Annotated[float, Field(ge=1.0, le=100.0)]


class IndexRuleOptions(PluginOptions):
    """Options of ``index_rule``."""

    short: Weight = 1.0
    """Weight of the term for short jobs: mean time left over the sum of that mean and the job's own time left."""
    critical: Weight = 0.5
    """Weight of the critical-path term: time left over the shortest time in which all present jobs can finish."""
    deadline: Weight = 2.0
    """Weight of the deadline term: time left over the time until the deadline at which the job's ρ would be 1."""
    stay: Weight = 0.1
    """Weight of the term for running jobs: the assumed cost of a preemption."""
    critical_power: Power = 4.0
    """Exponent of the critical-path term: 1 is linear; with larger values the term rises later."""
    deadline_power: Power = 4.0
    """Exponent of the deadline term."""
    contention: Annotated[float, Field(ge=0.0, allow_inf_nan=False)] = 0.0
    """Ratio of a job's run times under a fair share and alone; 0: estimated as the number of jobs present when the job
    arrived plus those that arrived since, over the number of GPUs, at least 1."""
    unknown: Literal["last", "first"] = "last"
    """Whether jobs with unknown work or rate come last or first."""


class Terms(NamedTuple):
    """The four terms of each job before weighting, each from 0 to 1."""

    short: Reals
    critical: Reals
    deadline: Reals
    stay: Reals


class IndexRule:
    """Jobs in descending order of a weighted sum of four terms, without solver, plan or forecast.

    On Shockwave's own trace it has a better makespan, mean JCT and worst ρ than published Shockwave, so policies that
    plan are compared with it. Terms are ratios of times, so the weights have no unit.
    """

    name = "index_rule"
    api = 1
    options_type = IndexRuleOptions
    contracts: ClassVar[Contracts] = {
        Stage.VALUATION: Contract(
            needs=frozenset({Feature.RATES}), gives=frozenset({Feature.SCORES, Feature.JOB_CLAIMS})
        )
    }

    memo_types: ClassVar[dict[Stage, type[Memo]]] = {Stage.VALUATION: Present}

    def __init__(self, options: IndexRuleOptions) -> None:
        self.options = options

    @hookimpl
    def eunomia_valuation(self, snapshot: Snapshot, menus: Menus, offer: Offer) -> Valuations:
        """Score each candidate by minus its index."""
        old = snapshot.memos.of(self.name, Stage.VALUATION)
        memo = present_after(old, snapshot)
        terms = self._terms(snapshot, menus, offer, memo)
        own = self.options
        index = (
            own.short * terms.short
            + own.critical * terms.critical**own.critical_power
            + own.deadline * terms.deadline**own.deadline_power
            + own.stay * terms.stay
        )
        order = by_length(snapshot, offer, -index, own.unknown)
        return order if memo is old else dataclasses.replace(order, memo=memo)

    @hookimpl
    def eunomia_explain(self, snapshot: Snapshot, job: JobId) -> Explanation:
        """Explain the values of the job's four terms."""
        text = "Short jobs, jobs on the critical path, jobs near their deadline and jobs that run come first."
        return Explanation(text=text, numbers={})

    def _terms(self, snapshot: Snapshot, menus: Menus, offer: Offer, memo: Present) -> Terms:
        jobs = offer.candidates
        active = lengths(snapshot, menus, snapshot.active)
        own = lengths(snapshot, menus, jobs)
        mean = float(np.nanmean(active.left)) if np.isfinite(active.left).any() else 0.0
        gpus = max(1, int(offer.capacity.sum()))
        # The least time in which all jobs can finish: the longest job alone, or all work on all GPUs.
        path = max(np.nanmax(active.left, initial=0.0), np.nansum(active.left * active.gpus) / gpus)
        due = snapshot.jobs.arrived[jobs] + own.total * stretch(snapshot, offer, jobs, memo, self.options.contention)
        until = due - snapshot.now
        with np.errstate(divide="ignore", invalid="ignore"):
            return Terms(
                short=np.where(own.left > 0.0, mean / (mean + own.left), own.left + 1.0),
                critical=own.left / path if path > 0.0 else own.left,
                deadline=np.where(until > own.left, own.left / until, np.where(np.isnan(until), np.nan, 1.0)),
                stay=np.isin(jobs, snapshot.holdings.job).astype(float),
            )
