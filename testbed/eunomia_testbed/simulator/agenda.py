"""What is to happen when: a heap of plain tuples, so that a hundred thousand ends are no hundred thousand objects."""

import heapq
import math
from collections.abc import Callable

from eunomia.units import Seconds

Happens = Callable[[Seconds], None]


class Agenda:
    """Moments to come. An entry is an end of a job's run (job and turn), or a call."""

    __slots__ = ("_count", "heap")

    def __init__(self) -> None:
        self.heap: list[tuple[float, int, Happens | None, int, int]] = []
        self._count = 0

    def call(self, time: float, happens: Happens) -> None:
        """Have something called at a time, after what was put down for that time before."""
        self._count += 1
        heapq.heappush(self.heap, (time, self._count, happens, -1, 0))

    def end(self, time: float, job: int, turn: int) -> None:
        """Have a run of a job end at a time, if it is still that run by then."""
        self._count += 1
        heapq.heappush(self.heap, (time, self._count, None, job, turn))

    def next_time(self, turns: list[int]) -> float:
        """When the next thing happens; ends of runs that are over are dropped."""
        heap = self.heap
        while heap:
            time, _, happens, job, turn = heap[0]
            if happens is not None or turns[job] == turn:
                return time
            heapq.heappop(heap)
        return math.inf
