"""Measures the time of a plugin's call, by polling the number of the current call."""

from typing import Final

CPU: Final = "cpu"
WALL: Final = "wall"
TICKS: Final = 5
"""Number of polls during the shorter of the CPU and wall time limits."""
LONGEST_TICK: Final = 1.0


class CallClock:
    """Measures the CPU time and wall time of the current call, by polling.

    A gap between two polls (the process or the machine was suspended) counts as at most two ticks of wall time.

    Args:
        cpu_limit: seconds of CPU time that a call may take.
        wall_limit: seconds that a call may take.
    """

    def __init__(self, cpu_limit: float, wall_limit: float) -> None:
        self.tick = tick_of(cpu_limit, wall_limit)
        self._limits = {CPU: cpu_limit, WALL: wall_limit}
        self._number = 0
        self._cpu_at = self._seen_at = self._waited = 0.0

    def look(self, number: int, cpu: float, wall: float) -> str | None:
        """Poll: return the limit that the current call exceeds, ``CPU`` or ``WALL``; None: neither.

        Args:
            number: number of the current call; 0: no call.
            cpu: CPU time of the process in seconds.
            wall: seconds on a monotonic clock.
        """
        if number == 0 or number != self._number:
            self._number, self._cpu_at, self._seen_at, self._waited = number, cpu, wall, 0.0
            return None
        self._waited += min(wall - self._seen_at, 2 * self.tick)
        self._seen_at = wall
        if cpu - self._cpu_at > self._limits[CPU]:
            return CPU
        return WALL if self._waited > self._limits[WALL] else None


def tick_of(cpu_limit: float, wall_limit: float) -> float:
    """Return the seconds between two polls."""
    return max(0.01, min(LONGEST_TICK, cpu_limit / TICKS, wall_limit / TICKS))


class LateCall:
    """Detects calls in another process that continue although an exception should have ended them.

    Args:
        cpu_limit: seconds of CPU time that a call may take.
        wall_limit: seconds that a call may take.
    """

    def __init__(self, cpu_limit: float, wall_limit: float) -> None:
        self._clock = CallClock(cpu_limit, wall_limit)
        self.grace = 2.0 + TICKS * self._clock.tick
        """Seconds within which the exception must end the call."""
        self._number, self._since, self._limit = 0, 0.0, CPU

    @property
    def tick(self) -> float:
        """Return the seconds between two polls."""
        return self._clock.tick

    def look(self, number: int, cpu: float, wall: float) -> str | None:
        """Poll, as ``CallClock.look``; return an exceeded limit only once the call also outlasts the grace period."""
        exceeded = self._clock.look(number, cpu, wall)
        if exceeded is None:
            self._number = 0
            return None
        if number != self._number:
            self._number, self._since, self._limit = number, wall, exceeded
        return self._limit if wall - self._since > self.grace else None
