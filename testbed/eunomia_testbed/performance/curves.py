"""Speed against the number of GPUs: measured at some counts, linear between them."""

from collections.abc import Mapping

import numpy as np

from eunomia.model.shapes import builds
from eunomia.units import Ints, Reals


@builds
class Curve:
    """Measured points in order of GPUs. More GPUs than the last point's make a job no faster."""

    gpus: Ints
    rates: Reals
    """Iterations per second of the whole job; 0: it does not run so."""
    of_times: bool = False
    """Whether seconds per iteration are linear between points, rather than iterations per second."""

    @classmethod
    def of(cls, points: Mapping[int, float], *, of_times: bool = False) -> "Curve":
        """Makes a curve from points ``{gpus: rate}``."""
        counts = sorted(points)
        return cls(
            gpus=np.array(counts, dtype=np.int64),
            rates=np.array([points[count] for count in counts], dtype=float),
            of_times=of_times,
        )

    def at(self, gpus: int) -> float:
        """Iterations per second on a number of GPUs; 0 below the first point, and between a point and one of rate 0."""
        place = int(np.searchsorted(self.gpus, gpus))
        if place == self.gpus.size:
            return float(self.rates[-1])
        if int(self.gpus[place]) == gpus:
            return float(self.rates[place])
        if place == 0:
            return 0.0
        below, above = float(self.rates[place - 1]), float(self.rates[place])
        if below == 0.0 or above == 0.0:
            return 0.0
        part = (gpus - int(self.gpus[place - 1])) / int(self.gpus[place] - self.gpus[place - 1])
        if self.of_times:
            return 1.0 / ((1.0 - part) / below + part / above)
        return (1.0 - part) * below + part * above
