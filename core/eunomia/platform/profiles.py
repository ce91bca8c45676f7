"""Profiles: the plugin of each stage, the round settings, and the options of every plugin."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from eunomia.contract.decisions import Decision
from eunomia.contract.stages import Rounds, Stages
from eunomia.errors import InputError, InputErrors
from eunomia.model.cluster import Cluster
from eunomia.model.shapes import builds
from eunomia.platform.checking import bind
from eunomia.platform.contract_check import check_cluster
from eunomia.platform.layers import (
    NOTHING,
    Merged,
    is_file,
    layers_of,
    merge,
    parse_setting,
    read_setting,
    read_text,
    read_toml,
)
from eunomia.platform.papers import error_of
from eunomia.platform.profile_resolver import FALLBACK, SINGLE_STAGES, ProfilePlugins
from eunomia.platform.registry import Registry, default_registry
from eunomia.platform.rounds import read_rounds
from eunomia.units import Stage
from eunomia.words import did_you_mean, shown

DEFAULT: Final = "default"
"""The preset that provides the stages that named plugins do not implement."""

Settings = Mapping[str, object] | Sequence[str]
"""Values by dotted key, or strings ``KEY=VALUE`` as given to ``--set``."""
Observer = Callable[[Decision], None]


@builds
class Profile:
    """A checked profile; each call of ``stages`` creates new plugin instances.

    Attributes:
        name: name of the preset, file or plugin from which it was loaded.
        merged: its merged tables, with the origin of each value.
        registry: the plugins that it may name.
    """

    name: str
    merged: Merged
    registry: Registry

    @classmethod
    def load(
        cls, name: str | Path, *, settings: Settings = (), registry: Registry | None = None, flag: str = "--policy"
    ) -> Self:
        """Load a preset, a profile file, or plugins such as ``lottery`` or ``patient+half``.

        Plugins provide the stages that they implement, and the preset ``default`` provides the other stages.

        Args:
            name: name or path.
            settings: values that override those of the profile, by dotted key.
            registry: the available plugins; None: those found in this process.
            flag: the origin of the name, for error messages.

        Raises:
            InputErrors: all errors in the profile.
        """
        plugins = default_registry() if registry is None else registry
        text = str(name)
        presets = plugins.presets()
        if text.endswith(".toml") or "/" in text or isinstance(name, Path):
            path = Path(name)
            if not is_file(path):
                raise InputErrors([InputError("a profile must be a file that exists", value=shown(text), place=flag)])
            merged = _read_file(path, presets)
            return cls._checked(path.stem, merged, plugins, settings)
        if text in presets:
            merged = _read_file(presets[text], presets)
        elif text in plugins:
            merged = _of_plugins([text], plugins, presets, flag)
        elif "+" in text:
            merged = _of_plugins([part.strip() for part in text.split("+")], plugins, presets, flag)
        else:
            known = error_of(text, presets, flag)
            if known is not None:
                raise InputErrors([known])
            hint = did_you_mean(text, {*presets, *plugins.names})
            rule = "a policy must be a preset, a profile file or a plugin"
            raise InputErrors([InputError(rule, value=f"{shown(text)}{hint}", place=flag)])
        return cls._checked(text, merged, plugins, settings)

    @classmethod
    def parse(
        cls, text: str, *, name: str, settings: Settings = (), registry: Registry | None = None, place: str = "profile"
    ) -> Self:
        """Parse a profile from text, such as the ``resolved`` text of another process.

        Raises:
            InputErrors: all errors in the profile.
        """
        plugins = default_registry() if registry is None else registry
        return cls._checked(name, _read(text, place, None, plugins.presets()), plugins, settings)

    @classmethod
    def fallback(cls, *, registry: Registry | None = None) -> Self:
        """Return the built-in profile that the arbiter uses after too many faulty rounds."""
        merged = merge(NOTHING, {"stages": dict(FALLBACK)}, "fallback")
        return cls._checked("fallback", merged, default_registry() if registry is None else registry, ())

    @classmethod
    def _checked(cls, name: str, merged: Merged, registry: Registry, settings: Settings) -> Self:
        made = cls(name=name, merged=_set(merged, settings), registry=registry)
        ProfilePlugins(name, made.merged, registry).check()
        return made

    def replace(self, *, name: str | None = None, settings: Settings = ()) -> Self:
        """Return a copy of the profile with another name or other settings.

        Raises:
            InputErrors: all errors in the settings.
        """
        return self._checked(name or self.name, self.merged, self.registry, settings)

    @property
    def summary(self) -> str:
        """Return the profile's one-sentence summary."""
        return str(self.merged.tree.get("summary", ""))

    @property
    def plugins(self) -> Mapping[Stage, str]:
        """Return the name of the plugin of each of the four stages."""
        return {stage: str(self.merged.tree["stages"][stage.value]) for stage in SINGLE_STAGES}

    @property
    def rounds(self) -> Rounds:
        """Return the profile's ``[rounds]``."""
        return read_rounds(self.merged, [])

    def stages(self, cluster: Cluster | None = None, *, place: str = "--cluster") -> Stages:
        """Create the plugins and bind their hooks.

        Args:
            cluster: the cluster against which the needs of the plugins are checked; None: no check.
            place: the origin of the cluster, for error messages.

        Raises:
            InputErrors: the cluster lacks a feature that the plugins need.
        """
        plugins = ProfilePlugins(self.name, self.merged, self.registry)
        plugins.check()
        unsuited = [] if cluster is None else check_cluster(plugins.steps(), cluster, place=place)
        if unsuited:
            raise InputErrors(unsuited)
        return plugins.stages()

    def observers(self) -> tuple[tuple[str, Observer], ...]:
        """Return name and hook of each plugin of the profile that implements ``eunomia_round_finished``."""
        plugins = ProfilePlugins(self.name, self.merged, self.registry)
        plugins.check()
        bound = ((name, bind(plugin, "eunomia_round_finished")) for name, plugin in plugins.made.items())
        return tuple((name, call) for name, call in bound if call is not None)

    def resolved(self) -> str:
        """Return the profile as self-contained TOML, with all defaults written out."""
        return "\n".join(line for line, _ in self.origins()) + "\n"

    def origins(self) -> tuple[tuple[str, str], ...]:
        """Return each line of ``resolved`` with the file or flag it came from; empty for headers and blank lines."""
        plugins = ProfilePlugins(self.name, self.merged, self.registry)
        plugins.check()
        return tuple(plugins.lines())


