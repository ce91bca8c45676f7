"""Record the calls of stages with arguments and answers, and detect modified arguments."""

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

import numpy as np

from eunomia.contract.memos import Memos
from eunomia.contract.stages import Stages
from eunomia.contract.valuations import BySize, F, Valuations
from eunomia.platform.checking import SPECS
from eunomia.units import SizeUnit, Stage

SMALL = 4096
"""Size in bytes up to which a column is copied; larger columns are hashed."""

PLAIN = (str, int, float, bytes, Enum, np.generic, type(None))

Print = dict[str, object]
"""All values reachable from some arguments, by path such as ``snapshot.jobs.done``."""


@dataclasses.dataclass(slots=True)
class Call:
    """One call of a hook.

    Attributes:
        hook: name of the hook.
        stage: the stage that the hook implements.
        plugin: name of the called plugin.
        inputs: arguments by name.
        answer: the returned value; None if the call raised.
    """

    hook: str
    stage: Stage
    plugin: str
    inputs: dict[str, Any]
    answer: Any


class Guard:
    """Records the stage calls of one run, and the arguments that they modify.

    Args:
        plugin: the plugin whose inputs are compared before and after each call.
        twice: whether to call that plugin twice each time and compare its answers.
        seen: called after each call of a stage, before the arbiter acts on its answer.
    """

    def __init__(self, plugin: str, *, twice: bool = False, seen: Callable[[Call], None] | None = None) -> None:
        self.plugin = plugin
        self.twice = twice
        self.seen = seen
        self.changed: list[str] = []
        """Hook and path of each input that a call modified."""
        self.unlike: list[str] = []
        """Hooks whose answers to two equal calls differed."""
        self.asking = ""
        """Name of the hook that is being called."""
        self.forms: set[type[Any]] = set()
        """Forms that the plugin requested from a valuation."""
        self.units: set[SizeUnit] = set()
        """Units in which the plugin requested values by size."""

    def around(self, stages: Stages) -> Stages:
        """Return the same stages, with all calls recorded."""
        names = stages.names
        wrapped: dict[str, Any] = {
            stage.value: self._watched(f"eunomia_{stage.value}", stage, names[stage], getattr(stages, stage.value))
            for stage in (Stage.ELASTICITY, Stage.VALUATION, Stage.ALLOCATION, Stage.PLACEMENT)
        }
        wrapped["refiners"] = tuple(
            self._watched("eunomia_refine", Stage.REFINE, name, refine)
            for name, refine in zip(stages.refiner_names, stages.refiners, strict=True)
        )
        allocation = names[Stage.ALLOCATION]
        for field, hook in (("offer", "eunomia_offer"), ("triggers", "eunomia_triggers")):
            call = getattr(stages, field)
            wrapped[field] = call and self._watched(hook, Stage.ALLOCATION, allocation, call)
        return dataclasses.replace(stages, **wrapped)

    def _watched(self, hook: str, stage: Stage, plugin: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*arguments: Any) -> Any:
            inputs = dict(zip(SPECS[hook], arguments, strict=True))
            mine = plugin == self.plugin
            before = prints(inputs) if mine else {}
            given = [self._watching(item) for item in arguments] if mine else arguments
            self.asking = f"{plugin}.{hook}"
            try:
                answer = call(*given)
                self.asking = ""
            finally:
                if mine:
                    now = prints(inputs)
                    self.changed += [f"{hook} changed {path}" for path in difference(before, now)]
            if mine and self.twice:
                self._ask_again(hook, call, given, answer)
            if self.seen is not None:
                self.seen(Call(hook, stage, plugin, inputs, answer))
            return answer

        return watched

    def _ask_again(self, hook: str, call: Callable[..., Any], given: Any, answer: Any) -> None:
        found = difference(prints({"": answer}), prints({"": call(*given)}))
        self.unlike += [f"{hook} answered with another {path.removeprefix('.')}" for path in found[:1]]

    def _watching(self, item: Any) -> Any:
        if type(item) is not Valuations:
            return item
        asked = _Asked(**{field.name: getattr(item, field.name) for field in dataclasses.fields(item)})
        object.__setattr__(asked, "asked", self.forms)
        object.__setattr__(asked, "asked_units", self.units)
        return asked


class _Asked(Valuations):
    """A valuation that records which forms are requested."""

    def form(self, kind: type[F]) -> F:
        """Record the requested form and return it; see ``Valuations.form``."""
        vars(self)["asked"].add(kind)
        return super().form(kind)

    def by_size(self, *units: SizeUnit) -> BySize:
        """Record the requested units and return the values; see ``Valuations.by_size``."""
        vars(self)["asked_units"].update(units)
        return super().by_size(*units)


def prints(item: Mapping[str, Any]) -> Print:
    """Return all values reachable from the given ones, as comparable values by path."""
    made: Print = {}
    for name, part in item.items():
        _print(made, name, part)
    return made


def difference(before: Print, now: Print) -> list[str]:
    """Return the paths whose values differ, sorted."""
    return [] if before == now else sorted(path for path in {*before, *now} if before.get(path) != now.get(path))


def _print(made: Print, path: str, item: Any) -> None:
    if isinstance(item, np.ndarray):
        made[path] = _column(item)
    elif isinstance(item, Memos):
        for (plugin, stage), memo in item.items():
            made[f"{path}[{plugin}, {stage.value}]"] = memo.to_bytes()
    elif isinstance(item, PLAIN):
        made[path] = repr(item)  # so that NaN equals NaN
    elif (names := _fields(item.__class__)) is not None:
        for name in names:
            part = getattr(item, name)
            if not callable(part):
                _print(made, f"{path}.{name}", part)
    elif isinstance(item, Mapping):
        for key, part in item.items():
            _print(made, f"{path}[{key!r}]", part)
        made[path] = len(item)
    elif isinstance(item, tuple | list):
        for index, part in enumerate(item):
            _print(made, f"{path}[{index}]", part)
        made[path] = len(item)
    elif isinstance(item, frozenset | set):
        made[path] = frozenset(item)
    elif hasattr(item, "to_bytes"):
        made[path] = item.to_bytes()
    else:
        made[path] = type(item)


@functools.cache
def _fields(kind: type[Any]) -> tuple[str, ...] | None:
    return tuple(field.name for field in dataclasses.fields(kind)) if dataclasses.is_dataclass(kind) else None


def _column(item: "np.ndarray[Any, Any]") -> object:
    if item.dtype == object:
        return tuple(item.tolist())
    data = item.tobytes()
    return (item.shape, item.dtype, data if len(data) <= SMALL else hashlib.blake2b(data).digest())
