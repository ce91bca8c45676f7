"""CPU time of an arbiter's stages: each callable of a profile with a clock around it.

A clock of CPU time costs more than a small stage. So wall time is taken, which is nearly free, and at the end of a run
it is scaled by the part of the wall time in which the process had a CPU.
"""

import time

from eunomia.clocked import clocked
from eunomia.stages import Stages


class Timings:
    """Nanoseconds of wall time by name."""

    def __init__(self) -> None:
        self._spent: dict[str, int] = {"step": 0}
        self.begin()

    def begin(self) -> None:
        """A run begins now."""
        self._wall = time.perf_counter_ns()
        self._cpu = time.process_time_ns()

    def add(self, name: str, nanoseconds: int) -> None:
        """Add to a name's sum."""
        self._spent[name] = self._spent.get(name, 0) + nanoseconds

    def seconds(self) -> dict[str, float]:
        """CPU seconds by name so far: by stage, ``step`` (all of the arbiter), ``driver`` (all but the arbiter)."""
        wall, cpu = time.perf_counter_ns() - self._wall, time.process_time_ns() - self._cpu
        scale = cpu / (wall * 1e9) if wall else 0.0
        seconds = {name: spent * scale for name, spent in sorted(self._spent.items())}
        return {**seconds, "driver": cpu / 1e9 - seconds["step"]}


def timed(stages: Stages, timings: Timings) -> Stages:
    """The same stages, each with a clock around it."""
    return clocked(stages, timings.add)
