"""CPU time of an arbiter's stages: each callable of a profile with a clock around it.

A thread's clock costs more than a small stage, so that of a long run only every sixteenth step is looked at.
"""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

from eunomia.stages import Stages

ALL_STEPS = 2048
"""Steps from the beginning of a run that are all looked at."""
EVERY = 16


class Timings:
    """CPU seconds by name; a step that is looked at stands for those that are not."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.weight = 1

    def looks(self, step: int) -> bool:
        """Whether a step is looked at."""
        self.weight = 1 if step < ALL_STEPS else EVERY if step % EVERY == 0 else 0
        return self.weight > 0

    def add(self, name: str, nanoseconds: int) -> None:
        """Add to a name's sum."""
        self.seconds[name] = self.seconds.get(name, 0.0) + self.weight * nanoseconds / 1e9


def timed(stages: Stages, timings: Timings) -> Stages:
    """The same stages, each with a clock around it."""

    def around(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def clocked(*args: Any, **kwargs: Any) -> Any:
            if not timings.weight:
                return call(*args, **kwargs)
            began = time.thread_time_ns()
            try:
                return call(*args, **kwargs)
            finally:
                timings.add(name, time.thread_time_ns() - began)

        return clocked

    return dataclasses.replace(
        stages,
        elasticity=around("elasticity", stages.elasticity),
        valuation=around("valuation", stages.valuation),
        allocation=around("allocation", stages.allocation),
        placement=around("placement", stages.placement),
        refiners=tuple(around("refine", refine) for refine in stages.refiners),
        offer=None if stages.offer is None else around("offer", stages.offer),
    )
