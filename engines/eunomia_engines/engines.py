"""Engines by name: the built-in ones, and those that plugins provide through the hook ``eunomia_engine``."""

from importlib import import_module
from typing import Any, Final

from eunomia.errors import EunomiaError, InputError, PluginError
from eunomia.platform.checking import hooks_of
from eunomia.platform.registry import Registry
from eunomia.words import did_you_mean
from eunomia_appmaster.commands.serve_flags import ServeFlags
from eunomia_engines.engine import EngineKind

HOOK: Final = "eunomia_engine"
ENGINES: Final = {
    "kubernetes": "eunomia_engines.kubernetes.engine:KubernetesKind",
    "ray": "eunomia_engines.ray.engine:RayKind",
    "slurm": "eunomia_engines.slurm.engine:SlurmKind",
}
"""Built-in engines as ``module:class``."""


def engine_names(registry: Registry) -> tuple[str, ...]:
    """Return the names of all engines, sorted; this loads every plugin."""
    plugins = (item for item in registry.all() if item.plugin is not None and HOOK in hooks_of(item.plugin))
    return tuple(sorted({*ENGINES, *(item.found.name for item in plugins)}))


def load_engine(name: str, registry: Registry) -> EngineKind:
    """Return the engine with this name.

    Raises:
        InputError: there is no such engine, or an extra that it requires is not installed.
        PluginError: its plugin does not load, or does not name a class that can be created.
    """
    target = ENGINES.get(name) or _target(name, registry)
    try:
        module, _, attribute = target.partition(":")
        kind: Any = getattr(import_module(module), attribute)()
    except EunomiaError:
        raise
    except Exception as error:
        value = f"{type(error).__name__}: {error}".splitlines()[0]
        raise PluginError(f'engine "{name}" must be made without an error', value=value, place=target) from error
    if missing := [call for call in ("check", "engine") if not callable(getattr(kind, call, None))]:
        raise PluginError(f'engine "{name}" must have the call {missing[0]}', value=type(kind).__name__, place=target)
    made: EngineKind = kind
    return made


def serve_on(name: str, flags: ServeFlags, registry: Registry) -> int:
    """Serve on the machines that an engine has allocated to this shell; returns the exit code.

    Raises:
        InputError: there is no such engine, it cannot serve in an allocation, or this shell has none.
    """
    serve_allocation = getattr(load_engine(name, registry), "serve_allocation", None)
    if not callable(serve_allocation):
        raise InputError("--on must name an engine that gives machines to a shell: slurm", value=f'"{name}"')
    return int(serve_allocation(flags))


def _target(name: str, registry: Registry) -> str:
    """Return ``module:class`` of a plugin's engine."""
    kind = registry.load(name) if name in registry else None
    if kind is None or HOOK not in hooks_of(kind):
        known = engine_names(registry)
        raise InputError(f"an engine must be one of {', '.join(known)}", value=f'"{name}"{did_you_mean(name, known)}')
    rule, place = f"{HOOK} must return module:class", f"plugin {name}"
    try:
        target = registry.make(name, {}, alias=name, place=".".join).eunomia_engine()
    except EunomiaError:
        raise
    except Exception as error:
        raise PluginError(rule, value=f"{type(error).__name__}: {error}".splitlines()[0], place=place) from error
    if not isinstance(target, str) or ":" not in target:
        raise PluginError(rule, value=repr(target), place=place)
    return target
