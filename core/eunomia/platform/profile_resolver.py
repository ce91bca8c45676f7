"""Resolve a profile: check and create its plugins, bind them to stages, and write the result as text."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from eunomia.contract.contracts import Contract
from eunomia.contract.stages import Rounds, Stages
from eunomia.errors import EunomiaError, InputError, InputErrors
from eunomia.platform.checking import NAME, bind, hooks_of
from eunomia.platform.contract_check import Step, check_chain, contract_of
from eunomia.platform.layers import Merged, unknown_keys
from eunomia.platform.registry import Registry
from eunomia.platform.rounds import read_rounds, written_rounds
from eunomia.platform.toml_text import toml_key, toml_value
from eunomia.platform.tracing import is_tracing, traced
from eunomia.units import Stage
from eunomia.words import did_you_mean, shown

SINGLE_STAGES: Final = (Stage.ELASTICITY, Stage.VALUATION, Stage.ALLOCATION, Stage.PLACEMENT)
FALLBACK: Final[Mapping[str, str]] = {
    "elasticity": "fixed",
    "valuation": "fifo",
    "allocation": "ordered",
    "placement": "packed",
}
"""The fallback profile, which the arbiter uses after too many faulty rounds."""
TOP_KEYS = ("summary", "paper", "paper_default", "stages", "rounds", "plugins", "observers")
_IN_STAGES = (*(stage.value for stage in SINGLE_STAGES), "refiners")


class ProfilePlugins:
    """The plugins of one profile; all errors are collected and raised together.

    Args:
        name: name of the profile.
        merged: the merged tables of the profile.
        registry: the plugins that the profile may name.
    """

    def __init__(self, name: str, merged: Merged, registry: Registry) -> None:
        self.name = name
        self.merged = merged
        self.tree = merged.tree
        self.registry = registry
        self.errors: list[InputError] = []
        self.tried: set[str] = set()
        self.made: dict[str, Any] = {}
        self.rounds = Rounds()

    def check(self) -> None:
        """Create and check all plugins.

        Raises:
            InputErrors: all errors in the profile.
        """
        self.errors += unknown_keys(self.merged, (), TOP_KEYS)
        self.rounds = read_rounds(self.merged, self.errors)
        self._check_tables()
        for stage in SINGLE_STAGES:
            self._take_stage(stage)
        for name in self._names(("stages", "refiners")):
            self._take(name, Stage.REFINE, ("stages", "refiners"))
        for name in self._names(("observers",)):
            self._take(name, None, ("observers",))
        if not self.errors:
            self.errors += check_chain(
                self.steps(),
                bids=self.rounds.bid_deadline is not None,
                others=self._others,
                unread=FALLBACK[Stage.VALUATION.value],
                place=self.merged.table_place(("stages",)),
                bids_place=self.merged.place(("rounds", "bid_deadline")),
            )
        if self.errors:
            raise InputErrors(self.errors)

    def steps(self) -> list[Step]:
        """Return the stages in calling order."""
        named = [(stage, self.tree["stages"][stage.value]) for stage in SINGLE_STAGES]
        refiners = [(Stage.REFINE, name) for name in self._refiners()]
        order = [*named[:3], *refiners, named[3]]
        return [Step(stage, name, contract_of(self.made[name], stage)) for stage, name in order]

    def stages(self) -> Stages:
        """Bind the hooks of the plugins and return the stages."""
        chosen = {stage: self.tree["stages"][stage.value] for stage in SINGLE_STAGES}
        plugins = {stage: (name, self.made[name]) for stage, name in chosen.items()}
        refiners = [(name, self.made[name]) for name in self._refiners()]
        return bound_stages(self.name, plugins, refiners, self.made.items(), self.rounds)

    def lines(self) -> Iterable[tuple[str, str]]:
        """Yield each line of the resolved profile with its origin."""
        for key in ("summary", "observers"):
            if key in self.tree:
                yield f"{key} = {toml_value(self.tree[key])}", self.merged.origin((key,))
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
        """Return the plugin that a name in the profile refers to."""
        table = self.tree.get("plugins", {}).get(alias, {})
        return str(table.get("use", alias)) if isinstance(table, Mapping) else alias

    def _refiners(self) -> list[str]:
        return list(self.tree["stages"].get("refiners", ()))

    def _check_tables(self) -> None:
        """Collect errors for unknown keys and for options of plugins that do not exist."""
        for key in ("stages", "plugins"):
            if not isinstance(self.tree.get(key, {}), Mapping):
                place = self.merged.place((key,))
                raise InputErrors([*self.errors, InputError(f"{key} must be a table", place=place)])
        self.errors += unknown_keys(self.merged, ("stages",), _IN_STAGES)
        for alias, table in self.tree.get("plugins", {}).items():
            path = ("plugins", alias)
            if not isinstance(table, Mapping):
                rule = "options of a plugin must be a table"
                self.errors.append(InputError(rule, value=shown(table), place=self.merged.place(path)))
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
            table = table.get(key, ()) if isinstance(table, Mapping) else ()
        if isinstance(table, list | tuple):
            return list(table)
        self.errors.append(
            InputError(f"{path[-1]} must be a list of plugins", value=shown(table), place=self.merged.place(path))
        )
        return []

    def _take(self, name: object, stage: Stage | None, path: tuple[str, ...]) -> None:
        """Create a plugin that the profile names, unless that was already done or failed."""
        place = self.merged.place(path)
        what = stage.value if stage is not None else "rounds finished"
        rule = f"{path[-1]} must name a plugin that answers {what}"
        if not isinstance(name, str) or self.plugin_of(name) not in self.registry.names:
            known = sorted({*self.registry.names, *self.tree.get("plugins", {})} - {str(name)})
            hint = did_you_mean(str(name), known)
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
        except InputErrors as error:
            self.errors += error.errors
        except InputError as error:
            self.errors.append(error)
        except EunomiaError as error:
            self.errors.append(InputError(error.rule, value=error.value, place=place))

    def _others(self, stage: Stage, suits: Callable[[Contract], bool]) -> list[str]:
        """Return the names of plugins that, with default options, implement a stage with a suitable contract."""
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


def bound_stages(
    profile: str,
    plugins: Mapping[Stage, tuple[str, Any]],
    refiners: Sequence[tuple[str, Any]],
    made: Iterable[tuple[str, Any]],
    rounds: Rounds,
) -> Stages:
    """Bind the hooks of plugins to stages.

    Args:
        profile: name of the profile.
        plugins: name and instance of the plugin of each stage.
        refiners: names and instances of the refiners, in calling order.
        made: names and instances of all plugins of the profile, whose ``eunomia_explain`` is bound.
        rounds: the profile's ``[rounds]``.
    """
    tracing, made = is_tracing(), list(made)

    def bound(named: tuple[str, Any], hook: str) -> Any:
        call = bind(named[1], f"eunomia_{hook}")
        return traced(named[0], f"eunomia_{hook}", call) if call is not None and tracing else call

    asked = [*plugins.items(), *((Stage.REFINE, named) for named in refiners)]
    explain = {name: bind(plugin, "eunomia_explain") for name, plugin in made}
    return Stages(
        profile=profile,
        elasticity=bound(plugins[Stage.ELASTICITY], "elasticity"),
        valuation=bound(plugins[Stage.VALUATION], "valuation"),
        allocation=bound(plugins[Stage.ALLOCATION], "allocation"),
        placement=bound(plugins[Stage.PLACEMENT], "placement"),
        refiners=tuple(bound(named, "refine") for named in refiners),
        offer=bound(plugins[Stage.ALLOCATION], "offer"),
        triggers=bound(plugins[Stage.ALLOCATION], "triggers"),
        names={stage: name for stage, (name, _) in plugins.items()},
        refiner_names=tuple(name for name, _ in refiners),
        contracts={stage: getattr(plugin, "contracts", {}) for stage, (_, plugin) in plugins.items()},
        explain={name: call for name, call in explain.items() if call is not None},
        rounds=rounds,
        memo_types=tuple(
            (name, stage, kind) for name, plugin in made for stage, kind in getattr(plugin, "memo_types", {}).items()
        ),
        needs=frozenset().union(*(contract_of(plugin, stage).needs for stage, (_, plugin) in asked)),
        weigh_users=tuple(
            dict.fromkeys(name for stage, (name, plugin) in asked if contract_of(plugin, stage).weighs_users)
        ),
    )
