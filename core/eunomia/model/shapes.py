"""Decorators for the value classes of core and plugins, which type checkers treat like ``dataclass``."""

import dataclasses
import functools
import inspect
import operator
import reprlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar, dataclass_transform

import numpy as np

T = TypeVar("T")


class LazyFields:
    """Base class of classes with lazy fields: the slot of such a field is empty until the field is first read."""

    __slots__ = ("_later", "listed")
    __listed__: ClassVar[dict[str, str]] = {}
    """Columns that may be given as lists of plain numbers, with the dtype of the array that is built on demand."""
    _later: "dict[str, Any]"
    """Functions that compute the fields not read yet, and the columns given as lists."""
    listed: dict[str, list[int]]
    """The columns of ``__listed__`` as lists, however they were given; read only. A column that is None stays None."""
    if not TYPE_CHECKING:  # type checkers would take any name for a field

        def __getattr__(self, name: str) -> Any:
            """Compute a lazy field; called only while its slot is empty."""
            if name == "listed":
                columns = [(one, getattr(self, one)) for one in self.__listed__]
                item = {one: None if column is None else column.tolist() for one, column in columns}
            elif name == "_later" or name not in self._later:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
            else:
                later = self._later[name]
                item = np.array(later, self.__listed__[name]) if type(later) is list else later()
                del self._later[name]
            object.__setattr__(self, name, item)
            return item


@dataclass_transform(kw_only_default=True, frozen_default=True, eq_default=False)
def builds(cls: type[T]) -> type[T]:
    """Make a message class, whose instances plugins create: frozen, slotted, keyword-only, compared by identity."""
    return _frozen(cls, equal=False)


@dataclass_transform(kw_only_default=True, eq_default=False)
def reads(cls: type[T]) -> type[T]:
    """Make a view class, whose instances the core creates and plugins read: slotted, keyword-only."""
    make: Callable[[type[T]], type[T]] = dataclasses.dataclass(slots=True, kw_only=True, eq=False)
    return make(cls)


@dataclass_transform(kw_only_default=True, frozen_default=True)
def value(cls: type[T]) -> type[T]:
    """Make a class of small values with plain fields: frozen, slotted, keyword-only, compared by content."""
    return _frozen(cls, equal=True)


def _frozen(cls: type[T], *, equal: bool) -> type[T]:
    """Make a frozen class.

    ``dataclass`` generates and compiles the source of every method, which takes most of a command's import time. A
    plain class gets shared methods instead, and an ``__init__`` that is compiled for its first instance. Classes with
    a parent other than ``LazyFields``, or with anything but plain fields and defaults, use ``dataclass``.
    """
    made_by_field = any(isinstance(item, dataclasses.Field) for item in vars(cls).values())
    if (
        cls.__bases__ not in ((object,), (LazyFields,))
        or made_by_field
        or hasattr(cls, "__post_init__")
        or not vars(cls).get("__doc__")
    ):
        whole: Callable[[type[T]], type[T]] = dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=equal)
        return whole(cls)
    made: type[T] = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True, kw_only=True)(cls)
    names = [field.name for field in dataclasses.fields(made)]  # type: ignore[arg-type]
    params: Any = made.__dataclass_params__  # type: ignore[attr-defined]
    params.init, params.repr, params.eq, params.frozen = True, True, equal, True
    methods: dict[str, Any] = {"__init__": _late_init(made), "__repr__": _repr}
    methods |= {"__signature__": _Signature(), "__getstate__": _state, "__setstate__": _restore}
    if equal:
        methods |= _compared(names)
    for name, method in (methods | _shut(made, frozenset(names))).items():
        if name not in vars(cls):
            setattr(made, name, method)
    return made


def _late_init(cls: type[Any]) -> Callable[..., None]:
    """Return an ``__init__`` that compiles the real constructor on its first call."""
    puts: dict[str, Any] = {f"_set_{name}": vars(cls)[name].__set__ for name in cls.__slots__}

    def __init__(self: Any, **given: Any) -> None:  # noqa: N807 - set as a method of cls
        cls.__init__ = _init(cls, puts)
        cls.__init__(self, **given)

    return __init__


class _Signature:
    """Provides ``inspect.signature`` with the signature of a class that has no instance yet."""

    def __get__(self, _: object, cls: type[Any]) -> inspect.Signature:
        made = _init(cls, {})
        made.__annotations__ = {field.name: field.type for field in dataclasses.fields(cls)} | {"return": None}
        return inspect.signature(made.__get__(cls))


def maker(cls: type[T]) -> type[T]:
    """Return a function that creates instances as ``cls(...)`` does, in less than half the time.

    ``cls(...)`` collects its arguments in a dictionary and sets each field of the frozen instance by a call. The
    function fills an instance of an unfrozen class with the same slots, and then changes its class to ``cls``.
    """
    opened = type(cls.__name__, cls.__bases__, {"__slots__": vars(cls)["__slots__"]})
    return _init(cls, {"_made": cls, "_open": opened}, opens=True)  # type: ignore[return-value]


