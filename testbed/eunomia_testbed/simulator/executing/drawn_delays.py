"""Delays and losses of orders and answers, drawn from the seed of a run."""

import numpy as np

from eunomia_testbed.simulator.options import Delays


class DrawnDelays:
    """The random delays and losses of one run, drawn in the order in which its orders are carried out.

    Args:
        delays: the longest delays, and the fraction of answers that is lost.
        seed: seed of the run.
    """

    def __init__(self, delays: Delays, seed: int) -> None:
        self._delays = delays
        self._random = np.random.default_rng([seed, 0xDE1A])
        self.orders_are_late = delays.order > 0.0
        self.again = delays.again
        """Seconds after which a lost answer is sent again."""

    def order_seconds(self) -> float:
        """Return the seconds that an order takes to reach its machine."""
        return float(self._delays.order * self._random.uniform(0.5, 1.0))

    def cost_seconds(self, seconds: float) -> float:
        """Return the seconds that a cost takes: all of it, or a random fraction from 1 - jitter to 1."""
        if seconds <= 0.0 or self._delays.jitter <= 0.0:
            return seconds
        return float(seconds * self._random.uniform(1.0 - self._delays.jitter, 1.0))

    def loses_an_answer(self) -> bool:
        """Return whether the next answer is lost."""
        return self._delays.lost > 0.0 and bool(self._random.random() < self._delays.lost)
