"""Parses values of flags: ``KEY=VALUE`` for an option class, lists of seeds and of loads."""

import dataclasses
import re
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

from eunomia.errors import InputError, InputErrors
from eunomia.units import parse_duration
from eunomia.words import did_you_mean, shown

T = TypeVar("T")

MOST_SEEDS: Final = 10_000
LARGEST_SEED: Final = 2**63 - 1
"""Largest seed, since tables store seeds as 64-bit integers."""
LOADS: Final = (1e-6, 1e6)
_SECONDS: Final = "_seconds"
_NUMBER: Final = re.compile(r"[-+]?\d+(\.\d+)?([eE][-+]?\d+)?")


def filled(kind: type[T], texts: Sequence[str], flag: str, *, durations: bool = False, base: T | None = None) -> T:
    """Return an object of an option class from ``KEY=VALUE`` texts.

    A key is a field's name, with or without ``_seconds``. Depending on the field's type, a value is a number, a
    duration with a unit, true, false or a word.

    Args:
        kind: a dataclass whose fields have defaults.
        texts: the texts in any order, each key once.
        flag: the flag with the texts, for errors.
        durations: whether all numbers are durations; otherwise only fields named ``*_seconds`` are.
        base: object with the values of keys that are not given; None: the defaults apply.

    Raises:
        InputErrors: all unknown keys and invalid values together.
    """
    hints, names = typing.get_type_hints(kind), keys_of(kind)
    given: dict[str, Any] = {}
    errors: list[InputError] = []
    for text in texts:
        key, equals, word = text.partition("=")
        key = key.strip().replace("-", "_").removesuffix(_SECONDS)
        if not equals or key not in names:
            rule = f"{flag} must be KEY=VALUE with one of {', '.join(names)}"
            meant = did_you_mean(key, names) if equals else ""
            errors.append(InputError(rule, value=f"{shown(text)}{meant}", place=flag))
            continue
        if names[key] in given:
            errors.append(InputError(f"{key} must be given once", value=shown(text), place=flag))
            continue
        try:
            lasts = durations or names[key].endswith(_SECONDS)
            given[names[key]] = _value(key, word.strip(), hints[names[key]], flag, lasts=lasts)
        except InputError as error:
            errors.append(error)
    if errors:
        raise InputErrors(errors)
    before = {} if base is None else {field.name: getattr(base, field.name) for field in _fields(kind)}
    return kind(**(before | given))


def keys_of(kind: type[Any]) -> dict[str, str]:
    """Return an option class's field names by key; a key is the field's name without ``_seconds``."""
    hints = typing.get_type_hints(kind)
    return {field.name.removesuffix(_SECONDS): field.name for field in _fields(kind) if _is_plain(hints[field.name])}


def _fields(kind: type[Any]) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(kind)


def _is_plain(hint: object) -> bool:
    if typing.get_origin(hint) is tuple:
        return False
    return hint in (float, int, bool, str) or bool(set(typing.get_args(hint)) & {float, int, bool, str})


def _value(key: str, word: str, hint: object, flag: str, *, lasts: bool) -> object:
    kinds = {hint, *typing.get_args(hint)}
    if bool in kinds:
        if word not in ("true", "false"):
            raise InputError(f"{key} must be true or false", value=shown(word), place=flag)
        return word == "true"
    if int in kinds and re.fullmatch(r"[-+]?\d+", word):
        return int(word)
    if float in kinds:
        return _number(key, word, flag, lasts=lasts)
    if int in kinds:
        raise InputError(f"{key} must be a whole number", value=shown(word), place=flag)
    return word


def _number(key: str, word: str, flag: str, *, lasts: bool) -> float:
    """Return a number, or a duration with a unit in seconds; both may be ``inf``."""
    if word == "inf":
        return float(word)
    if lasts:
        return parse_duration(word, name=key, place=flag, zero=True)
    if not _NUMBER.fullmatch(word):
        raise InputError(f"{key} must be a number", value=shown(word), place=flag)
    return float(word)


def factors(texts: Sequence[str], flag: str) -> Mapping[str, float]:
    """Return factors by app from ``APP=FACTOR`` texts.

    Raises:
        InputError: a text has another form, or a factor is not positive.
    """
    found: dict[str, float] = {}
    for text in texts:
        name, _, word = text.rpartition("=")
        if not name or not _NUMBER.fullmatch(word) or float(word) <= 0.0:
            raise InputError(f"{flag} must be APP=FACTOR with a positive factor", value=shown(text), place=flag)
        found[name] = float(word)
    return found


def seed_list(text: str) -> tuple[int, ...]:
    """Return the distinct seeds of a text such as ``0-4`` or ``0,3,5-7``.

    Raises:
        InputError: the text has another form, a descending range, more than ten thousand seeds, or a seed above
            ``LARGEST_SEED``.
    """
    rule = "seeds must be numbers and ranges such as 0-4 or 0,3,5-7"
    found: dict[int, None] = {}
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        low, high = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if high < low or high - low >= MOST_SEEDS:
            raise InputError(rule, value=shown(text), place="--seeds")
        if high > LARGEST_SEED:
            raise InputError(f"a seed must be at most {LARGEST_SEED}", value=str(high), place="--seeds")
        found |= dict.fromkeys(range(low, high + 1))
        if len(found) > MOST_SEEDS:
            raise InputError(f"seeds must be at most {MOST_SEEDS}", value=shown(text), place="--seeds")
    return tuple(found)


def load_list(text: str) -> tuple[float, ...]:
    """Return the distinct load factors of a text such as ``1,2``.

    Raises:
        InputError: a factor is not a positive number within ``LOADS``.
    """
    found: dict[float, None] = {}
    for part in text.split(","):
        word = part.strip().removesuffix("x")
        if not _NUMBER.fullmatch(word) or not 0.0 < float(word) < float("inf"):
            raise InputError("load must be positive factors such as 1,2", value=shown(text), place="--load")
        if not LOADS[0] <= float(word) <= LOADS[1]:
            raise InputError(f"load must be from {LOADS[0]:g} to {LOADS[1]:g}", value=shown(text), place="--load")
        found[float(word)] = None
    return tuple(found)
