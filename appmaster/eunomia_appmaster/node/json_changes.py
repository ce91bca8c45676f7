"""Differences between two plain JSON values, for logs that store only changes."""

from collections.abc import Mapping
from typing import Any

Json = Any
"""A JSON value: None, a boolean, a number, a text, or lists and objects of such values."""


def difference(old: Json, new: Json) -> Json | None:
    """Return the difference that ``changed`` applies to turn ``old`` into ``new``; None: they are equal.

    ``{"is": value}`` replaces the value. ``{"in": {key: difference}, "out": [keys]}`` changes an object. ``{"at":
    start, "drop": count, "put": items}`` replaces consecutive items of a list; ``{"items": {index: difference}}``
    changes single items of a list whose length stays the same.
    """
    if isinstance(old, dict) and isinstance(new, dict):
        return _of_objects(old, new)
    if isinstance(old, list) and isinstance(new, list):
        return _of_lists(old, new)
    return None if type(old) is type(new) and old == new else {"is": new}


def changed(old: Json, by: Json) -> Json:
    """Return the result of applying a difference to a value, which may be changed in place.

    Raises:
        ValueError: the difference does not fit the value.
    """
    try:
        return _changed(old, by)
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(f"a difference must be of the value before: {error!r}") from error


def _of_objects(old: Mapping[str, Json], new: Mapping[str, Json]) -> Json | None:
    put = {}
    for key, item in new.items():
        by = difference(old[key], item) if key in old else {"is": item}
        if by is not None:
            put[key] = by
    out = [key for key in old if key not in new]
    if not put and not out:
        return None
    return {"in": put} | ({"out": out} if out else {})


def _of_lists(old: list[Json], new: list[Json]) -> Json | None:
    shorter = min(len(old), len(new))
    start = _equal_items(old, new, shorter)
    if start == len(old) == len(new):
        return None
    if len(old) == len(new) and all(isinstance(item, dict | list) for item in (*old, *new)):
        pairs = enumerate(zip(old, new, strict=True))
        found = {str(index): difference(before, after) for index, (before, after) in pairs}
        return {"items": {index: by for index, by in found.items() if by is not None}}
    end = _equal_items(old[start:][::-1], new[start:][::-1], shorter - start)
    return {"at": start, "drop": len(old) - start - end, "put": new[start : len(new) - end]}


def _equal_items(one: list[Json], other: list[Json], most: int) -> int:
    """Return the length of two lists' common prefix, at most ``most``, by bisection."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if _same(one[low:middle], other[low:middle]):
            low = middle
        else:
            high = middle - 1
    return low


def _same(one: list[Json], other: list[Json]) -> bool:
    return one == other and repr(one) == repr(other)  # True is 1, and 1 is 1.0, but not in JSON


def _changed(old: Json, by: Json) -> Json:
    if "is" in by:
        return by["is"]
    if "in" in by:
        for key in by.get("out", ()):
            del old[key]
        for key, part in by["in"].items():
            old[key] = part["is"] if "is" in part else _changed(old[key], part)
        return old
    if "items" in by:
        for index, part in by["items"].items():
            old[int(index)] = _changed(old[int(index)], part)
        return old
    start, drop = by["at"], by["drop"]
    if not 0 <= start <= start + drop <= len(old):
        raise IndexError(start)
    old[start : start + drop] = by["put"]
    return old
