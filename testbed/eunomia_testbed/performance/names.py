"""Matches a trace's model names with those of a performance model, and suggests similar names for unknown ones."""

import difflib
from collections.abc import Iterable, Mapping
from typing import Protocol, runtime_checkable

from eunomia.errors import InputError
from eunomia.model.shapes import value
from eunomia_testbed.performance.reading import plain, unknown
from eunomia_testbed.performance.speeds import PerformanceModel
from eunomia_testbed.workload.adaptation import named_model, split_model

MOST_SHOWN = 60
"""Longest name in a message, in characters."""
MOST_NEAR = 4
"""Largest number of batch sizes of one model that a message lists."""


@runtime_checkable
class ByBatch(Protocol):
    """A performance model that knows a model's speed only at some batch sizes."""

    def knows(self, model: str, batch_size: float | None) -> bool:
        """Return whether a model's speed at a global batch size is known; None: at the batch size in its name."""
        ...


@runtime_checkable
class ByType(Protocol):
    """A performance model with models whose speed is the same on every GPU type."""

    def ignores_type(self, model: str) -> bool:
        """Return whether a model has the same speed on all GPU types."""
        ...


def knows(speeds: PerformanceModel, model: str, batch_size: float | None = None) -> bool:
    """Return whether a performance model knows a model at a batch size; None: at the batch size in its name."""
    if isinstance(speeds, ByBatch):
        return speeds.knows(model, batch_size)
    known = speeds.models
    return model in known or split_model(model)[0] in known


def known_of(speeds: PerformanceModel, names: Iterable[str]) -> frozenset[str]:
    """Return the names that a performance model knows, each at the batch size in the name."""
    return frozenset(name for name in names if knows(speeds, name))


def ignores_type(speeds: PerformanceModel, model: str) -> bool:
    """Return whether a performance model gives a model the same speed on all GPU types."""
    return isinstance(speeds, ByType) and speeds.ignores_type(model)


@value
class Taken:
    """The model name and global batch size by which a performance model finds a job's speed."""

    name: str
    batch_size: float | None = None
    """Batch size; None: the one in the name."""


class SpeedNames:
    """A lookup of the names under which a performance model has the speeds of a trace's models.

    Args:
        speeds: the performance model.
        assumed: by each name that the model lacks, the name to use instead; None: the jobs' own times apply on every
            GPU type.
    """

    def __init__(self, speeds: PerformanceModel, assumed: Mapping[str, str | None]) -> None:
        self._speeds, self._assumed = speeds, assumed
        self._found: dict[tuple[str, float | None], Taken | None] = {}
        self._has_sizes = any(split_model(name)[1] is not None for name in speeds.models)

    def of(self, model: str, batch_size: float | None) -> Taken | None:
        """Return the name and batch size to look up; None: the job's own times apply on every GPU type.

        Args:
            model: the name in the trace; empty: the job has none.
            batch_size: the job's global batch size; None: the one in the name.

        Raises:
            InputError: the performance model lacks the name at that batch size, and no substitute is assumed.
        """
        key = (model, batch_size)
        if key not in self._found:
            self._found[key] = self._of(model, batch_size)
        return self._found[key]

    def lacked(self, model: str, batch_size: float | None) -> str | None:
        """Return the missing name, for messages; None: the performance model has the model at that batch size."""
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
    """Return the name and batch size to look up for a substitute: the size in its own name, otherwise the job's.

    Args:
        speeds: the performance model.
        name: the substitute, with or without a batch size.
        model: the name that the performance model lacks.
        batch_size: the job's global batch size; None: the one in its model's name.

    Raises:
        InputError: the performance model does not know the substitute, or not at the job's batch size.
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
    """Return as text the known names most similar to a name, up to case, punctuation and batch sizes; empty: none.

    A model at several batch sizes is listed once with all of them: ``"ResNet-50" (batch size 16, 32, 64)``.
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
    """Return the only known name that equals a name up to case and punctuation; None: there is none, or several."""
    found = [each for each in known if plain(each) == plain(name)]
    return found[0] if len(found) == 1 else None
