"""Strict mode for tests (``--strict-plugins`` or ``EUNOMIA_STRICT_PLUGINS=1``): plugin faults are raised."""

import os
from types import MappingProxyType
from typing import Any, NoReturn

import numpy as np


def is_strict() -> bool:
    """Return whether strict mode is on: plugin faults are raised, and plugins are frozen after their creation."""
    return os.environ.get("EUNOMIA_STRICT_PLUGINS", "") not in ("", "0")


def freeze(plugin: Any) -> None:
    """Make a plugin's attributes read-only, including the lists, dicts, sets and arrays in them.

    Objects of other classes stay writable, so that a plugin can keep caches in them.

    Args:
        plugin: an instance, whose class is replaced by a subclass that refuses changes.
    """
    for name, item in getattr(plugin, "__dict__", {}).items():
        object.__setattr__(plugin, name, frozen(item))
    kind = type(plugin)
    body = {"__slots__": (), "__setattr__": _refuse, "__delattr__": _refuse, "__doc__": kind.__doc__}
    body |= {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    object.__setattr__(plugin, "__class__", type(kind.__name__, (kind,), body))


def frozen(item: Any) -> Any:
    """Return a copy of a value with read-only containers and arrays; objects of other classes are kept."""
    if type(item) is dict:
        return MappingProxyType({key: frozen(part) for key, part in item.items()})
    if type(item) in (list, tuple):
        return tuple(frozen(part) for part in item)
    if type(item) is set:
        return frozenset(item)
    if isinstance(item, np.ndarray):
        copied = item.copy()
        copied.flags.writeable = False
        return copied
    return item


def _refuse(plugin: Any, name: str, *_: object) -> NoReturn:
    own = getattr(plugin, "name", type(plugin).__name__)
    raise AttributeError(f'plugin "{own}" must keep only caches on itself, but changes {name}; a stage returns a memo')
