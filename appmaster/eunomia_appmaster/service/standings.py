"""The finish-time fairness of each app now, by the profile's valuation of its holdings."""

import math
from collections.abc import Callable

import structlog

from eunomia.contract.bundles import ByBundle
from eunomia.round.arbiter import Arbiter
from eunomia.units import AppId, Unit
from eunomia_appmaster.service.app_record import App
from eunomia_appmaster.system import MACHINE, System

log = structlog.get_logger()

KEPT_SECONDS = 1.0
"""Seconds for which a value is shown before it is computed again."""


class Standings:
    """Finish-time fairness by app, if the valuation has it; to be called under the driver's lock.

    Args:
        arbiter: returns the arbiter.
        system: has the machine's clock.
    """

    def __init__(self, arbiter: Callable[[], Arbiter], *, system: System = MACHINE) -> None:
        self._system = system
        self._arbiter = arbiter
        self._rhos: dict[str, float] = {}
        self._asked_at = -math.inf

    def rho(self, app: App, *, refresh: bool = False) -> float | None:
        """Returns rho of an app, its last known value if it is over; None if it never had one.

        Args:
            app: its record.
            refresh: compute it now, even if a recent value is cached.
        """
        if app.over or not self._is_known(app):
            return app.rho
        if refresh or self._system.monotonic() - self._asked_at > KEPT_SECONDS:
            self._rhos, self._asked_at = self._ask(), self._system.monotonic()
        app.rho = self._rhos.get(app.name, app.rho)
        return app.rho

    def _is_known(self, app: App) -> bool:
        """Whether it has jobs and has reported its remaining work: before that, any rho is a guess."""
        state = self._arbiter().state
        row = state.app_row(AppId(app.name))
        return row in state.forecasts and bool((state.jobs.live.app[: state.jobs.used] == row).any())

    def _ask(self) -> dict[str, float]:
        arbiter = self._arbiter()
        try:
            standings = arbiter.standings()
        except Exception as error:  # a plugin's fault must not cost a screen
            log.info("standings.failed", why=str(error))
            return {}
        table = next((form for form in standings.forms if isinstance(form, ByBundle)), None)
        if table is None or standings.claims.unit is not Unit.APP:
            return {}
        rhos = zip(standings.claims.rows.tolist(), table.now.tolist(), strict=True)
        return {str(arbiter.state.app_id(row)): float(rho) for row, rho in rhos if math.isfinite(rho)}
