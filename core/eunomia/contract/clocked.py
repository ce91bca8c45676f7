"""Measures the wall time of each call of a profile's stages."""

import dataclasses
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

from eunomia.contract.stages import Stages

Note = Callable[[str, int], None]
"""Receives a stage's name and the wall time of one call in nanoseconds."""


def clocked(stages: Stages, note: Note) -> Stages:
    """Return the same stages, each call timed.

    Args:
        stages: of a profile.
        note: called after each call, also after one that raised, with ``elasticity``, ``valuation``, ``offer``,
            ``allocation``, ``refine`` or ``placement``.
    """

    def around(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any) -> Any:
            began = perf_counter_ns()
            try:
                return call(*args)
            finally:
                note(name, perf_counter_ns() - began)

        return timed

    return _each(stages, around)


def summed(stages: Stages, spent: dict[str, int]) -> Stages:
    """Return the same stages, with the wall time of each call added to the sum of its stage.

    Args:
        stages: of a profile.
        spent: nanoseconds by name, as in ``clocked``; missing names are added.
    """

    def around(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        spent.setdefault(name, 0)

        def timed(*args: Any) -> Any:
            began = perf_counter_ns()
            try:
                return call(*args)
            finally:
                spent[name] += perf_counter_ns() - began

        return timed

    return _each(stages, around)


def _each(stages: Stages, around: Callable[[str, Callable[..., Any]], Callable[..., Any]]) -> Stages:
    return dataclasses.replace(
        stages,
        elasticity=around("elasticity", stages.elasticity),
        valuation=around("valuation", stages.valuation),
        allocation=around("allocation", stages.allocation),
        placement=around("placement", stages.placement),
        refiners=tuple(around("refine", refine) for refine in stages.refiners),
        offer=None if stages.offer is None else around("offer", stages.offer),
    )
