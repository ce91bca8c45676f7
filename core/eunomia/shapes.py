"""The two kinds of value that pass between the core and its plugins, as decorators that type checkers understand."""

import dataclasses
from collections.abc import Callable
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(kw_only_default=True, frozen_default=True, eq_default=False)
def builds(cls: type[T]) -> type[T]:
    """Make a value that plugins fill: frozen, slotted, keywords only, compared by identity (arrays have no ``==``)."""
    make: Callable[[type[T]], type[T]] = dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
    return make(cls)


@dataclass_transform(kw_only_default=True, eq_default=False)
def reads(cls: type[T]) -> type[T]:
    """Make a view that the core fills and plugins read: slotted, keywords only."""
    make: Callable[[type[T]], type[T]] = dataclasses.dataclass(slots=True, kw_only=True, eq=False)
    return make(cls)


@dataclass_transform(kw_only_default=True, frozen_default=True)
def value(cls: type[T]) -> type[T]:
    """Make a small value of plain fields: frozen, slotted, keywords only, equal by content."""
    make: Callable[[type[T]], type[T]] = dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
    return make(cls)
