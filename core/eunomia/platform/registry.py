"""The plugin registry: find plugins by name, load and check each separately, and create those that a profile names."""

import importlib
import importlib.metadata
import importlib.util
import os
import sys
import traceback
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from eunomia import __version__
from eunomia.errors import EunomiaError, InputError, PluginError
from eunomia.model.shapes import builds, value
from eunomia.own_stdout import own_stdout
from eunomia.platform.checking import IncompatibleError, check_contracts, check_plugin, hooks_of
from eunomia.round.strictness import freeze, is_strict
from eunomia.units import Stage

DEFAULT_PLUGINS: Final[Mapping[str, str]] = {
    "fixed": "eunomia_plugins.elasticity.fixed:Fixed",
    "range": "eunomia_plugins.elasticity.range:Range",
    "throughput": "eunomia_plugins.elasticity.throughput:Throughput",
    "profiled_sizes": "eunomia_plugins.elasticity.profiled_sizes:ProfiledSizes",
    "profiled_types": "eunomia_plugins.elasticity.profiled_types:ProfiledTypes",
    "fifo": "eunomia_plugins.orders.fifo:Fifo",
    "las": "eunomia_plugins.orders.las:Las",
    "srtf": "eunomia_plugins.orders.srtf:Srtf",
    "srsf": "eunomia_plugins.orders.srsf:Srsf",
    "edf": "eunomia_plugins.orders.edf:Edf",
    "themis_rho": "eunomia_plugins.orders.themis_rho:ThemisRho",
    "index_rule": "eunomia_plugins.orders.index_rule:IndexRule",
    "laxity": "eunomia_plugins.orders.laxity:Laxity",
    "app_order": "eunomia_plugins.themis_baselines.app_order:AppOrder",
    "optimus": "eunomia_plugins.themis_baselines.optimus:Optimus",
    "slaq": "eunomia_plugins.themis_baselines.slaq:Slaq",
    "random": "eunomia_plugins.random:Random",
    "ordered": "eunomia_plugins.allocations.ordered:Ordered",
    "max_min": "eunomia_plugins.allocations.max_min:MaxMin",
    "drf": "eunomia_plugins.allocations.drf:Drf",
    "isolated": "eunomia_plugins.allocations.isolated:Isolated",
    "max_min_time": "eunomia_plugins.allocations.max_min_time:MaxMinTime",
    "max_min_users": "eunomia_plugins.allocations.max_min_users:MaxMinUsers",
    "gandiva": "eunomia_plugins.allocations.gandiva:Gandiva",
    "marginal_gain": "eunomia_plugins.allocations.marginal_gain:MarginalGain",
    "packed": "eunomia_plugins.placement.packed:Packed",
    "spread": "eunomia_plugins.placement.spread:Spread",
    "consolidated": "eunomia_plugins.placement.consolidated:Consolidated",
    "reuse": "eunomia_plugins.placement.reuse:Reuse",
    "time_sharing": "eunomia_plugins.refine.time_sharing:TimeSharing",
    "rounding": "eunomia_plugins.refine.rounding:Rounding",
    "divide": "eunomia_plugins.refine.divide:Divide",
    "leftovers": "eunomia_plugins.refine.leftovers:Leftovers",
    "network_packing": "eunomia_plugins.refine.network_packing:NetworkPacking",
    "themis": "eunomia_plugins.themis.plugin:Themis",
    "max_min_fairness": "eunomia_plugins.gavel.max_min_fairness:MaxMinFairness",
    "finish_time_fairness": "eunomia_plugins.gavel.finish_time_fairness:FinishTimeFairness",
    "max_sum_throughput": "eunomia_plugins.gavel.max_sum_throughput:MaxSumThroughput",
    "min_total_duration": "eunomia_plugins.gavel.min_total_duration:MinTotalDuration",
    "allox": "eunomia_plugins.gavel.allox:Allox",
    "gandiva_fair": "eunomia_plugins.gavel.gandiva_fair:GandivaFair",
    "gavel_rounds": "eunomia_plugins.gavel.rounds:GavelRounds",
    "afs_curves": "eunomia_plugins.afs.curves:AfsCurves",
    "afs_peak": "eunomia_plugins.afs.curves:AfsPeak",
    "afs": "eunomia_plugins.afs.allocation:Afs",
    "oef_speedups": "eunomia_plugins.oef.speedups:OefSpeedups",
    "oef_noncooperative": "eunomia_plugins.oef.allocations:OefNoncooperative",
    "oef_cooperative": "eunomia_plugins.oef.allocations:OefCooperative",
    "shockwave_forecast": "eunomia_plugins.shockwave.forecasts.plugin:ShockwaveForecast",
    "oef_efficient": "eunomia_plugins.oef.allocations:OefEfficient",
    "shockwave_utility": "eunomia_plugins.shockwave.utility:ShockwaveUtility",
    "shockwave": "eunomia_plugins.shockwave.plugin:Shockwave",
    "optimistic": "eunomia_plugins.synergy.optimistic:Optimistic",
    "sensitivity": "eunomia_plugins.synergy.sensitivity:Sensitivity",
    "synergy_opt": "eunomia_plugins.synergy.opt:SynergyOpt",
    "synergy_arranged": "eunomia_plugins.synergy.arranged:SynergyArranged",
    "synergy_greedy": "eunomia_plugins.synergy.greedy:SynergyGreedy",
    "tetris": "eunomia_plugins.synergy.tetris:Tetris",
    "synergy_tune": "eunomia_plugins.synergy.tune:SynergyTune",
}
"""Built-in plugins by name; they are loaded like third-party plugins and never imported directly."""

