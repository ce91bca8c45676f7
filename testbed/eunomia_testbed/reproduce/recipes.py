"""The recipe of a cell: a shipped preset, the settings in which the cell differs, and what its policy knows.

A cell may differ from a preset only by what its row prints: reproductions load profiles only through ``run_profile``,
and ``differences`` prints the recipes of a row's cells.
"""

import dataclasses
import json
from collections.abc import Iterable, Mapping

from eunomia.model.shapes import value
from eunomia.platform.profiles import Profile
from eunomia.platform.registry import Registry


@value
class Recipe:
    """The profile that a cell runs."""

    policy: str
    """The policy's name in the paper."""
    preset: str
    settings: Mapping[str, object] = dataclasses.field(default_factory=dict)
    """Settings that override the preset's, by dotted key."""
    knows: tuple[str, ...] = ()
    """Knowledge or options that only some policies have, such as "the contention of the whole trace"."""
    rules: str = ""
    """Round rules that replace the preset's, as text; empty: the preset's own."""


def run_profile(recipe: Recipe, *, registry: Registry | None = None) -> Profile:
    """Return the profile of a recipe.

    Args:
        recipe: preset and settings.
        registry: the available plugins, such as one with a clock; None: those found in this process.

    Raises:
        InputErrors: all errors in its settings.
    """
    return Profile.load(recipe.preset, settings=dict(recipe.settings), registry=registry)


def differences(recipes: Iterable[Recipe]) -> tuple[str, ...]:
    """Return a line for each policy: its preset, all settings that override it, and what it knows beforehand."""
    presets: dict[str, dict[str, None]] = {}
    changes: dict[str, dict[str, dict[str, None]]] = {}
    for recipe in recipes:
        presets.setdefault(recipe.policy, {})[recipe.preset] = None
        by_key = changes.setdefault(recipe.policy, {})
        for key, item in sorted(recipe.settings.items()):
            by_key.setdefault(key, {})[json.dumps(item).strip('"')] = None
        for fact in (*(f"knows {each}" for each in recipe.knows), *filter(None, [recipe.rules])):
            by_key.setdefault(fact, {})
    return tuple(
        f"{policy}: preset {', '.join(presets[policy])}"
        + "".join(f"; {key} {' or '.join(values)}".rstrip() for key, values in changes[policy].items())
        for policy in presets
    )


def known_by_some(recipes: Iterable[Recipe]) -> tuple[str, ...]:
    """Return the knowledge that some policies of a row have beforehand while others do not."""
    known: list[set[str]] = [set(recipe.knows) for recipe in recipes]
    if not known:
        return ()
    every = known[0].union(*known[1:])
    return tuple(sorted(every - known[0].intersection(*known[1:])))
