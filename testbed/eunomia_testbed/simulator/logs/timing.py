"""CPU time of an arbiter's stages: times each callable of a profile.

Reading a clock of CPU time costs more than a small stage. Therefore wall time is measured, which is nearly free, and at
the end of a run it is scaled by the fraction of the wall time in which the process had a CPU.
"""

import time

from eunomia.contract.clocked import summed
from eunomia.contract.stages import Stages


class Timings:
    """Sums of wall time in nanoseconds by name, in ``spent``."""

    def __init__(self) -> None:
        self.spent: dict[str, int] = {"step": 0}
        self.begin()

    def begin(self) -> None:
        """Start the clock of a run."""
        self._wall = time.perf_counter_ns()
        self._cpu = time.process_time_ns()

    def seconds(self) -> dict[str, float]:
        """Return CPU seconds by name so far: by stage, ``step`` (the whole arbiter), ``driver`` (everything else)."""
        wall, cpu = time.perf_counter_ns() - self._wall, time.process_time_ns() - self._cpu
        scale = cpu / (wall * 1e9) if wall else 0.0
        seconds = {name: spent * scale for name, spent in sorted(self.spent.items()) if spent or name == "step"}
        return {**seconds, "driver": cpu / 1e9 - seconds["step"]}


def timed(stages: Stages, timings: Timings) -> Stages:
    """Return the same stages, each timed."""
    return summed(stages, timings.spent)
