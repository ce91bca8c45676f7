"""The expected finish-time fairness ρ of each app, computed at most once per second."""

import dataclasses
import math
from collections.abc import Callable

from eunomia.arbiter import Arbiter
from eunomia.units import AppId, Seconds
from eunomia_appmaster.node.system import MACHINE, System
from eunomia_appmaster.service.app_record import App
from eunomia_appmaster.service.prediction import expected_rhos

KEPT_SECONDS = 1.0
"""Seconds for which a computed value is reused."""


class Standings:
    """Expected finish-time fairness by app, under any policy; call it under the driver's lock.

    Args:
        arbiter: a function that returns the arbiter.
        system: has the machine's clock.
    """

    def __init__(self, arbiter: Callable[[], Arbiter], *, system: System = MACHINE) -> None:
        self._system = system
        self._arbiter = arbiter
        self._rhos: dict[str, float] = {}
        self._asked_at = -math.inf

    def rho(self, app: App) -> float | None:
        """Return an app's expected rho, or the one with which it ended; None if it has none."""
        if app.over or not self._is_known(app):
            return app.rho
        if self._system.monotonic() - self._asked_at > KEPT_SECONDS:
            self._rhos, self._asked_at = self._ask(), self._system.monotonic()
        app.rho = self._rhos.get(app.name, app.rho)
        return app.rho

    def settle(self, app: App) -> None:
        """Set the final rho of an app that ends now, from its last reported work and its time in the cluster.

        Its jobs may have ended before; without a report of its work, it keeps the last known value.
        """
        view = self._arbiter().view
        row = view.app_row(AppId(app.name))
        forecast = view.reports.forecasts.get(row)
        if forecast is not None and forecast.total_gpu_seconds > 0.0:
            found = expected_rhos(view.show(), {row: dataclasses.replace(forecast, phases=())}, Seconds(math.inf))
            app.rho = found.get(app.name, app.rho)

    def _is_known(self, app: App) -> bool:
        """Return whether the app has jobs and has reported its remaining work; before that, rho would be a guess."""
        view = self._arbiter().view
        row = view.app_row(AppId(app.name))
        return row in view.reports.forecasts and view.jobs_of(row).size > 0

    def _ask(self) -> dict[str, float]:
        arbiter = self._arbiter()
        lease, view = arbiter.serving.rounds.lease, arbiter.view
        return expected_rhos(view.show(), view.reports.forecasts, Seconds(math.inf) if lease is None else lease)
