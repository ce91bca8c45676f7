"""Measures the CPU time of an arbiter and of its stages.

Reading a CPU clock takes longer than a small stage. Therefore wall time is measured, which is nearly free, and scaled
at the end of a run by the fraction of the wall time in which the process had a CPU.
"""

import time
from collections.abc import Mapping


class Timings:
    """Sums of wall time by stage.

    Args:
        stages: nanoseconds by stage, updated by the arbiter.

    Attributes:
        step: nanoseconds of all steps of the arbiter.
    """

    def __init__(self, stages: Mapping[str, int]) -> None:
        self._stages, self.step = stages, 0
        self.begin()

    def begin(self) -> None:
        """Start the clock of a run."""
        self._wall = time.perf_counter_ns()
        self._cpu = time.process_time_ns()

    def seconds(self) -> dict[str, float]:
        """Return CPU seconds so far: by stage, of ``step`` (the whole arbiter), and of ``driver`` (everything else)."""
        wall, cpu = time.perf_counter_ns() - self._wall, time.process_time_ns() - self._cpu
        scale = cpu / (wall * 1e9) if wall else 0.0
        seconds = {name: spent * scale for name, spent in sorted({**self._stages, "step": self.step}.items())}
        return {**seconds, "driver": cpu / 1e9 - seconds["step"]}
