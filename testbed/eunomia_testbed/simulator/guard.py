"""Rejects, before a run, a plugin that imports the simulator's true speeds, and names it.

Built-in plugins are checked by an import contract. For other plugins the source is read: an import counts anywhere in a
file, including inside functions, and whether or not it was executed.
"""

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from eunomia.errors import PluginError
from eunomia.platform.profiles import Profile

TRUTH: Final = (
    "eunomia_testbed.simulator.progress.truth",
    "eunomia_testbed.simulator.progress.work",
    "eunomia_testbed.simulator.simulation_state",
    "eunomia_testbed.simulator.progress.sharing",
    "eunomia_testbed.performance",
)
"""Modules with the true speed and progress of jobs, which no plugin may see."""
BUILT_IN: Final = "eunomia_plugins"


def check_plugins(profile: Profile) -> None:
    """Check that no plugin of a profile can see the true speeds.

    Raises:
        PluginError: a plugin imports such a module; the error names both.
    """
    for name in sorted(set(_names(profile))):
        plugin = profile.registry.listed(name).plugin
        if plugin is None or plugin.__module__.partition(".")[0] == BUILT_IN:
            continue
        for path in _files(plugin):
            for seen in _imports(path):
                if any(seen == truth or seen.startswith(f"{truth}.") for truth in TRUTH):
                    rule = "a plugin must not import the simulator's truth"
                    raise PluginError(rule, value=f"{seen} in {path.name}", place=f'plugin "{name}"')


def _names(profile: Profile) -> Iterator[str]:
    """Yield the registry names of a profile's plugins."""
    tree = profile.merged.tree
    options = tree.get("plugins", {})
    for name in (*profile.plugins.values(), *tree["stages"].get("refiners", ()), *tree.get("observers", ())):
        table = options.get(name)
        found = str(table.get("use", name)) if isinstance(table, Mapping) else str(name)
        if found in profile.registry:
            yield found


def _files(plugin: type[Any]) -> Iterable[Path]:
    """Yield the plugin's own file, and the loaded files of its package."""
    own = _globals(plugin)
    paths = {own["__file__"]} if own.get("__file__") else set()
    package = plugin.__module__.partition(".")[0]
    if "." in plugin.__module__ and package not in ("tests", "eunomia_testbed"):
        inside = [module for name, module in list(sys.modules.items()) if name.startswith(f"{package}.")]
        paths |= {module.__file__ for module in inside if getattr(module, "__file__", None)}
    return [Path(path) for path in sorted(str(path) for path in paths) if str(path).endswith(".py")]


def _globals(plugin: type[Any]) -> Mapping[str, Any]:
    """Return the globals of the plugin's module, which is missing in ``sys.modules`` if it was loaded from a file."""
    for item in vars(plugin).values():
        names = getattr(item, "__globals__", None)
        if isinstance(names, dict):
            return names
    return vars(sys.modules[plugin.__module__]) if plugin.__module__ in sys.modules else {}


def _imports(path: Path) -> Iterator[str]:
    """Yield the modules that a file imports anywhere, including modules named in strings."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith(TRUTH):
            yield node.value
