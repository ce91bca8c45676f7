"""The names under which a performance model knows the models of a trace, and the nearest ones to a name it lacks."""

import difflib
from collections.abc import Iterable, Mapping
from typing import Protocol, runtime_checkable

from eunomia.errors import InputError
from eunomia.model.shapes import value
from eunomia_testbed.performance.reading import plain, unknown
from eunomia_testbed.performance.speeds import PerformanceModel
from eunomia_testbed.workload.adaptation import named_model, split_model

MOST_SHOWN = 60
"""Most characters of a name in a message."""
MOST_NEAR = 4
"""Most batch sizes of one model that a message lists."""


@runtime_checkable
class ByBatch(Protocol):
    """A performance model that knows a model's speed at some batch sizes only."""

    def knows(self, model: str, batch_size: float | None) -> bool:
        """Return whether there is a speed of a model at a global batch size; None: at the one of its name."""
        ...


@runtime_checkable
class ByType(Protocol):
    """A performance model with models whose speed is the same on every GPU type."""

    def ignores_type(self, model: str) -> bool:
        """Return whether a model has one speed for all GPU types."""
        ...


def knows(speeds: PerformanceModel, model: str, batch_size: float | None = None) -> bool:
    """Return whether a performance model has a speed of a model at a batch size; None: at the one of its name."""
    if isinstance(speeds, ByBatch):
        return speeds.knows(model, batch_size)
    known = speeds.models
    return model in known or split_model(model)[0] in known


def known_of(speeds: PerformanceModel, names: Iterable[str]) -> frozenset[str]:
    """Return the names for which a performance model has speeds, each at the batch size that it names."""
    return frozenset(name for name in names if knows(speeds, name))


def ignores_type(speeds: PerformanceModel, model: str) -> bool:
    """Return whether a performance model gives a model one speed for all GPU types."""
    return isinstance(speeds, ByType) and speeds.ignores_type(model)


@value
class Taken:
    """The name and the batch size by which a job's speed is looked up."""

    name: str
    batch_size: float | None = None
    """None: the one of the name."""


class SpeedNames:
    """Finds the name under which a performance model has the speed of a trace's model.

    Args:
        speeds: the performance model.
        assumed: by a name that it lacks, the name whose speeds are taken; None: the jobs' own times hold everywhere.
    """

    def __init__(self, speeds: PerformanceModel, assumed: Mapping[str, str | None]) -> None:
        self._speeds, self._assumed = speeds, assumed
        self._found: dict[tuple[str, float | None], Taken | None] = {}
        self._has_sizes = any(split_model(name)[1] is not None for name in speeds.models)

    def of(self, model: str, batch_size: float | None) -> Taken | None:
        """Return the name to look up; None: the job's own times hold on every GPU type.

        Args:
            model: the name in the trace; empty: the job names none.
            batch_size: the job's global batch size; None: that of the name.

        Raises:
            InputError: the performance model lacks the name at that batch size, and nothing is assumed of it.
        """
        key = (model, batch_size)
        if key not in self._found:
            self._found[key] = self._of(model, batch_size)
        return self._found[key]

    def lacked(self, model: str, batch_size: float | None) -> str | None:
        """Return the name that the performance model lacks, for messages; None: it has the model at that batch size."""
        if model and knows(self._speeds, model, batch_size):
            return None
        if model and batch_size is not None and (self._has_sizes or knows(self._speeds, model)):
            return named_model(split_model(model)[0], int(batch_size))
        return model

    def _of(self, model: str, batch_size: float | None) -> Taken | None:
        name = self.lacked(model, batch_size)
        if name is None:
            return Taken(name=model, batch_size=batch_size)
        if name not in self._assumed:
            raise unknown("model", name, self._speeds.models, getattr(self._speeds, "place", "--speeds"))
        other = self._assumed[name]
        return None if other is None else stand_in(self._speeds, other, name, batch_size)


def stand_in(speeds: PerformanceModel, name: str, model: str, batch_size: float | None) -> Taken:
    """Return how to look up the speeds of another model: at its own batch size, else at the job's.

    Args:
        speeds: the performance model.
        name: the other model, with or without a batch size.
        model: the name that the performance model lacks.
        batch_size: the job's global batch size; None: that of its name.

    Raises:
        InputError: the performance model has no speeds of that name, or none at the job's batch size.
    """
    family, own = split_model(name)
    of_job = split_model(model)[1] if batch_size is None else int(batch_size)
    choices = [(name, None)] if own is not None else [(family, of_job), (name, None)]
    for choice, size in choices:
        if knows(speeds, choice, size):
            return Taken(name=choice, batch_size=size)
    near = nearest(speeds.models, name if of_job is None else named_model(family, of_job))
    hint = f"; did you mean {near}?" if near else ""
    raise InputError(
        "a model whose speeds are taken must be one that --speeds knows", value=f'"{name[:MOST_SHOWN]}"{hint}'
    )


def nearest(known: Iterable[str], name: str) -> str:
    """Return in words the known names nearest to a name, whatever their case, marks and batch sizes; empty: none.

    One model at several batch sizes is written with all of them: ``"ResNet-50" (batch size 16, 32, 64)``.
    """
    family, batch = split_model(name)
    by_family: dict[str, dict[str, list[int]]] = {}
    for each in known:
        other, size = split_model(each)
        by_family.setdefault(plain(other), {}).setdefault(other, []).extend([] if size is None else [size])
    close = difflib.get_close_matches(plain(family), by_family, n=1) if plain(family) else []
    if not close:
        return ""
    other, sizes = next(iter(by_family[close[0]].items()))
    if not sizes:
        return f'"{other}"'
    if batch in sizes or len(sizes) == 1:
        return f'"{named_model(other, batch if batch in sizes else sizes[0])}"'
    listed = ", ".join(map(str, sorted(sizes, key=lambda size: abs(size - (batch or 0)))[:MOST_NEAR]))
    return f'"{other}" (batch size {listed}{", ..." if len(sizes) > MOST_NEAR else ""})'


def same_name(known: Iterable[str], name: str) -> str | None:
    """Return the only known name that differs from a name in case and marks alone; None: there is none, or several."""
    found = [each for each in known if plain(each) == plain(name)]
    return found[0] if len(found) == 1 else None
