"""Orders of whole apps, as baselines of Themis (§6.1): Tiresias' least service, SRTF and SRSF by app."""

from typing import ClassVar, Literal

import numpy as np

from eunomia import (
    Claims,
    Contract,
    Feature,
    Forecast,
    Menus,
    Offer,
    PluginOptions,
    Scores,
    Snapshot,
    Stage,
    Unit,
    Valuations,
    hookimpl,
)
from eunomia.contract.contracts import Contracts
from eunomia.units import Reals


class AppOrderOptions(PluginOptions):
    """Options of ``app_order``."""

    by: Literal["least_service", "remaining_time", "remaining_service"] = "least_service"
    """The score of an app: GPU-seconds received (Tiresias), seconds left on all GPUs that it can use (SRTF), or
    GPU-seconds left (SRSF)."""


class AppOrder:
    """The app with the lowest score comes first; jobs of an app are ordered by arrival.

    In contrast, ``las``, ``srtf`` and ``srsf`` order single jobs, which differs for searches with many trials: a short
    trial of a long search is not a short app.
    """

    name = "app_order"
    api = 1
    options_type = AppOrderOptions
    contracts: ClassVar[Contracts] = {
        Stage.VALUATION: Contract(
            needs=frozenset({Feature.RATES}), gives=frozenset({Feature.SCORES, Feature.APP_CLAIMS})
        )
    }

    def __init__(self, options: AppOrderOptions) -> None:
        self.options = options

    @hookimpl
    def eunomia_valuation(self, snapshot: Snapshot, menus: Menus, offer: Offer) -> Valuations:
        """Score each app that has a candidate job."""
        apps = np.unique(snapshot.jobs.app[offer.candidates]).astype(np.int32)
        if self.options.by == "least_service":
            score: Reals = snapshot.ledger.apps.gpu_seconds[apps]
        else:
            score = self._left(snapshot, menus, offer, apps)
        return Valuations(
            claims=Claims(unit=Unit.APP, rows=apps),
            forms=(Scores(score=np.column_stack([score, snapshot.apps.arrived[apps]])),),
        )

    def _left(
        self, snapshot: Snapshot, menus: Menus, offer: Offer, apps: "np.ndarray[tuple[int, ...], np.dtype[np.int32]]"
    ) -> Reals:
        """Return the work left of each app, by its forecast or its active jobs; apps with unknown work come last."""
        active = snapshot.active
        full = menus.full_rate(active)
        most = menus.span(active)[1]
        with np.errstate(divide="ignore", invalid="ignore"):
            service = np.where(full > 0.0, snapshot.iterations_left(active) / full, np.nan) * most
        rows = snapshot.apps.arrived.size
        left = np.bincount(snapshot.jobs.app[active], weights=np.nan_to_num(service, nan=np.inf), minlength=rows)
        width = np.bincount(snapshot.jobs.app[active], weights=most, minlength=rows)
        for app, forecast in snapshot.forecasts.items():
            left[app], width[app] = _work(forecast), forecast.most
        if self.options.by == "remaining_service":
            return np.asarray(left[apps])
        return np.asarray(left[apps] / np.clip(width[apps], 1.0, float(offer.capacity.sum())))


def _work(forecast: Forecast) -> float:
    """Return the serial GPU-seconds left of an app."""
    return sum(job.iterations_left * job.seconds_per_iteration for phase in forecast.phases for job in phase.jobs)
