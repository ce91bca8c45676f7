"""Options of ``shockwave_forecast``."""

from typing import Annotated

from pydantic import Field

from eunomia import PluginOptions, Share
from eunomia_plugins.shockwave.forecasts.posterior import Rule

BatchSize = Annotated[float, Field(gt=0.0, le=1e15, allow_inf_nan=False)]


class ShockwaveForecastOptions(PluginOptions):
    """Options of ``shockwave_forecast``."""

    rule: Rule = "restatement"
    """How observed epochs change the posterior: the restatement rule of §5, the standard Bayesian update, or the last
    throughput alone, which expects no further regime."""
    accordion_regimes: Annotated[int, Field(ge=1, le=256)] = 2
    """K of a job that adapts by Accordion, unless the job has shown more regimes."""
    largest_batch: dict[str, BatchSize] = Field(default_factory=dict)
    """Largest batch size of a kind of job, or of kinds by a common beginning of their names; the longest matching name
    counts."""
    growth: Annotated[float, Field(ge=1.0, le=1e6, allow_inf_nan=False)] = 8.0
    """Largest batch size over the first one, where neither the option nor a rate of the kind gives a larger one."""
    gain: Share = 0.0
    """Exponent g of samples a second as a power of the batch size, until rates at two batch sizes are known of the job,
    of its kind or of any kind."""
    chance: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.9
    """Probability that the time left lies in the interval."""
    concentration: Annotated[float, Field(gt=0.0, le=1e6)] = 1.0
    """Dirichlet parameter of each regime for the interval; 1: all divisions of the epochs left are equally likely."""

    def limit(self, kind: str) -> float:
        """Return the largest batch size of a kind of job; 0: not known."""
        named = [name for name in self.largest_batch if kind.startswith(name)]
        return self.largest_batch[max(named, key=len)] if named else 0.0
