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
    Memo,
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
from eunomia_plugins.present import Present, Sharing, present_after, stretch
from eunomia_plugins.shockwave.outlook import Outlook, outlook

MOST_WEIGHT = 1e12
"""Upper bound on ρ^k, above which sums would lose the precision of small weights."""


class ShockwaveUtilityOptions(PluginOptions):
    """Options of ``shockwave_utility``."""

    window: Annotated[int, Field(ge=1, le=1000)] = 20
    """T, the number of planned rounds: 20 in §6.1, 30 in Appendix G."""
    round_length: Annotated[Duration, Field(gt=0.0)] = Seconds(120.0)
    """D, the length of a round in seconds."""
    k: Annotated[float, Field(ge=0.0, le=100.0)] = 5.0
    """Exponent of ρ in a job's weight; 1 to 10 in §6.1."""
    contention: Annotated[float, Field(ge=0.0, allow_inf_nan=False)] = 0.0
    """N_avg: ratio of a job's run times under a fair share and alone, at least 1; 0: counted, see ``sharing``."""
    sharing: Sharing = "average"
    """How N_avg is counted if ``contention`` is 0."""
    ahead: Literal["shared", "alone"] = "shared"
    """Speed of the remaining work in ρ: under a fair share as in equation (9) (``shared``), or of the job running alone
    from now on (``alone``): then ρ reaches 1 when the job must run without interruption to be fair."""


class ShockwaveUtility:
    """The progress of each job by rounds granted, weighted by ρ^k: a job at risk of unfairness gets a larger budget."""

    name = "shockwave_utility"
    api = 1
    options_type = ShockwaveUtilityOptions
    contracts: ClassVar[Contracts] = {
        Stage.VALUATION: Contract(
            needs=frozenset({Feature.RATES}), gives=frozenset({Feature.OVER_TIME, Feature.JOB_CLAIMS})
        )
    }
    memo_types: ClassVar[dict[Stage, type[Memo]]] = {Stage.VALUATION: Present}

    def __init__(self, options: ShockwaveUtilityOptions) -> None:
        self.options = options

    @hookimpl
    def eunomia_valuation(self, snapshot: Snapshot, menus: Menus, offer: Offer) -> Valuations:
        """Return the utility UTIL of each active job after 0 to T rounds of the window, and its weight ρ^k."""
        jobs = snapshot.active
        seen = outlook(snapshot, menus, jobs)
        length, window = float(self.options.round_length), self.options.window
        utility = seen.progress_after(window, length)
        unknown = np.isnan(utility).any(axis=1)
        utility[unknown] = np.arange(window + 1) / window  # as if the job took the window
        old = snapshot.memos.of(self.name, Stage.VALUATION)
        memo = self._present(snapshot, old)
        fair = stretch(snapshot, offer, jobs, memo, self.options.contention)
        with np.errstate(over="ignore"):  # bounded below
            weight = self._rho(snapshot, jobs, seen, fair) ** self.options.k
        return Valuations(
            claims=Claims(unit=Unit.JOB, rows=jobs, weight=np.clip(weight, 1.0 / MOST_WEIGHT, MOST_WEIGHT)),
            forms=(OverTime(utility=utility, round_seconds=Seconds(length)),),
            memo=None if memo is old else memo,
        )

    @hookimpl
    def eunomia_explain(self) -> Explanation:
        """Explain the factors of a job's weight."""
        text = "A job weighs the more, the later it is expected to finish compared with a fair share."
        return Explanation(text=text, numbers={})

    def _present(self, snapshot: Snapshot, old: Memo | None) -> Present | None:
        """Return the counters of arrivals if N_avg is counted from them, else None."""
        if self.options.contention > 0.0 or self.options.sharing == "average":
            return None
        return present_after(old, snapshot)

    def _rho(self, snapshot: Snapshot, jobs: Rows, seen: Outlook, fair: Reals) -> Reals:
        """Return ρ by equation (9): (L + W + R N_avg) / (P N_avg); 1 for jobs of unknown length."""
        since = np.maximum(snapshot.now - snapshot.jobs.arrived[jobs], 0.0)
        ahead = seen.left * (fair if self.options.ahead == "shared" else 1.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            found = (since + ahead) / (seen.total * fair)
        rho: Reals = np.where(np.isfinite(found), found, 1.0)
        return rho
