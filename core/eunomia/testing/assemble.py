"""Assembles stages from plugins without a profile, for tests."""

from typing import Any

from eunomia.contract.stages import Rounds, Stages
from eunomia.platform.checking import bind
from eunomia.platform.contract_check import contract_of
from eunomia.units import Stage

_HOOKS = {
    Stage.ELASTICITY: "eunomia_elasticity",
    Stage.VALUATION: "eunomia_valuation",
    Stage.ALLOCATION: "eunomia_allocation",
    Stage.PLACEMENT: "eunomia_placement",
}


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
        Stage.ELASTICITY: elasticity,
        Stage.VALUATION: valuation,
        Stage.ALLOCATION: allocation,
        Stage.PLACEMENT: placement,
    }
    bound = {stage: _bound(plugin, _HOOKS[stage]) for stage, plugin in plugins.items()}
    explain = {plugin.name: bind(plugin, "eunomia_explain") for plugin in plugins.values()}
    return Stages(
        profile=profile,
        elasticity=bound[Stage.ELASTICITY],
        valuation=bound[Stage.VALUATION],
        allocation=bound[Stage.ALLOCATION],
        placement=bound[Stage.PLACEMENT],
        refiners=tuple(_bound(plugin, "eunomia_refine") for plugin in refiners),
        refiner_names=tuple(plugin.name for plugin in refiners),
        offer=bind(allocation, "eunomia_offer"),
        triggers=bind(allocation, "eunomia_triggers"),
        names={stage: plugin.name for stage, plugin in plugins.items()},
        contracts={stage: getattr(plugin, "contracts", {}) for stage, plugin in plugins.items()},
        explain={name: explained for name, explained in explain.items() if explained is not None},
        rounds=rounds or Rounds(),
        memo_types=tuple(
            (plugin.name, stage, kind)
            for plugin in (*plugins.values(), *refiners)
            for stage, kind in getattr(plugin, "memo_types", {}).items()
        ),
        needs=frozenset(
            feature
            for stage, plugin in (*plugins.items(), *((Stage.REFINE, refiner) for refiner in refiners))
            for feature in contract_of(plugin, stage).needs
        ),
    )


def _bound(plugin: Any, hook: str) -> Any:
    bound = bind(plugin, hook)
    if bound is None:
        raise TypeError(f"{plugin!r} does not implement {hook}")
    return bound