def _read_file(path: Path, presets: Mapping[str, Path]) -> Merged:
    try:
        text = read_text(path)
    except InputError as error:
        raise InputErrors([error]) from error
    return _read(text, path.name, path.parent, presets)


def _read(text: str, origin: str, folder: Path | None, presets: Mapping[str, Path]) -> Merged:
    try:
        merged = NOTHING
        for layer, place in layers_of(read_toml(text, place=origin), origin, folder, presets.get):
            merged = merge(merged, layer, place)
    except InputError as error:
        raise InputErrors([error]) from error
    return merged


def _of_plugins(names: Sequence[str], registry: Registry, presets: Mapping[str, Path], flag: str) -> Merged:
    """Return a profile that combines ``default`` with the stages that these plugins implement.

    Refiners run in the order of ``names``.
    """
    stages: dict[str, Any] = {}
    for name in names:
        for stage in _answered(name, registry, flag):
            if stage is Stage.REFINE:
                stages["refiners"] = [*stages.get("refiners", []), name]
                continue
            if stage.value in stages:
                rule = "plugins that are paired must answer different stages"
                value = f"{shown(stages[stage.value])} and {shown(name)}, which both answer {stage.value}"
                raise InputErrors([InputError(rule, value=value, place=flag)])
            stages[stage.value] = name
    base = merge(NOTHING, {"stages": dict(FALLBACK)}, DEFAULT)
    if DEFAULT in presets:
        base = _read_file(presets[DEFAULT], presets)
    return merge(base, {"stages": stages}, f"{flag} {'+'.join(names)}")


_DESCRIPTIONS: Final = ("summary", "paper", "paper_default")
"""Keys that describe a preset without setting anything."""


def preset_keys_left_out(text: str, registry: Registry) -> dict[str, list[str]]:
    """Return, for each plugin of a policy ``A+B`` with a preset of that name, preset keys that A+B lacks or changes."""
    presets = registry.presets()
    if "+" not in text or text in presets or text in registry:
        return {}
    names = [part.strip() for part in text.split("+")]
    made = {(path, str(item)) for path, item in _leaves(_of_plugins(names, registry, presets, "").tree)}
    chosen = {f"stages.{stage.value}" for name in names for stage in registry.stages(name)} | set(_DESCRIPTIONS)
    found = {}
    for name in names:
        tree = _read_file(presets[name], presets).tree if name in presets else {}
        found[name] = [path for path, item in _leaves(tree) if path not in chosen and (path, str(item)) not in made]
    return {name: keys for name, keys in found.items() if keys}


def _leaves(tree: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, object]]:
    for key, item in tree.items():
        if isinstance(item, Mapping):
            yield from _leaves(item, f"{path}{key}.")
        else:
            yield f"{path}{key}", item


def _answered(name: str, registry: Registry, flag: str) -> Sequence[Stage]:
    """Return the stages that a plugin implements.

    Raises:
        InputErrors: the plugin does not exist, does not load, or implements no stage.
    """
    if name not in registry:
        value = f"{shown(name)}{did_you_mean(name, registry.names)}"
        raise InputErrors([InputError("each part of a policy A+B must be a plugin", value=value, place=flag)])
    listed = registry.listed(name)
    if listed.error is not None:
        rule = "a policy must be a plugin that loads"
        raise InputErrors([InputError(rule, value=f"{shown(name)}, {listed.status.value}: {listed.error}", place=flag)])
    if not listed.stages:
        raise InputErrors([InputError("a policy must answer a stage", value=f"{shown(name)}, which none", place=flag)])
    return listed.stages


def _set(merged: Merged, settings: Settings) -> Merged:
    errors: list[InputError] = []
    for setting in settings.items() if isinstance(settings, Mapping) else settings:
        try:
            path, item = parse_setting(setting) if isinstance(setting, str) else setting
            merged = merge(merged, read_setting(path, item), f"--set {path}")
        except InputError as error:
            errors.append(error)
    if errors:
        raise InputErrors(errors)
    return merged
