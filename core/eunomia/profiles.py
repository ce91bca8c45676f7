"""Profiles: which plugin answers each stage, when rounds run, and every plugin's options; read, checked, made."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

import pluggy

from eunomia.checking import NAME, bind, hooks_of
from eunomia.cluster import Cluster
from eunomia.contracts import Contract
from eunomia.decisions import Decision
from eunomia.errors import EunomiaError, InputError, InputErrors
from eunomia.hookspecs import Hooks
from eunomia.layers import NOTHING, Merged, layers_of, merge, parse_setting, read_setting, read_toml, unknown_keys
from eunomia.memos import Memo
from eunomia.registry import STAGE_OF_HOOK, Registry, default_registry
from eunomia.rounds import read_rounds, written_rounds
from eunomia.shapes import builds
from eunomia.stages import ExplainStage, RefineStage, Rounds, Stages
from eunomia.toml_text import toml_key, toml_value
from eunomia.units import Stage
from eunomia.walk import Step, check_cluster, check_walk, contract_of
from eunomia.words import did_you_mean, shown

DEFAULT: Final = "default"
"""The preset that answers what a lone plugin does not."""

FALLBACK: Final[Mapping[str, str]] = {
    "elasticity": "fixed",
    "valuation": "fifo",
    "allocation": "ordered",
    "placement": "packed",
}
"""What the arbiter serves by when the chosen profile has failed too often."""

SINGLE_STAGES: Final = (Stage.ELASTICITY, Stage.VALUATION, Stage.ALLOCATION, Stage.PLACEMENT)
_TOP = ("summary", "stages", "rounds", "plugins", "observers")
_IN_STAGES = (*(stage.value for stage in SINGLE_STAGES), "refiners")

Settings = Mapping[str, object] | Sequence[str]
"""Values by dotted key, or texts ``KEY=VALUE`` as ``--set`` takes them."""
Observer = Callable[[Decision], None]


@builds
class Profile:
    """A checked profile. It makes its plugins anew each time that ``stages`` is asked for.

    Attributes:
        name: the preset, file or plugin that it was loaded as.
        merged: its tables, each value with where it came from.
        registry: the plugins that it may name.
    """

    name: str
    merged: Merged
    registry: Registry

    @classmethod
    def load(
        cls, name: str | Path, *, settings: Settings = (), registry: Registry | None = None, flag: str = "--policy"
    ) -> Self:
        """Load a preset, a profile file, or a plugin; a lone plugin answers its stages, ``default`` the rest.

        Args:
            name: name or path.
            settings: what to change, by dotted key.
            registry: the plugins that there are; None: those found in this process.
            flag: where the name came from, for errors.

        Raises:
            InputErrors: everything that is wrong with it.
        """
        plugins = default_registry() if registry is None else registry
        text = str(name)
        presets = plugins.presets()
        if text.endswith(".toml") or "/" in text or isinstance(name, Path):
            path = Path(name)
            if not path.is_file():
                raise InputErrors([InputError("a profile must be a file that exists", value=shown(text), place=flag)])
            merged = _read(path.read_text(), path.name, path.parent, presets)
            return cls._checked(path.stem, merged, plugins, settings)
        if text in presets:
            merged = _read(presets[text].read_text(), presets[text].name, presets[text].parent, presets)
        elif text in plugins:
            merged = _alone(text, plugins, presets, flag)
        else:
            hint = did_you_mean(text, {*presets, *plugins.names})
            rule = "a policy must be a preset, a profile file or a plugin"
            raise InputErrors([InputError(rule, value=f"{shown(text)}{hint}", place=flag)])
        return cls._checked(text, merged, plugins, settings)

    @classmethod
    def parse(
        cls, text: str, *, name: str, settings: Settings = (), registry: Registry | None = None, place: str = "profile"
    ) -> Self:
        """Read a profile from its text, such as another process's ``resolved``.

        Raises:
            InputErrors: everything that is wrong with it.
        """
        plugins = default_registry() if registry is None else registry
        return cls._checked(name, _read(text, place, None, plugins.presets()), plugins, settings)

    @classmethod
    def fallback(cls, *, registry: Registry | None = None) -> Self:
        """The built-in profile that serves when the chosen one has failed too often."""
        merged = merge(NOTHING, {"stages": dict(FALLBACK)}, "fallback")
        return cls._checked("fallback", merged, default_registry() if registry is None else registry, ())

    @classmethod
    def _checked(cls, name: str, merged: Merged, registry: Registry, settings: Settings) -> Self:
        made = cls(name=name, merged=_set(merged, settings), registry=registry)
        _Cast(made).check()
        return made

    def replace(self, *, name: str | None = None, settings: Settings = ()) -> Self:
        """The same profile with another name or other settings.

        Raises:
            InputErrors: everything that is wrong with the settings.
        """
        return self._checked(name or self.name, self.merged, self.registry, settings)

    @property
    def summary(self) -> str:
        """What it says of itself, in one sentence."""
        return str(self.merged.tree.get("summary", ""))

    @property
    def plugins(self) -> Mapping[Stage, str]:
        """The plugin that answers each of the four stages."""
        return {stage: str(self.merged.tree["stages"][stage.value]) for stage in SINGLE_STAGES}

    @property
    def rounds(self) -> Rounds:
        """Its ``[rounds]``."""
        return read_rounds(self.merged, [])

    def stages(self, cluster: Cluster | None = None, *, place: str = "--cluster") -> Stages:
        """Make the plugins and bind their hooks.

        Args:
            cluster: what the plugins' needs are checked against; None: nothing is checked.
            place: where the cluster came from, for errors.

        Raises:
            InputErrors: the cluster does not suit the plugins.
        """
        cast = _Cast(self)
        cast.check()
        unsuited = [] if cluster is None else check_cluster(cast.steps(), cluster, place=place)
        if unsuited:
            raise InputErrors(unsuited)
        return cast.stages()

    def observers(self) -> tuple[tuple[str, Observer], ...]:
        """The observers that the profile allows, by name, and its own plugins that observe; each to be called alone."""
        cast = _Cast(self)
        cast.check()
        bound = ((name, bind(plugin, "eunomia_round_finished")) for name, plugin in cast.made.items())
        return tuple((name, call) for name, call in bound if call is not None)

    def resolved(self) -> str:
        """The profile as TOML that extends nothing, with every default written out."""
        return "\n".join(line for line, _ in self.origins()) + "\n"

    def origins(self) -> tuple[tuple[str, str], ...]:
        """The lines of ``resolved``, each with where it came from; empty for headers and blank lines."""
        cast = _Cast(self)
        cast.check()
        return tuple(cast.lines())


def _read(text: str, origin: str, folder: Path | None, presets: Mapping[str, Path]) -> Merged:
    try:
        merged = NOTHING
        for layer, place in layers_of(read_toml(text, place=origin), origin, folder, presets.get):
            merged = merge(merged, layer, place)
    except InputErrors:
        raise
    except InputError as error:
        raise InputErrors([error]) from error
    return merged


def _alone(name: str, registry: Registry, presets: Mapping[str, Path], flag: str) -> Merged:
    """The profile ``default`` with every stage that this plugin answers."""
    listed = registry.listed(name)
    if listed.error is not None:
        rule = "a policy must be a plugin that loads"
        raise InputErrors([InputError(rule, value=f"{shown(name)}, {listed.status.value}: {listed.error}", place=flag)])
    if not listed.stages:
        raise InputErrors([InputError("a policy must answer a stage", value=f"{shown(name)}, which none", place=flag)])
    base = merge(NOTHING, {"stages": dict(FALLBACK)}, DEFAULT)
    if DEFAULT in presets:
        base = _read(presets[DEFAULT].read_text(), presets[DEFAULT].name, None, presets)
    stages: dict[str, Any] = {stage.value: name for stage in listed.stages if stage is not Stage.REFINE}
    if Stage.REFINE in listed.stages:
        stages["refiners"] = [name]
    return merge(base, {"stages": stages}, f"{flag} {name}")


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


class _Cast:
    """The plugins of one profile, made; what is wrong is gathered and raised together."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.merged = profile.merged
        self.tree = profile.merged.tree
        self.registry = profile.registry
        self.errors: list[InputError] = []
        self.tried: set[str] = set()
        self.made: dict[str, Any] = {}
        self.rounds = Rounds()
        self.manager = pluggy.PluginManager("eunomia")
        self.manager.add_hookspecs(Hooks)

    def check(self) -> None:
        """Make all plugins.

        Raises:
            InputErrors: everything that is wrong.
        """
        self.errors += unknown_keys(self.merged, (), _TOP)
        self.rounds = read_rounds(self.merged, self.errors)
        self._check_tables()
        for stage in SINGLE_STAGES:
            self._take_stage(stage)
        for name in self._names(("stages", "refiners")):
            self._take(name, Stage.REFINE, ("stages", "refiners"))
        for name in self._names(("observers",)):
            self._take(name, None, ("observers",))
        if not self.errors:
            self.errors += check_walk(
                self.steps(),
                bids=self.rounds.bid_deadline is not None,
                others=self._others,
                place=self.merged.table_place(("stages",)),
                bids_place=self.merged.place(("rounds", "bid_deadline")),
            )
        if self.errors:
            raise InputErrors(self.errors)

    def steps(self) -> list[Step]:
        """The stages in calling order."""
        named = [(stage, self.tree["stages"][stage.value]) for stage in SINGLE_STAGES]
        refiners = [(Stage.REFINE, name) for name in self._refiners()]
        order = [*named[:3], *refiners, named[3]]
        return [Step(stage, name, contract_of(self.made[name], stage)) for stage, name in order]

    def stages(self) -> Stages:
        """Bind the hooks."""
        named = {stage: self.tree["stages"][stage.value] for stage in SINGLE_STAGES}
        of: Callable[[Stage, str], Any] = lambda stage, hook: bind(self.made[named[stage]], hook)  # noqa: E731
        refiners = [bind(self.made[name], "eunomia_refine") for name in self._refiners()]
        explain = {name: bind(plugin, "eunomia_explain") for name, plugin in self.made.items()}
        return Stages(
            profile=self.profile.name,
            elasticity=of(Stage.ELASTICITY, "eunomia_elasticity"),
            valuation=of(Stage.VALUATION, "eunomia_valuation"),
            allocation=of(Stage.ALLOCATION, "eunomia_allocation"),
            placement=of(Stage.PLACEMENT, "eunomia_placement"),
            refiners=tuple(_present(refiners)),
            offer=of(Stage.ALLOCATION, "eunomia_offer"),
            triggers=of(Stage.ALLOCATION, "eunomia_triggers"),
            names=named,
            refiner_names=tuple(self._refiners()),
            contracts={stage: getattr(self.made[name], "contracts", {}) for stage, name in named.items()},
            explain=_explainers(explain),
            rounds=self.rounds,
            memo_types=tuple(self._memo_types()),
        )

    def lines(self) -> Iterable[tuple[str, str]]:
        """Yield the resolved profile, line by line, with origins."""
        if self.profile.summary:
            yield f"summary = {toml_value(self.profile.summary)}", self.merged.origin(("summary",))
        if "observers" in self.tree:
            yield f"observers = {toml_value(self.tree['observers'])}", self.merged.origin(("observers",))
        yield from self._section(("stages",), self._written_stages(), "default")
        yield from self._section(("rounds",), written_rounds(self.rounds), "default")
        for alias, plugin in self.made.items():
            options: Any = getattr(plugin, "options", None)
            written = options.model_dump(mode="json", exclude_none=True) if hasattr(options, "model_dump") else {}
            use = self.plugin_of(alias)
            if written or use != alias:
                own = {"use": use} if use != alias else {}
                yield from self._section(("plugins", alias), {**own, **written}, f"default of {use}")

    def _written_stages(self) -> dict[str, object]:
        table = self.tree["stages"]
        return {key: table[key] for key in _IN_STAGES if table.get(key)}

    def _section(self, path: tuple[str, ...], table: Mapping[str, object], default: str) -> Iterable[tuple[str, str]]:
        yield "", ""
        yield f"[{'.'.join(toml_key(key) for key in path)}]", ""
        for key, item in table.items():
            here = (*path, key)
            known = any(known[: len(here)] == here for known in self.merged.origins)
            yield f"{toml_key(key)} = {toml_value(item)}", self.merged.origin(here) if known else default

    def plugin_of(self, alias: str) -> str:
        """The plugin behind a name of the profile."""
        table = self.tree.get("plugins", {}).get(alias, {})
        return str(table.get("use", alias)) if isinstance(table, Mapping) else alias

    def _refiners(self) -> list[str]:
        return list(self.tree["stages"].get("refiners", ()))

    def _check_tables(self) -> None:
        """Keys that mean nothing, and options of plugins that do not exist."""
        for key in ("stages", "plugins"):
            if not isinstance(self.tree.get(key, {}), Mapping):
                place = self.merged.place((key,))
                raise InputErrors([*self.errors, InputError(f"{key} must be a table", place=place)])
        self.errors += unknown_keys(self.merged, ("stages",), _IN_STAGES)
        for alias, table in self.tree.get("plugins", {}).items():
            path = ("plugins", alias)
            if not isinstance(table, Mapping):
                error = InputError("options of a plugin must be a table", value=shown(table))
                self.errors.append(InputError(error.rule, value=error.value, place=self.merged.place(path)))
            elif not NAME.fullmatch(alias):
                rule = "a plugin's name must be lower-case letters, digits and _"
                self.errors.append(InputError(rule, value=shown(alias), place=self.merged.table_place(path)))
            elif self.plugin_of(alias) not in self.registry.names:
                name = self.plugin_of(alias)
                value = f"{shown(name)}{did_you_mean(name, self.registry.names)}"
                where = (*path, "use") if "use" in table else path
                place = self.merged.place(where) if "use" in table else self.merged.table_place(path)
                self.errors.append(InputError("options must be of a plugin that is there", value=value, place=place))

    def _take_stage(self, stage: Stage) -> None:
        path = ("stages", stage.value)
        name = self.tree.get("stages", {}).get(stage.value)
        if name is None:
            rule = f"{stage.value} must be named in [stages], or extends must name a preset"
            self.errors.append(InputError(rule, place=self.merged.origin(())))
        else:
            self._take(name, stage, path)

    def _names(self, path: tuple[str, ...]) -> list[object]:
        table: Any = self.tree
        for key in path:
            table = table.get(key, ())
        if isinstance(table, list | tuple):
            return list(table)
        self.errors.append(
            InputError(f"{path[-1]} must be a list of plugins", value=shown(table), place=self.merged.place(path))
        )
        return []

    def _take(self, name: object, stage: Stage | None, path: tuple[str, ...]) -> None:
        """Make a plugin that the profile names, unless it is made already or cannot be."""
        place = self.merged.place(path)
        what = stage.value if stage is not None else "rounds finished"
        rule = f"{path[-1]} must name a plugin that answers {what}"
        if not isinstance(name, str) or self.plugin_of(name) not in self.registry.names:
            known = {*self.registry.names, *self.tree.get("plugins", {})} - {name}
            hint = did_you_mean(str(name), sorted(known))
            self.errors.append(InputError(rule, value=f"{shown(name)}{hint}", place=place))
            return
        listed = self.registry.listed(self.plugin_of(name))
        if listed.error is not None:
            text = f"{shown(name)}, which is {listed.status.value}: {listed.error}"
            self.errors.append(InputError(f"{path[-1]} must name a plugin that loads", value=text, place=place))
            return
        if stage is not None and stage not in listed.stages:
            answers = ", ".join(other.value for other in listed.stages) or "no stage"
            self.errors.append(InputError(rule, value=f"{shown(name)}, which answers {answers}", place=place))
            return
        if stage is None and "eunomia_round_finished" not in hooks_of(self.registry.load(self.plugin_of(name))):
            self.errors.append(InputError(rule, value=shown(name), place=place))
            return
        if name not in self.tried:
            self.tried.add(name)
            self._make(name, place)

    def _make(self, name: str, place: str) -> None:
        table = self.tree.get("plugins", {}).get(name, {})
        given = {key: item for key, item in table.items() if key != "use"} if isinstance(table, Mapping) else {}
        where = partial(_place_of_option, self.merged, name)
        try:
            self.made[name] = self.registry.make(self.plugin_of(name), given, alias=name, place=where)
            self.manager.register(self.made[name], name)
        except InputErrors as error:
            self.errors += error.errors
        except InputError as error:
            self.errors.append(error)
        except EunomiaError as error:
            self.errors.append(InputError(error.rule, value=error.value, place=place))

    def _memo_types(self) -> Iterable[tuple[str, Stage, type[Memo]]]:
        for name, plugin in self.made.items():
            for stage, kind in getattr(plugin, "memo_types", {}).items():
                yield name, stage, kind

    def _others(self, stage: Stage, suits: Callable[[Contract], bool]) -> list[str]:
        """Plugins that answer a stage with a contract that suits, made with their defaults."""
        found = []
        for name in self.registry.answering(stage):
            try:
                made = self.registry.make(name, {}, alias=name, place=lambda path: "")
            except EunomiaError:
                continue
            if suits(contract_of(made, stage)):
                found.append(name)
        return found


def _place_of_option(merged: Merged, plugin: str, path: tuple[str, ...]) -> str:
    return merged.place(("plugins", plugin, *path)) if path else merged.table_place(("plugins", plugin))


def _present(refiners: Iterable[RefineStage | None]) -> Iterable[RefineStage]:
    return (refiner for refiner in refiners if refiner is not None)


def _explainers(bound: Mapping[str, ExplainStage | None]) -> dict[str, ExplainStage]:
    return {name: call for name, call in bound.items() if call is not None}


__all__ = ["DEFAULT", "FALLBACK", "STAGE_OF_HOOK", "Profile", "Settings"]
