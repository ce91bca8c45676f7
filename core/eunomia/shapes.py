"""The two kinds of value that pass between the core and its plugins, as decorators that type checkers understand."""

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar, dataclass_transform

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


class Later:
    """What a lazy field holds until it is first asked for: the function that makes it."""

    __slots__ = ("make",)

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make


def lazy(cls: type[Any], *names: str) -> None:
    """Let fields of such a dataclass be given as ``Later``: they are made when they are first read, and once.

    Args:
        cls: a slotted dataclass; for whoever reads it nothing changes.
        names: of fields.
    """
    for name in names:
        slot = cls.__dict__[name]
        setattr(cls, name, property(_made_once(slot.__get__, slot.__set__), slot.__set__))


def _made_once(get: Callable[[Any], Any], put: Callable[[Any, Any], None]) -> Callable[[Any], Any]:
    """Read a slot, and turn ``Later`` in it into what it makes."""

    def read(owner: Any) -> Any:
        item = get(owner)
        if type(item) is Later:
            item = item.make()
            put(owner, item)
        return item

    return read
