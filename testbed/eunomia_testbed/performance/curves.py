"""Speed as a function of the number of GPUs: measured at some numbers, and linear between them."""

from collections.abc import Mapping

import numpy as np

from eunomia.model.shapes import builds
from eunomia.units import Ints, Reals


@builds
class Curve:
    """Measured points in ascending order of GPUs; the speed stays constant beyond the last point."""

    gpus: Ints
    rates: Reals
    """Iterations per second of the whole job; 0: the job cannot run on this number of GPUs."""
    of_times: bool = False
    """Whether seconds per iteration are interpolated linearly, instead of iterations per second."""

    @classmethod
    def of(cls, points: Mapping[int, float], *, of_times: bool = False) -> "Curve":
        """Return the curve through points ``{gpus: rate}``."""
        counts = sorted(points)
        return cls(
            gpus=np.array(counts, dtype=np.int64),
            rates=np.array([points[count] for count in counts], dtype=float),
            of_times=of_times,
        )

    def at(self, gpus: int) -> float:
        """Return iterations per second; 0 below the first point, and between two points if either has rate 0."""
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
