"""Stages put together from instances of plugins, without a profile."""

from typing import Any

from eunomia.contract.stages import Rounds, Stages
from eunomia.platform.profile_resolver import bound_stages
from eunomia.units import Stage


def assemble(
    *,
    elasticity: Any,
    valuation: Any,
    allocation: Any,
    placement: Any,
    refiners: tuple[Any, ...] = (),
    rounds: Rounds | None = None,
    profile: str = "assembled",
) -> Stages:
    """Bind plugins to stages, as a profile does.

    Args:
        elasticity: the instance that implements the elasticity.
        valuation: the instance that implements the valuation.
        allocation: the instance that implements the allocation; its triggers and its offer are used too.
        placement: the instance that implements the placement.
        refiners: the refiners, in calling order.
        rounds: the profile's ``[rounds]``.
        profile: a name for messages.
    """
    plugins = {
        Stage.ELASTICITY: (elasticity.name, elasticity),
        Stage.VALUATION: (valuation.name, valuation),
        Stage.ALLOCATION: (allocation.name, allocation),
        Stage.PLACEMENT: (placement.name, placement),
    }
    refine = [(plugin.name, plugin) for plugin in refiners]
    return bound_stages(profile, plugins, refine, [*plugins.values(), *refine], rounds or Rounds())
