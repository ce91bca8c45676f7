"""CPU time of an arbiter's stages: each callable of a profile with a clock around it."""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

from eunomia.stages import Stages


class Timings:
    """CPU seconds by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def add(self, name: str, nanoseconds: int) -> None:
        """Add to a name's sum."""
        self.seconds[name] = self.seconds.get(name, 0.0) + nanoseconds / 1e9


def timed(stages: Stages, timings: Timings) -> Stages:
    """The same stages, each with a clock around it."""

    def around(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def clocked(*args: Any, **kwargs: Any) -> Any:
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
