"""Finds a profile around one plugin by trial, with as few stages as possible that differ from ``default``."""

import itertools
from collections.abc import Iterator, Sequence

from eunomia.errors import EunomiaError, InputErrors
from eunomia.platform.profile_resolver import FALLBACK
from eunomia.platform.profiles import Profile
from eunomia.platform.registry import Registry
from eunomia.units import Stage

SINGLE = (Stage.ELASTICITY, Stage.VALUATION, Stage.ALLOCATION, Stage.PLACEMENT)
MOST_OTHERS = 3


def companions(name: str, registry: Registry) -> dict[str, object]:
    """Find other stages with which a plugin's profile loads.

    Args:
        name: name of the plugin.
        registry: the plugins to choose from.

    Returns:
        The settings, as ``PolicyConformance.profile`` takes them; empty: ``default`` suits.

    Raises:
        InputErrors: no combination loads; the error is that of the plugin in ``default``.
    """
    first: InputErrors | None = None
    for setting in _settings(registry.stages(name), name, registry):
        try:
            Profile.load(name, registry=registry, settings={f"stages.{key}": item for key, item in setting.items()})
        except InputErrors as error:
            first = first or error
        else:
            return setting
    raise first or InputErrors([])


def _settings(own: Sequence[Stage], name: str, registry: Registry) -> Iterator[dict[str, object]]:
    """Yield candidates for the other stages, the fewest changes first."""
    choices: dict[str, list[object]] = {
        stage.value: [other for other in _answering(stage, registry) if other != FALLBACK[stage.value]]
        for stage in SINGLE
        if stage not in own
    }
    mine = [name] if Stage.REFINE in own else []
    refiners = [other for other in _answering(Stage.REFINE, registry) if other != name]
    chains: list[object] = [[*chain, *mine] for size in (1, 2) for chain in itertools.permutations(refiners, size)]
    if mine:
        chains += [[*mine, other] for other in refiners]
    choices["refiners"] = chains
    for count in range(min(MOST_OTHERS, len(choices)) + 1):
        for keys in itertools.combinations(choices, count):
            for chosen in itertools.product(*(choices[key] for key in keys)):
                yield dict(zip(keys, chosen, strict=True))


def _answering(stage: Stage, registry: Registry) -> tuple[str, ...]:
    """Return plugins that implement a stage and need no options."""
    return tuple(name for name in registry.answering(stage) if _makes(name, registry))


def _makes(name: str, registry: Registry) -> bool:
    try:
        registry.make(name, {}, alias=name, place=".".join)
    except EunomiaError:
        return False
    return True
