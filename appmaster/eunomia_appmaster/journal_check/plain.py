"""Reads the journal's JSON as plain values, without the arbiter's codec."""

import math
from typing import Any


def plain(made: Any) -> Any:
    """Convert decoded JSON to plain values: lists, dicts of fields, and member names in place of the typed objects.

    Raises:
        ValueError: an object without a known type.
    """
    if isinstance(made, list):
        return [plain(item) for item in made]
    if not isinstance(made, dict):
        return made
    if "is" in made:
        return {key: item if key == "is" else plain(item) for key, item in made.items()}
    if len(made) == 1:
        ((tag, content),) = made.items()
        if tag in ("tuple", "frozenset"):
            return [plain(item) for item in content]
        if tag == "enum":
            return str(content).partition(".")[2]
        if tag == "float":
            return float(content)
        if tag == "dict":
            return [[plain(key), plain(item)] for key, item in content]
        if tag == "bytes":
            return content
    if "array" in made:
        return [number(item) if isinstance(item, str) and made["array"] != "|O" else plain(item) for item in made["of"]]
    raise ValueError(f"an object must say what it is, but got {str(made)[:60]}")


def number(value: Any) -> float:
    """Return a value as a number; numbers that JSON cannot represent, such as infinity, are stored as text."""
    return math.nan if value is None else float(value)
