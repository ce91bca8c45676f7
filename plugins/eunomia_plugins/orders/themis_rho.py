"""Finish-time fairness (FTF) as an order: jobs with the worst ρ come first."""

from typing import ClassVar

import numpy as np

from eunomia import Contract, Feature, Menus, Offer, Snapshot, Stage, Valuations, hookimpl
from eunomia.contract.contracts import Contracts
from eunomia_plugins.orders.remaining import UnknownOptions, by_length, lengths


class ThemisRho:
    """Largest ρ = T_sh / T_id first (Themis §4.2.1, equation 1), without an auction.

    T_sh is the time since the job's arrival plus its remaining time at its own size. T_id is its total time at that
    size times N_avg, the mean number of apps since its app arrived.
    """

    name = "themis_rho"
    api = 1
    options_type = UnknownOptions
    contracts: ClassVar[Contracts] = {
        Stage.VALUATION: Contract(
            needs=frozenset({Feature.RATES}), gives=frozenset({Feature.SCORES, Feature.JOB_CLAIMS})
        )
    }

    def __init__(self, options: UnknownOptions) -> None:
        self.options = options

    @hookimpl
    def eunomia_valuation(self, snapshot: Snapshot, menus: Menus, offer: Offer) -> Valuations:
        """Score each candidate by minus its ρ."""
        jobs = offer.candidates
        work = lengths(snapshot, menus, jobs)
        contention = np.maximum(np.nan_to_num(offer.contention[snapshot.jobs.app[jobs]], nan=1.0), 1.0)
        shared = snapshot.now - snapshot.jobs.arrived[jobs] + work.left
        with np.errstate(divide="ignore", invalid="ignore"):
            rho = shared / (work.total * contention)
        return by_length(snapshot, offer, -rho, self.options.unknown)
