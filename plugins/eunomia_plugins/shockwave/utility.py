"""Utility over a planning window: progress by regimes, and ρ to the k-th power as the budget (equations 7 and 9)."""

from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from eunomia import (
    Claims,
    Contract,
    Duration,
    Explanation,
    Feature,
    Menus,
    Offer,
    OverTime,
    PluginOptions,
    Seconds,
    Snapshot,
    Stage,
    Unit,
    Valuations,
    hookimpl,
)
from eunomia.contract.contracts import Contracts
from eunomia.units import Reals, Rows
from eunomia_plugins.shockwave.outlook import Outlook, outlook
from eunomia_plugins.shockwave.urgency import urgency

MOST_WEIGHT = 1e12
"""Bound of ρ^k, with which sums keep small weights exact enough."""


class ShockwaveUtilityOptions(PluginOptions):
    """Options of ``shockwave_utility``."""

    window: Annotated[int, Field(ge=1, le=1000)] = 20
    """T, the number of planned rounds: 20 in §6.1, 30 in Appendix G."""
    round_length: Annotated[Duration, Field(gt=0.0)] = Seconds(120.0)
    """D, the length of a round."""
    k: Annotated[float, Field(ge=0.0, le=100.0)] = 5.0
    """Power of ρ in a job's weight; 1 to 10 in §6.1."""
    contention: Annotated[float, Field(ge=0.0, allow_inf_nan=False)] = 0.0
    """N_avg, a job's run time under a fair share over its own; 0: apps per GPU over the life of its app, at least 1."""
    ahead: Literal["shared", "alone"] = "shared"
    """How fast the remaining work proceeds, for ρ: at a fair share as in equation (9), or alone, if the job runs from
    now on. With ``alone`` ρ reaches 1 when the job must run without a break to be fair, and urgent jobs stand out."""
    budget: Literal["rho", "urgency"] = "rho"
    """The weight of a job: ρ^k as in equation (9), or by urgency, where a GPU-round is worth more for a shorter job, a
    job on the critical path, and a job with ρ near 1. The paper does not have urgency."""


class ShockwaveUtility:
    """Progress of each job by rounds granted, weighted by ρ^k: a job at risk of being unfair gets a larger budget."""

    name = "shockwave_utility"
    api = 1
    options_type = ShockwaveUtilityOptions
    contracts: ClassVar[Contracts] = {
        Stage.VALUATION: Contract(
            needs=frozenset({Feature.RATES}), gives=frozenset({Feature.OVER_TIME, Feature.JOB_CLAIMS})
        )
    }

    def __init__(self, options: ShockwaveUtilityOptions) -> None:
        self.options = options

    @hookimpl
    def eunomia_valuation(self, snapshot: Snapshot, menus: Menus, offer: Offer) -> Valuations:
        """Return UTIL of each active job after 0 to T rounds of the window, and ρ^k."""
        jobs = snapshot.active
        seen = outlook(snapshot, menus, jobs)
        length, window = float(self.options.round_length), self.options.window
        utility = seen.progress_after(window, length)
        unknown = np.isnan(utility).any(axis=1)
        utility[unknown] = np.arange(window + 1) / window  # as if the job took the window
        weight = self._weight(snapshot, menus, offer, seen, utility)
        return Valuations(
            claims=Claims(unit=Unit.JOB, rows=jobs, weight=np.clip(weight, 1.0 / MOST_WEIGHT, MOST_WEIGHT)),
            forms=(OverTime(utility=utility, round_seconds=Seconds(length)),),
        )

    @hookimpl
    def eunomia_explain(self) -> Explanation:
        """Return the factors of a job's weight."""
        text = "A job weighs the more, the later it is expected to finish compared with a fair share."
        if self.options.budget == "urgency":
            text = "A job weighs the more, the shorter it is, the nearer ρ is to 1, and on the critical path."
        return Explanation(text=text, numbers={})

    def _weight(self, snapshot: Snapshot, menus: Menus, offer: Offer, seen: Outlook, utility: Reals) -> Reals:
        jobs = snapshot.active
        stretch = self._stretch(snapshot, offer, jobs)
        if self.options.budget == "rho":
            with np.errstate(over="ignore"):  # bounded by the caller
                return self._rho(snapshot, jobs, seen, stretch) ** self.options.k
        gpus = menus.span(jobs)[1]
        until = snapshot.jobs.arrived[jobs] + seen.total * stretch - snapshot.now
        running = np.isin(jobs, snapshot.holdings.job)
        worth = urgency(seen, until, gpus, running, int(offer.capacity.sum()))
        step = np.maximum(utility[:, 1] - utility[:, 0], 1.0 / MOST_WEIGHT)
        found: Reals = worth * gpus / step
        return found

    def _stretch(self, snapshot: Snapshot, offer: Offer, jobs: Rows) -> Reals:
        """Return by job its run time under a fair share over its own."""
        if self.options.contention > 0.0:
            return np.full(jobs.size, self.options.contention)
        apps = np.nan_to_num(offer.contention[snapshot.jobs.app[jobs]], nan=1.0)
        return np.maximum(apps / max(1, int(offer.capacity.sum())), 1.0)

    def _rho(self, snapshot: Snapshot, jobs: Rows, seen: Outlook, stretch: Reals) -> Reals:
        """Equation (9): (L + W + R N_avg) / (P N_avg); 1 for jobs of unknown length."""
        since = np.maximum(snapshot.now - snapshot.jobs.arrived[jobs], 0.0)
        ahead = seen.left * (stretch if self.options.ahead == "shared" else 1.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            found = (since + ahead) / (seen.total * stretch)
        rho: Reals = np.where(np.isfinite(found), found, 1.0)
        return rho
