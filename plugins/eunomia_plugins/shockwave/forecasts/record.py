"""The record of forecasts: a row for each regime of a job whose forecast changed."""

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

from eunomia.contract.records import PlainColumn
from eunomia.model.shapes import value
from eunomia_plugins.shockwave.forecasts.memo import Belief
from eunomia_plugins.shockwave.forecasts.options import ShockwaveForecastOptions
from eunomia_plugins.shockwave.forecasts.posterior import Past
from eunomia_plugins.shockwave.forecasts.words import times_left


@value
class ForecastRecord:
    """Forecasts of jobs by regime; for finished regimes the actual epochs."""

    table: ClassVar[str] = "forecasts"
    jobs: Sequence[str]
    beliefs: Sequence[Belief]
    pasts: Sequence[Past]
    options: ShockwaveForecastOptions

    def columns(self) -> Mapping[str, PlainColumn]:
        """Return job, index of the regime, its batch size and expected epochs, and the job's time left with bounds.

        Times are in seconds, and None until a rate of the job is known.
        """
        rows = [row for given in zip(self.jobs, self.beliefs, self.pasts, strict=True) for row in self._rows(*given)]
        columns = [list(column) for column in zip(*rows, strict=True)]
        return dict(zip(_COLUMNS, columns, strict=True))

    def _rows(self, job: str, belief: Belief, past: Past) -> list[tuple[object, ...]]:
        times = [None if math.isnan(each) else each for each in times_left(belief, past, self.options)]
        present, epochs = belief.posterior.present, (*past.finished, *belief.posterior.left(past))
        return [
            (job, regime, regime < present, batch, each + (past.present if regime == present else 0.0), *times)
            for regime, (batch, each) in enumerate(zip(belief.batch_sizes, epochs, strict=True))
        ]


_COLUMNS = ("job", "regime", "finished", "batch_size", "epochs", "left_seconds", "low_seconds", "high_seconds")
