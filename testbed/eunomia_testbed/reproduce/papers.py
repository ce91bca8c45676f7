"""Finds papers by name: in folders of this package, and by entry points of installed packages."""

import importlib
import importlib.metadata
import os
import pkgutil
from typing import Any, Final

from eunomia.errors import InputError
from eunomia.words import did_you_mean, shown
from eunomia_testbed import reproduce
from eunomia_testbed.reproduce.paper import Paper

GROUP: Final = "eunomia.papers"
"""Group of the entry points of installed packages, each with the paper's name and ``module:PAPER``."""


def paper_names() -> list[str]:
    """Return the names of all papers, sorted."""
    return sorted({*own_papers(), *_installed()})


def find_paper(name: str) -> Paper[Any, Any, Any]:
    """Return the paper with this name.

    Raises:
        InputError: no paper has this name.
    """
    known = paper_names()
    if name not in known:
        rule = f"paper must be one of: {', '.join(known)}"
        raise InputError(rule, value=f"{shown(name)}{did_you_mean(name, known)}")
    if name in own_papers():
        module = importlib.import_module(f"{reproduce.__name__}.{name}.paper")
        return _checked(name, module.PAPER)
    return _checked(name, _installed()[name].load())


def _checked(name: str, found: object) -> Paper[Any, Any, Any]:
    if not isinstance(found, Paper):
        raise InputError("a paper must be a Paper", value=f"a {type(found).__name__}", place=name)
    return found


def own_papers() -> list[str]:
    """Return the names of the papers of this package."""
    return [module.name for module in pkgutil.iter_modules(reproduce.__path__) if module.ispkg]


def _installed() -> dict[str, importlib.metadata.EntryPoint]:
    if os.environ.get("EUNOMIA_NO_PLUGINS", "") not in ("", "0"):
        return {}
    return {entry.name: entry for entry in importlib.metadata.entry_points(group=GROUP)}