DEFAULT_PRESETS: Final = "eunomia_plugins.presets"
"""The package whose TOML files are the built-in presets."""

GROUP: Final = "eunomia"
"""The entry-point group of third-party plugins."""

STAGE_OF_HOOK: Final[Mapping[str, Stage]] = {f"eunomia_{stage.value}": stage for stage in Stage}


class Status(Enum):
    """Whether a plugin can be used, and why not."""

    OK = "ok"
    BROKEN = "broken"
    INCOMPATIBLE = "incompatible"


@value
class Found:
    """A plugin that was found but not loaded yet."""

    name: str
    target: str
    """``module:Class``, or ``file.py:Class``."""
    origin: str = "eunomia"
    """The distribution or file of the plugin."""
    version: str = ""


@builds
class Listed:
    """A row of ``eunomia plugins``: a plugin with its status."""

    found: Found
    status: Status
    stages: tuple[Stage, ...] = ()
    error: str | None = None
    plugin: type[Any] | None = None


class Registry:
    """The plugins that were found. A plugin that fails to load is listed with its error and does not affect others.

    Args:
        found: plugins by name.
        failed: files and entry points that could not be read, with their errors.
    """

    def __init__(self, found: Mapping[str, Found], failed: Iterable[tuple[Found, str]] = ()) -> None:
        self._found = dict(found)
        self._failed = {item.name: Listed(found=item, status=Status.BROKEN, error=error) for item, error in failed}
        self._listed: dict[str, Listed] = {}

    @classmethod
    def find(cls, *, paths: Sequence[Path | str] = (), installed: bool = True) -> "Registry":
        """Find the built-in plugins, installed plugins, and plugins in files.

        Args:
            paths: Python files, each with one or more plugin classes; they replace installed plugins of the same name.
            installed: whether to search installed distributions (``--no-plugins`` turns it off).

        Raises:
            InputError: a file cannot be loaded, or its plugin has the name of a built-in plugin or one in another file.
        """
        found = {name: Found(name=name, target=target, version=__version__) for name, target in DEFAULT_PLUGINS.items()}
        failed: list[tuple[Found, str]] = []
        for item in _entry_points() if installed else ():
            if item.name in found:
                failed.append((item, f'a plugin must have a name of its own, but "{item.name}" is taken'))
            else:
                found[item.name] = item
        return cls(found | _in_files(map(Path, paths)), failed)

    def adding(self, *kinds: type[Any]) -> "Registry":
        """Return a registry with further plugin classes of this process, for tests of a policy."""
        made = Registry(self._found)
        made._failed, made._listed = dict(self._failed), dict(self._listed)
        for kind in kinds:
            given = getattr(kind, "name", None)
            name = given if isinstance(given, str) else kind.__name__.lower()
            found = Found(name=name, target=f"{kind.__module__}:{kind.__qualname__}", origin=kind.__module__)
            made._found[name] = found
            made._listed[name] = _listed(found, lambda target, kind=kind: kind)  # type: ignore[misc]
        return made

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to pickle, without loaded classes, which the receiving process loads itself."""
        return {**self.__dict__, "_listed": {}}

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of all plugins found, sorted."""
        return tuple(sorted({*self._found, *self._failed}))

    def __contains__(self, name: str) -> bool:
        return name in self._found

    def listed(self, name: str) -> Listed:
        """Load and check one plugin, and return its status; raise ``KeyError`` for an unknown name."""
        if name not in self._found:
            return self._failed[name]
        if name not in self._listed:
            self._listed[name] = _listed(self._found[name])
        return self._listed[name]

    def all(self) -> tuple[Listed, ...]:
        """Load and check all plugins, sorted by name; plugins whose name was already taken come last."""
        clashing = [self._failed[name] for name in sorted(self._failed) if name in self._found]
        return (*(self.listed(name) for name in self.names), *clashing)

    def check(self) -> None:
        """Load and check every plugin.

        Raises:
            PluginError: a plugin is broken, or was written for another API version.
        """
        for listed in self.all():
            if listed.status is not Status.OK:
                name, error = listed.found.name, listed.error
                raise PluginError(f'plugin "{name}" must load, but it is {listed.status.value}: {error}')

    def load(self, name: str) -> type[Any]:
        """Return the checked class of a plugin.

        Raises:
            PluginError: the plugin is broken, or was written for another API version.
        """
        entry = self.listed(name)
        if entry.plugin is None or entry.status is not Status.OK:
            raise PluginError(f'plugin "{name}" must load, but it is {entry.status.value}: {entry.error}')
        return entry.plugin

    def stages(self, name: str) -> tuple[Stage, ...]:
        """Return the stages that a plugin implements; empty if it does not load."""
        return self.listed(name).stages

    def answering(self, stage: Stage) -> tuple[str, ...]:
        """Return the names of the plugins that implement a stage; this loads every plugin."""
        return tuple(name for name in self.names if stage in self.stages(name))

    def make(self, name: str, options: Mapping[str, object], *, alias: str, place: "Places") -> Any:
        """Create a plugin with its options, under the alias that the profile gives it.

        Raises:
            InputError: options are invalid, or the plugin has none.
            PluginError: the plugin does not load, or its constructor raises.
        """
        kind = self.load(name)
        options_type = getattr(kind, "options_type", None)
        if options_type is None and options:
            first = next(iter(options))
            raise InputError(f'plugin "{name}" has no options', value=f'"{first}"', place=place((first,)))
        arguments: list[object] = []
        if options_type is not None:
            from eunomia.contract.options import make_options

            arguments.append(make_options(options_type, options, place=place))
        try:
            made = kind(*arguments)
            if alias != name:
                made.name = alias
        except Exception as error:
            raise PluginError(f'plugin "{name}" must be made without an error', value=_last_line(error)) from error
        check_contracts(made)
        if is_strict():
            freeze(made)
        return made

    def presets(self) -> dict[str, Path]:
        """Return the TOML file of each preset by name, for built-in presets and those of installed plugins."""
        folder = importlib.util.find_spec(DEFAULT_PRESETS)
        shipped: dict[str, Path] = {}
        for place in folder.submodule_search_locations or () if folder else ():
            shipped |= {path.stem: path for path in sorted(Path(place).glob("*.toml"))}
        for name, item in self._found.items():
            if name not in DEFAULT_PLUGINS:
                shipped = {**self._presets_of(name, item), **shipped}
        return dict(sorted(shipped.items()))

    def _presets_of(self, name: str, item: Found) -> dict[str, Path]:
        kind = self.listed(name).plugin
        if kind is None or not hasattr(kind, "eunomia_profiles"):
            return {}
        try:
            made = self.make(name, {}, alias=name, place=lambda path: item.target)
            return {preset: Path(path) for preset, path in made.eunomia_profiles().items()}
        except Exception:
            return {}


