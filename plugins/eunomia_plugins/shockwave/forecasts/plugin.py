"""The elasticity ``shockwave_forecast``: whole gangs, and the expected future regimes of jobs."""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from eunomia import Contract, Explanation, Feature, Memo, Menus, Regimes, Snapshot, Stage, hookimpl
from eunomia.contract.contracts import Contracts
from eunomia.contract.menus import announced
from eunomia.units import JobId
from eunomia_plugins.shockwave.forecasts.jobs import Forecast, Forecasts, forecast_rows, progress_of
from eunomia_plugins.shockwave.forecasts.memo import Beliefs
from eunomia_plugins.shockwave.forecasts.menus import gang_menus
from eunomia_plugins.shockwave.forecasts.options import ShockwaveForecastOptions
from eunomia_plugins.shockwave.forecasts.rates import KnownRates
from eunomia_plugins.shockwave.forecasts.record import ForecastRecord
from eunomia_plugins.shockwave.forecasts.words import explanation

_NONE = Regimes(job=np.empty(0, np.int32), iterations=np.empty(0), rate=np.empty(0), batch_size=np.empty(0))
"""Empty regimes, for jobs that are expected to keep their present batch size."""


class ShockwaveForecast:
    """Forecasts batch sizes by the mode that jobs declare, and epochs by a Dirichlet posterior (Shockwave, §5).

    A job must declare epochs, samples per epoch, a batch size and the mode ``accordion`` or ``gns``. Other jobs, and
    jobs that break the pattern of their mode, are expected to keep their present batch size. Announced regimes take
    precedence. Forecasts use only jobs' declarations, past adaptations, and measured rates.
    """

    name = "shockwave_forecast"
    api = 1
    options_type = ShockwaveForecastOptions
    contracts: ClassVar[Contracts] = {Stage.ELASTICITY: Contract(gives=frozenset({Feature.RATES, Feature.REGIMES}))}
    memo_types: ClassVar[dict[Stage, type[Memo]]] = {Stage.ELASTICITY: Beliefs}

    def __init__(self, options: ShockwaveForecastOptions) -> None:
        self.options = options
        self._forecasts = Forecasts(options)

    @hookimpl
    def eunomia_elasticity(self, snapshot: Snapshot) -> Menus:
        """Give each active job its maximum size, and the mean trajectory of its posterior as future regimes."""
        known = KnownRates(snapshot, self.options.gain)
        menus = gang_menus(snapshot, known)
        found = self._forecasts.of(snapshot, menus, known)
        coming = {job: one.coming for job, one in found.items() if one.coming} | dict(snapshot.coming_regimes)
        if found or coming:
            menus = dataclasses.replace(menus, regimes=announced(coming) or _NONE, one_size=False)
        last = snapshot.memos.of(self.name, Stage.ELASTICITY)
        before = last.by_job if isinstance(last, Beliefs) else {}
        beliefs = {str(snapshot.jobs.id[job]): one.belief for job, one in found.items()}
        if beliefs == before:
            return menus
        changed = {job: one for job, one in found.items() if before.get(str(snapshot.jobs.id[job])) != one.belief}
        return dataclasses.replace(menus, memo=Beliefs(by_job=beliefs), record=self._record(snapshot, changed))

    def _record(self, snapshot: Snapshot, changed: Mapping[int, Forecast]) -> ForecastRecord | None:
        if not changed:
            return None
        rows = np.array(list(changed))
        done = snapshot.jobs.iterations[rows] - snapshot.iterations_left(rows)
        past = [progress_of(snapshot, job, at).past for job, at in zip(rows.tolist(), done.tolist(), strict=True)]
        names = snapshot.jobs.id[rows].tolist()
        return ForecastRecord(
            jobs=names, beliefs=[one.belief for one in changed.values()], pasts=past, options=self.options
        )

    @hookimpl
    def eunomia_explain(self, snapshot: Snapshot, job: JobId) -> Explanation | None:
        """Explain the expected future regimes of the job and its time left."""
        beliefs = snapshot.memos.of(self.name, Stage.ELASTICITY)
        rows = forecast_rows(snapshot)
        rows = rows[snapshot.jobs.id[rows] == job]
        if rows.size == 0 or not isinstance(beliefs, Beliefs) or str(job) not in beliefs.by_job:
            return None
        row, belief = int(rows[0]), beliefs.by_job[str(job)]
        if row in snapshot.coming_regimes:
            return Explanation(text="Its coming regimes were announced.", numbers={})
        done = float(snapshot.jobs.iterations[row] - snapshot.iterations_left(rows)[0])
        seen = progress_of(snapshot, row, done)
        if len(seen.past.finished) != belief.posterior.present:
            return None  # it has adapted since the last round
        return explanation(belief, seen.past, float(snapshot.ledger.jobs.attained[row]), self.options)
