"""The event queue of a simulation: a heap of plain tuples, which takes less memory than an object per event."""

import heapq
import math
from collections.abc import Callable

from eunomia.units import Seconds

Happens = Callable[[Seconds], None]


class Agenda:
    """A queue of future events by time in seconds; each entry is a call, or the end of a job's run."""

    __slots__ = ("_count", "heap")

    def __init__(self) -> None:
        self.heap: list[tuple[float, int, Happens | None, int, int]] = []
        self._count = 0

    def call(self, time: float, happens: Happens) -> None:
        """Schedule a call; calls at the same time are made in the order of scheduling."""
        self._count += 1
        heapq.heappush(self.heap, (time, self._count, happens, -1, 0))

    def end(self, time: float, job: int, turn: int) -> None:
        """Schedule the end of a job's run; it is ignored if the job has started another run by then."""
        self._count += 1
        heapq.heappush(self.heap, (time, self._count, None, job, turn))

    def next_time(self, turns: list[int]) -> float:
        """Return the time in seconds of the next event, or inf; ends of runs that are over are discarded first."""
        heap = self.heap
        while heap:
            time, _, happens, job, turn = heap[0]
            if happens is not None or turns[job] == turn:
                return time
            heapq.heappop(heap)
        return math.inf
