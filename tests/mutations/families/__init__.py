"""One module for each family of policies: the mutation check reads all of them.

A module may hold ``READS`` (by plugin and stage: the perturbations that change its decision; the module of a family
lists all its stages), ``VARIANTS`` (options that make a stage depend on more), ``COMPANIONS`` (stages that give a
plugin something to do) and ``WORLD`` (the snapshot for the plugins of its ``READS``; ``busy_world`` without).
"""

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from typing import Any

from eunomia import Stage
from eunomia.testing.builders import World
from mutations.worlds import busy_world

FAMILIES: Mapping[str, Any] = {
    found.name: importlib.import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)
}


def _merged(name: str) -> dict[Any, Any]:
    return {key: row for family in FAMILIES.values() for key, row in getattr(family, name, {}).items()}


READS: Mapping[tuple[str, Stage], set[str]] = _merged("READS")
VARIANTS: Mapping[str, tuple[str, Stage, Mapping[str, object], set[str]]] = _merged("VARIANTS")
COMPANIONS: Mapping[str, Mapping[str, object]] = _merged("COMPANIONS")


def world_of(plugin: str) -> World:
    """The snapshot on which a plugin is asked: that of its family."""
    for family in FAMILIES.values():
        if any(name == plugin for name, _ in family.READS):
            made: Callable[[], World] = getattr(family, "WORLD", busy_world)
            return made()
    return busy_world()