def _init(cls: type[Any], names: dict[str, Any], *, opens: bool = False) -> Callable[..., None]:
    """Compile a keyword-only constructor; it stores a ``Deferred`` for a lazy field in ``_later``.

    The constructor sets each field ``x`` by the function ``_set_x`` in ``names``. With ``opens``, the constructor is a
    function that makes an instance of ``_open`` and changes the instance's class to ``_made``; see ``maker``.
    """
    lazy, listed = getattr(cls, "__lazy__", ()), getattr(cls, "__listed__", {})
    put = "self.{0} = {1}" if opens else "_set_{0}(self, {1})"
    asked, body = list[str](), ["self = _open()" if opens else "pass", *["later = {}"] * bool(lazy)]
    for field in [cls.__dataclass_fields__[name] for name in cls.__slots__]:
        name = item = field.name
        if not field.init:
            continue
        if field.default is not dataclasses.MISSING:
            names[f"_default_{name}"] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            names[f"_default_{name}"], names[f"_make_{name}"] = dataclasses.MISSING, field.default_factory
            item = f"_make_{name}() if {name} is _default_{name} else {name}"
        asked.append(f"{name}=_default_{name}" if f"_default_{name}" in names else name)
        if name in lazy:
            kinds = "_listed" if name in listed else "_deferred"
            body += [f"if type({name}) in {kinds}: later[{name!r}] = {name}", f"else: {put.format(name, item)}"]
        else:
            body.append(put.format(name, item))
    if lazy:
        body.append(put.format("_later", "later"))
    if listed:
        given = " and ".join([f"(type({name}) is list or {name} is None)" for name in listed])
        columns = ", ".join([f"{name!r}: {name}" for name in listed])
        body.append(f"if {given}: {put.format('listed', f'{{{columns}}}')}")
    if opens:
        body += ["self.__class__ = _made", "return self"]
    arguments = [*["self"] * (not opens), *["*"] * bool(asked), *asked]
    names |= _LATE
    exec("\n    ".join([f"def __init__({', '.join(arguments)}):", *body]), names)
    made: Callable[..., None] = names["__init__"]
    made.__qualname__, made.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    return made


@reprlib.recursive_repr()
def _repr(self: Any) -> str:
    shown = ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self))
    return f"{type(self).__qualname__}({shown})"


def _state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _restore(self: Any, state: list[Any]) -> None:
    for field, item in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, item)


def _compared(names: list[str]) -> dict[str, Any]:
    """Return methods for equality and hash by content; all instances of a class without fields are equal."""
    content: Callable[[Any], Any] = lambda self: tuple([getattr(self, name) for name in names])  # noqa: E731
    if len(names) > 1:
        content = operator.attrgetter(*names)

    def __eq__(self: Any, other: object) -> Any:  # noqa: N807 - set as a method of the class
        return content(self) == content(other) if type(other) is type(self) else NotImplemented

    def __hash__(self: Any) -> int:  # noqa: N807 - set as a method of the class
        return hash(content(self))

    return {"__eq__": __eq__, "__hash__": __hash__}


def _shut(cls: type[Any], names: frozenset[str]) -> dict[str, Any]:
    """Return methods that raise when a field is changed or deleted."""

    def guard(what: str, act: Callable[..., None]) -> Callable[..., None]:
        def method(self: Any, name: str, *item: Any) -> None:
            if type(self) is cls or name in names:
                raise dataclasses.FrozenInstanceError(f"cannot {what} field {name!r}")
            act(self, name, *item)

        return method

    return {"__setattr__": guard("assign to", object.__setattr__), "__delattr__": guard("delete", object.__delattr__)}


class Deferred(functools.partial[Any]):
    """The function that computes the value of a lazy field when it is first read."""

    __slots__ = ()


_LATE: Final[dict[str, Any]] = {f"_set_{name}": vars(LazyFields)[name].__set__ for name in LazyFields.__slots__}
_LATE.update(_deferred=(Deferred,), _listed=(Deferred, list))


def replaced(item: T, **changes: Any) -> T:
    """Return a copy with some fields replaced; lazy fields stay lazy in the copy."""
    later = {name: Deferred(getattr, item, name) for name in type(item).__lazy__}  # type: ignore[attr-defined]
    return dataclasses.replace(item, **later | changes)  # type: ignore[type-var]


def lazy(cls: type[Any], *names: str, **listed: str) -> None:
    """Make fields of a class lazy: a ``Deferred`` given for a field is called once, when the field is first read.

    Args:
        cls: a subclass of ``LazyFields`` made by ``builds`` or ``reads``; its fields read like plain values.
        names: names of the lazy fields.
        listed: names of columns that may also be given as lists of plain numbers, with their dtypes.
    """
    cls.__lazy__, cls.__listed__ = frozenset((*names, *listed)), listed
    if not cls.__dataclass_params__.frozen:
        cls.__init__ = _late_init(cls)