Places = Callable[[tuple[str, ...]], str]
"""Returns the file and key of an option, by its path within the plugin's options."""


@lru_cache(maxsize=1)
def default_registry() -> Registry:
    """Return the registry selected by ``EUNOMIA_PLUGIN_PATH`` and ``EUNOMIA_NO_PLUGINS``, built once per process."""
    paths = [part for part in os.environ.get("EUNOMIA_PLUGIN_PATH", "").split(os.pathsep) if part]
    found = Registry.find(paths=paths, installed=os.environ.get("EUNOMIA_NO_PLUGINS", "") in ("", "0"))
    if is_strict():
        found.check()
    return found


def _listed(found: Found, load: Callable[[str], Any] | None = None) -> Listed:
    try:
        kind = (load or _load)(found.target)
        check_plugin(kind, found.name)
    except IncompatibleError as error:
        return Listed(found=found, status=Status.INCOMPATIBLE, error=f"{error} ({found.target})")
    except EunomiaError as error:
        return Listed(found=found, status=Status.BROKEN, error=f"{error} ({found.target})")
    except (Exception, SystemExit) as error:
        return Listed(found=found, status=Status.BROKEN, error=_last_line(error))
    hooks = hooks_of(kind)
    stages = tuple(stage for hook, stage in STAGE_OF_HOOK.items() if hook in hooks)
    return Listed(found=found, status=Status.OK, stages=stages, plugin=kind)


