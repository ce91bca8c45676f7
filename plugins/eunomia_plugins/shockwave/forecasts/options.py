"""Options of ``shockwave_forecast``."""

from typing import Annotated

from pydantic import Field

from eunomia import PluginOptions, Share
from eunomia_plugins.shockwave.forecasts.posterior import Rule

BatchSize = Annotated[float, Field(gt=0.0, le=1e15, allow_inf_nan=False)]


class ShockwaveForecastOptions(PluginOptions):
    """Options of ``shockwave_forecast``."""

    rule: Rule = "restatement"
    """The update of the posterior by observed epochs: the restatement rule of §5, the standard Bayesian update, or the
    last throughput only, which expects no further regime."""
    accordion_regimes: Annotated[int, Field(ge=1, le=256)] = 2
    """K, the number of regimes of a job that adapts by Accordion, unless it has already had more."""
    largest_batch: dict[str, BatchSize] = Field(default_factory=dict)
    """Largest batch size by kind of job, or by a common prefix of kinds' names; the longest matching prefix applies."""
    growth: Annotated[float, Field(ge=1.0, le=1e6, allow_inf_nan=False)] = 8.0
    """Ratio of the largest to the first batch size, unless ``largest_batch`` or a rate of the kind gives more."""
    gain: Share = 0.0
    """Exponent g of samples per second as a power of the batch size, until rates at two batch sizes are known for the
    job, its kind or any kind."""
    chance: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.9
    """Probability that the time left lies within the predicted interval."""
    concentration: Annotated[float, Field(gt=0.0, le=1e6)] = 1.0
    """Dirichlet parameter of each regime for the interval; 1 makes all divisions of the epochs left equally likely."""

    def limit(self, kind: str) -> float:
        """Return the largest batch size of a kind of job; 0 if not known."""
        named = [name for name in self.largest_batch if kind.startswith(name)]
        return self.largest_batch[max(named, key=len)] if named else 0.0
