"""The arbiter's clock: seconds since its first start, going on over restarts, never backwards."""

import time

from eunomia.units import ZERO, Seconds


class Clock:
    """Counts on from a journal's last step; the time for which no arbiter ran counts too, for jobs ran on.

    Args:
        last: the arbiter's time of the last step; 0 for a new journal.
        at: Unix time of that step; None for a new journal.
    """

    def __init__(self, last: Seconds = ZERO, at: float | None = None) -> None:
        away = 0.0 if at is None else max(0.0, time.time() - at)
        self._offset = float(last) + away - time.monotonic()

    def now(self) -> Seconds:
        """Seconds since the first start."""
        return Seconds(time.monotonic() + self._offset)
