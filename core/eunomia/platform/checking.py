"""Check a plugin before it is registered, and bind its hooks without pluggy.

pluggy detects most of these mistakes late or never: it stops at the first unknown hook, never passes keyword-only
parameters, and confuses plugins that compare equal by value.
"""

import inspect
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from eunomia.contract.contracts import Contract, Feature
from eunomia.errors import PluginError
from eunomia.hookspecs import API, STAGE_HOOKS, Hooks
from eunomia.units import Stage
from eunomia.words import did_you_mean

NAME = re.compile(r"[a-z][a-z0-9_]*")
_MARK = "eunomia_impl"

SPECS: Mapping[str, tuple[str, ...]] = {
    name: tuple(inspect.signature(spec).parameters)[1:]
    for name, spec in vars(Hooks).items()
    if name.startswith("eunomia_")
}
"""The arguments of every hook, in order."""


class IncompatibleError(PluginError):
    """A plugin was written for another version of the hooks."""


def check_plugin(kind: Any, name: str) -> None:
    """Check a plugin class against the hook specifications.

    Args:
        kind: the object that the entry point, file or table names.
        name: the name of the plugin.

    Raises:
        IncompatibleError: the plugin was written for another API version.
        PluginError: the plugin has any other mistake that would fail later or be ignored silently.
    """
    if not isinstance(kind, type):
        raise PluginError("a plugin must be a class", value=f"a {type(kind).__name__}")
    given = getattr(kind, "name", None)
    if not isinstance(given, str) or not NAME.fullmatch(given):
        raise PluginError("name must be lower-case letters, digits and _, a letter first", value=repr(given))
    if given != name:
        raise PluginError(f'name must be that of its entry point, "{name}"', value=f'"{given}"')
    api = getattr(kind, "api", None)
    if api != API or isinstance(api, bool):
        raise IncompatibleError(f"api must be {API}", value=repr(api))
    if any("__eq__" in vars(base) or "__hash__" in vars(base) for base in kind.__mro__[:-1]):
        rule = "a plugin must be equal to itself alone: a dataclass says eq=False"
        raise PluginError(rule, value=f"{kind.__name__} with an __eq__ or __hash__ of its own")
    hooks = hooks_of(kind)
    if not hooks:
        raise PluginError("a plugin must implement a hook", value=f"none in {kind.__name__}")
    for hook, function in hooks.items():
        _check_hook(hook, function)
    _check_options(kind)
    if isinstance(vars(kind).get("contracts"), Mapping):
        check_contracts(kind)


def check_contracts(plugin: Any) -> None:
    """Check the contracts of a plugin, given as a class or an instance.

    Raises:
        PluginError: they do not map stages to contracts, or name a stage that the plugin does not implement.
    """
    contracts = getattr(plugin, "contracts", {})
    if not isinstance(contracts, Mapping):
        raise PluginError("contracts must map stages to contracts", value=repr(contracts))
    hooks = hooks_of(plugin if isinstance(plugin, type) else type(plugin))
    for stage, contract in contracts.items():
        if not isinstance(stage, Stage) or not isinstance(contract, Contract):
            raise PluginError("contracts must map stages to contracts", value=f"{stage!r}: {contract!r}")
        if f"eunomia_{stage.value}" not in hooks:
            raise PluginError("contracts must be of stages that the plugin answers", value=stage.value)
        if contract.units and Feature.BY_SIZE not in contract.needs | contract.gives:
            value = ", ".join(sorted(unit.name for unit in contract.units))
            raise PluginError(f"contract of {stage.value} must need or give BY_SIZE to name units", value=value)


def hooks_of(kind: type[Any]) -> dict[str, Callable[..., Any]]:
    """Return a plugin's hook implementations, including methods with the name of a hook that are not marked."""
    named = {name: getattr(kind, name) for name in dir(kind) if name.startswith("eunomia_")}
    return {name: function for name, function in named.items() if callable(function)}


def bind(plugin: Any, hook: str) -> Callable[..., Any] | None:
    """Return a plugin's implementation of a hook, callable with all of the hook's arguments; None if it has none.

    A method that takes all arguments in order is returned unchanged; other methods are wrapped in an adapter that
    passes only the arguments that they take.
    """
    method: Callable[..., Any] | None = getattr(plugin, hook, None)
    if method is None:
        return None
    spec = SPECS[hook]
    taken = tuple(inspect.signature(method).parameters)
    if taken == spec:
        return method
    places = [spec.index(name) for name in taken]

    chosen: Callable[[tuple[object, ...]], Iterable[object]] = (
        operator.itemgetter(*places)
        if len(places) > 1  # itemgetter of one item returns no tuple
        else lambda arguments: [arguments[place] for place in places]
    )

    def adapted(*arguments: object, **named: object) -> Any:
        if named:
            given = dict(zip(spec, arguments, strict=False)) | named
            return method(*[given[name] for name in taken])
        return method(*chosen(arguments))

    return adapted


def _check_hook(hook: str, function: Callable[..., Any]) -> None:
    if hook not in SPECS:
        raise PluginError("a hook must be one that Eunomia calls", value=f'"{hook}"{did_you_mean(hook, SPECS)}')
    marks = getattr(function, _MARK, None)
    if marks is None:
        raise PluginError("a hook must be marked @hookimpl", value=f"{hook} without it")
    if marks.get("wrapper") or marks.get("hookwrapper"):
        raise PluginError("a hook must be answered, not wrapped", value=f"{hook} as a wrapper")
    if hook in STAGE_HOOKS and (inspect.isgeneratorfunction(function) or inspect.iscoroutinefunction(function)):
        raise PluginError("a stage must be a plain function", value=f"{hook} as a generator or coroutine")
    _check_parameters(hook, function)


def _check_parameters(hook: str, function: Callable[..., Any]) -> None:
    known = SPECS[hook]
    parameters = list(inspect.signature(function).parameters.values())[1:]
    for parameter in parameters:
        if parameter.kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD:
            rule = f"parameters of {hook} must be plain: no *, **, / or keyword-only ones"
            raise PluginError(rule, value=f'"{parameter}"')
        if parameter.name not in known:
            hint = did_you_mean(parameter.name, known)
            raise PluginError(f"parameters of {hook} must be of {', '.join(known)}", value=f'"{parameter.name}"{hint}')


def _check_options(kind: type[Any]) -> None:
    if getattr(kind, "options_type", None) is None:
        return
    from eunomia.contract.options import PluginOptions

    options_type = kind.options_type
    if not isinstance(options_type, type) or not issubclass(options_type, PluginOptions):
        raise PluginError("options_type must be a subclass of PluginOptions", value=repr(options_type))
