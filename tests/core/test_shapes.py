"""Values are what ``dataclass`` would have made of them, method by method."""

import copy
import dataclasses
import inspect
import math
import pickle
from typing import Any

import numpy as np
import pytest

from eunomia.model.shapes import Deferred, LazyFields, builds, lazy, maker, replaced, value


@value
class Point:
    """A value of two fields."""

    x: float
    y: tuple[int, ...] = (1, 2)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plain:
    """The same by ``dataclass``."""

    x: float
    y: tuple[int, ...] = (1, 2)


@value
class One:
    """A value of one field."""

    only: float


@value
class Nothing:
    """A value of no field."""


@builds
class Built:
    """A value that is compared by identity."""

    x: float = 0.0


def test_a_value_prints_compares_and_hashes_as_a_dataclass() -> None:
    one, same, other = Point(x=1.0), Point(x=1.0, y=(1, 2)), Point(x=2.0)
    plain = Plain(x=1.0)
    assert repr(one) == repr(plain).replace("Plain", "Point")
    assert one == same
    assert hash(one) == hash(same) == hash(plain)
    assert one != other
    assert one.__eq__(plain) is NotImplemented
    assert Nothing() == Nothing()
    assert One(only=math.nan) != One(only=float("nan"))
    assert One(only=math.nan) == One(only=math.nan)  # as in a tuple, the very same object is equal to itself


def test_a_built_object_equals_only_itself() -> None:
    one = Built(x=1.0)
    assert one != Built(x=1.0)
    assert one == one


@builds
class Message(LazyFields):
    """A value with a field that may be computed when it is first read."""

    x: Any
    y: int = 0


lazy(Message, "x")


def test_a_lazy_field_is_computed_once_for_a_message_and_its_copies() -> None:
    asked: list[str] = []
    later: Any = Deferred(lambda: asked.append("x") or [1])
    one = Message(x=later)
    copy, other = replaced(one, y=2), replaced(one, x=[3])
    assert asked == []
    assert (copy.x, copy.y, other.x, other.y) == ([1], 2, [3], 0)
    assert asked == ["x"]
    assert copy.x is one.x
    assert asked == ["x"]


@builds
class Columns(LazyFields):
    """A message whose columns may be given as lists."""

    rows: Any
    kinds: Any = None


lazy(Columns, rows="int32", kinds="int64")


def test_a_column_given_as_a_list_is_an_array_when_it_is_read() -> None:
    one, other = Columns(rows=[3, 1]), Columns(rows=np.array([3, 1], np.int32), kinds=[5, 6])
    assert one.listed == {"rows": [3, 1], "kinds": None}
    assert one.rows.dtype == np.int32
    assert one.rows.tolist() == other.rows.tolist() == [3, 1]
    assert other.listed == {"rows": [3, 1], "kinds": [5, 6]}
    assert (other.kinds.dtype, one.kinds) == (np.int64, None)
    assert replaced(one, kinds=[7, 8]).listed == {"rows": [3, 1], "kinds": [7, 8]}
    assert pickle.loads(pickle.dumps(one)).listed == one.listed


def test_a_maker_creates_what_the_class_creates() -> None:
    new_point, new_columns = maker(Point), maker(Columns)
    point, one = new_point(x=1.0), new_columns(rows=[3, 1])
    assert type(point) is Point
    assert point == Point(x=1.0)
    assert pickle.loads(pickle.dumps(point)) == point
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'x'"):
        point.x = 2.0  # type: ignore[misc]
    with pytest.raises(TypeError, match="missing 1 required keyword-only argument: 'x'"):
        new_point()  # type: ignore[call-arg]
    assert type(one) is Columns
    assert (one.listed, one.rows.tolist(), one.kinds) == ({"rows": [3, 1], "kinds": None}, [3, 1], None)
    later: Any = Deferred(lambda: np.array([5], np.int32))
    assert new_columns(rows=later).listed == {"rows": [5], "kinds": None}


@pytest.mark.parametrize("kind", [Point, Plain])
def test_fields_can_be_neither_set_nor_deleted(kind: Any) -> None:
    point = kind(x=1.0)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'x'"):
        point.x = 2.0
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'y'"):
        del point.y
    with pytest.raises((AttributeError, TypeError)):
        point.z = 2.0


@pytest.mark.parametrize("given", [{}, {"x": 1.0, "z": 2.0}])
def test_missing_and_unknown_fields_are_refused_by_name(given: dict[str, Any]) -> None:
    with pytest.raises(TypeError) as expected:
        Plain(**given)
    with pytest.raises(TypeError) as found:
        Point(**given)
    assert str(found.value) == str(expected.value).replace("Plain", "Point")
    with pytest.raises(TypeError):
        Point(1.0)  # type: ignore[call-arg]


def test_a_class_has_its_signature_before_its_first_instance() -> None:
    @value
    class Fresh:
        """None of these is ever made."""

        x: float
        y: tuple[int, ...] = (1, 2)

    told = "(*, x: float, y: tuple[int, ...] = (1, 2)) -> None"
    assert str(inspect.signature(Fresh)) == str(inspect.signature(Plain)) == told


def test_a_value_can_be_copied_replaced_and_pickled() -> None:
    point = Point(x=1.0, y=(3,))
    assert copy.deepcopy(point) == point
    assert pickle.loads(pickle.dumps(point)) == point
    assert dataclasses.replace(point, x=2.0) == Point(x=2.0, y=(3,))
    assert dataclasses.asdict(point) == {"x": 1.0, "y": (3,)}