def _load(target: str) -> Any:
    where, _, attribute = target.rpartition(":")
    if where.startswith("eunomia_plugins."):
        module = importlib.import_module(where)
    else:
        with own_stdout():  # what a plugin prints on import is not part of the result
            module = _file_module(Path(where)) if where.endswith(".py") else importlib.import_module(where)
    loaded: Any = module
    for part in attribute.split("."):
        loaded = getattr(loaded, part)
    return loaded


@lru_cache(maxsize=64)
def _file_module(path: Path) -> Any:
    """Import a file as a module, once per process, under a name that does not shadow an installed module."""
    name = f"eunomia_plugin_path_{path.stem}_{zlib.crc32(str(path.resolve()).encode()):08x}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise PluginError("a plugin path must be a Python file", value=f'"{path}"', place="--plugin-path")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # inspect looks up the sources of its classes here
    try:
        with own_stdout():
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _in_files(paths: Iterable[Path]) -> dict[str, Found]:
    """Return the plugins in files, by name.

    Raises:
        InputError: a plugin has the name of a built-in plugin or one in another file; or see ``_in_file``.
    """
    found: dict[str, Found] = {}
    for path in paths:
        for item in _in_file(path):
            holder = DEFAULT_PLUGINS.get(item.name) or (found[item.name].target if item.name in found else item.target)
            if holder != item.target:
                rule = f"a plugin must have a name of its own, and {holder} has this one"
                raise InputError(rule, value=f'"{item.name}"', place=item.target)
            found[item.name] = item
    return found


def _in_file(path: Path) -> list[Found]:
    """Return the plugins that a file defines: classes with a name and an api.

    Raises:
        InputError: the file is missing, does not load, has no plugin, or has a plugin without a name or an api.
    """
    if not path.is_file():
        raise InputError("a plugin path must name a file", value=f'"{path}"', place="--plugin-path")
    try:
        module = _file_module(path)
    except (Exception, SystemExit) as error:
        rule = "a plugin path must name a file that loads"
        raise InputError(rule, value=_last_line(error), place="--plugin-path") from error
    kinds: list[Any] = [
        item for item in vars(module).values() if isinstance(item, type) and item.__module__ == module.__name__
    ]
    plugins = [kind for kind in kinds if hasattr(kind, "api") and isinstance(getattr(kind, "name", None), str)]
    for kind in kinds:  # private classes count as base classes
        has_hooks = kind.__name__[0] != "_" and any(name.startswith("eunomia_") for name in vars(kind))
        if has_hooks and kind not in plugins and not any(issubclass(plugin, kind) for plugin in plugins):
            rule = "a class with hooks must have the attributes name and api, to be a plugin"
            raise InputError(rule, value=kind.__qualname__, place=f"--plugin-path {path.name}")
    if not plugins:
        raise InputError("a plugin path must name a file with a plugin class", value=path.name, place="--plugin-path")
    return [Found(name=kind.name, target=f"{path}:{kind.__qualname__}", origin=path.name) for kind in plugins]


def _entry_points() -> Iterable[Found]:
    for entry in importlib.metadata.entry_points(group=GROUP):
        dist = entry.dist
        yield Found(
            name=entry.name,
            target=entry.value.replace(" ", ""),
            origin=dist.name if dist else "unknown",
            version=dist.version if dist else "",
        )


def _last_line(error: BaseException) -> str:
    """Return an exception as one line of text, with the innermost file and line of its traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    text = str(error) or type(error).__name__
    outside = [frame for frame in frames if "importlib" not in frame.filename]
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.msg} ({Path(error.filename).name}:{error.lineno})"
    if not outside:
        return text
    return f"{text} ({Path(outside[-1].filename).parent.name}/{Path(outside[-1].filename).name}:{outside[-1].lineno})"
