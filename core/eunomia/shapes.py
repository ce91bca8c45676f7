"""The two kinds of value that pass between the core and its plugins, as decorators that type checkers understand."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(kw_only_default=True, frozen_default=True, eq_default=False)
def builds(cls: type[T]) -> type[T]:
    """Make a value that plugins fill: frozen, slotted, keywords only, compared by identity (arrays have no ``==``)."""
    make: Callable[[type[T]], type[T]] = dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
    return _filled_at_once(make(cls))


@dataclass_transform(kw_only_default=True, eq_default=False)
def reads(cls: type[T]) -> type[T]:
    """Make a view that the core fills and plugins read: slotted, keywords only."""
    make: Callable[[type[T]], type[T]] = dataclasses.dataclass(slots=True, kw_only=True, eq=False)
    return make(cls)


@dataclass_transform(kw_only_default=True, frozen_default=True)
def value(cls: type[T]) -> type[T]:
    """Make a small value of plain fields: frozen, slotted, keywords only, equal by content."""
    make: Callable[[type[T]], type[T]] = dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
    return _filled_at_once(make(cls))


def _filled_at_once(cls: type[T]) -> type[T]:
    """Have a frozen class fill its slots straight: ``dataclass`` looks each field up by name, at twice the cost.

    A class with a parent, or with anything but plain fields and defaults, keeps the ``__init__`` that it has.
    """
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    plain = all(field.init and field.default_factory is dataclasses.MISSING for field in fields)
    if cls.__bases__ != (object,) or not plain or hasattr(cls, "__post_init__"):
        return cls
    names: dict[str, Any] = {f"_set_{field.name}": cls.__dict__[field.name].__set__ for field in fields}
    asked = []
    for field in fields:
        if field.default is not dataclasses.MISSING:
            names[f"_default_{field.name}"] = field.default
        asked.append(field.name if field.default is dataclasses.MISSING else f"{field.name}=_default_{field.name}")
    body = [f"    _set_{field.name}(self, {field.name})" for field in fields] or ["    pass"]
    exec("\n".join([f"def __init__(self{', *, ' if asked else ''}{', '.join(asked)}):", *body]), names)
    made = names["__init__"]
    made.__qualname__, made.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    made.__annotations__ = dict(cls.__init__.__annotations__)
    made.__doc__ = cls.__init__.__doc__
    cls.__init__ = made  # type: ignore[method-assign]
    return cls


class Later(functools.partial[Any]):
    """What a lazy field holds until it is first asked for: the function that makes it."""

    __slots__ = ()


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
            item = item()
            put(owner, item)
        return item

    return read
