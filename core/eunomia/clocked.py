"""A clock around each stage of a profile."""

import dataclasses
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

from eunomia.stages import Stages

Note = Callable[[str, int], None]
"""Told a stage's name and the nanoseconds of wall time that a call of it took."""


def clocked(stages: Stages, note: Note) -> Stages:
    """The same stages, each with a clock around it.

    Args:
        stages: of a profile.
        note: told of each call, of one that raises too: ``elasticity``, ``valuation``, ``offer``, ``allocation``,
            ``refine`` or ``placement``.
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
    """The same stages, each with a clock around it that adds what a call took to its name's sum.

    Args:
        stages: of a profile.
        spent: nanoseconds by name, as in ``clocked``; a name that is missing is entered.
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
