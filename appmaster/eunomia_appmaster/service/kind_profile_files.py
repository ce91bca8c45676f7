"""Reads and writes rates by kind of job: TOML files, one per kind."""

import math
from collections.abc import Iterable, Mapping
from datetime import date
from pathlib import Path
from typing import Any, Final

from eunomia.errors import InputError, InputErrors
from eunomia.model.kind_profiles import MOST_POINTS, KnownRate
from eunomia.platform.layers import is_file, read_text
from eunomia.platform.toml_bounds import LARGE, parse_toml
from eunomia.platform.toml_text import toml_value
from eunomia.units import Basis, Locality
from eunomia.words import did_you_mean, shown

KNOWN: Final[Mapping[str, Basis]] = {
    "measured": Basis.MEASURED,
    "declared": Basis.DECLARED,
    "estimated": Basis.ASSUMED,
}
WORDS: Final = {basis: word for word, basis in KNOWN.items()}
LEVELS: Final = {level.name.lower(): level for level in Locality}
AMOUNTS: Final = ("batch_size", "cpus", "memory_gib")
NEEDED: Final = ("gpus", "gpu_type", "locality", "rate")
KEYS: Final = (*NEEDED, "known", *AMOUNTS, "machine", "date")
MOST_RATE: Final = 1e9
"""Maximum rate in iterations per second: one iteration per nanosecond."""
MOST_AMOUNT: Final = 1e15
"""Maximum batch size, number of CPUs and memory (GiB), the same as for a training script's batch sizes."""
MOST_GPUS: Final = 1_000_000


def facts_of(rate: KnownRate) -> dict[str, Any]:
    """Return a rate as plain values by key of the file, without fields whose values are unknown."""
    made: dict[str, Any] = {
        "gpus": rate.gpus,
        "gpu_type": rate.gpu_type,
        "locality": rate.locality.name.lower(),
        "rate": rate.rate,
        "known": WORDS[rate.known],
    }
    made |= {name: getattr(rate, name) for name in AMOUNTS if not math.isnan(getattr(rate, name))}
    return made | {name: getattr(rate, name) for name in ("machine", "date") if getattr(rate, name)}


def profile_text(kind: str, rates: Iterable[KnownRate]) -> str:
    """Return the TOML text of a kind's file."""
    lines = [f"kind = {toml_value(kind)}"]
    for rate in rates:
        lines += ["", "[[point]]", *(f"{name} = {toml_value(given)}" for name, given in facts_of(rate).items())]
    return "\n".join(lines) + "\n"


def load_profile(path: Path) -> tuple[str, tuple[KnownRate, ...]]:
    """Read a kind's file: the kind, and its rates in the order of the file.

    Raises:
        InputErrors: all errors of the file; InputError: the file does not exist, or cannot be read.
    """
    if not is_file(path):
        raise InputError("a profile of a kind must exist", value="no such file", place=str(path))
    return parse_profile(read_text(path, "a profile of a kind", LARGE), place=path.name)


def parse_profile(text: str, *, place: str) -> tuple[str, tuple[KnownRate, ...]]:
    """Read the text of a kind's file: the kind, and its rates in the order of the file.

    Raises:
        InputErrors: all errors of the text.
    """
    tree = parse_toml(text, "a profile of a kind", place=place, bounds=LARGE)
    errors = [_unknown(key, ("kind", "point"), place) for key in tree if key not in ("kind", "point")]
    kind, points = tree.get("kind"), tree.get("point")
    if not isinstance(kind, str) or not kind.strip():
        errors.append(InputError("kind must be text that is not empty", value=_given(kind), place=place))
    if not isinstance(points, list) or not 1 <= len(points) <= MOST_POINTS:
        rule = f"[[point]] must be given 1 to {MOST_POINTS} times"
        errors.append(InputError(rule, value=str(len(points)) if isinstance(points, list) else "none", place=place))
        points = []
    rates: dict[tuple[object, ...], KnownRate] = {}
    for number, point in enumerate(points, start=1):
        where = f"{place}, point {number}"
        wrong = _wrong(point, where)
        errors += wrong
        if not wrong:
            rate = _rate(point)
            if rate.where() in rates:
                errors.append(InputError("a setting must be given once", value=f"{rate.gpus} GPUs again", place=where))
            rates[rate.where()] = rate
    if errors:
        raise InputErrors(errors)
    return str(kind), tuple(rates.values())


def _wrong(point: object, place: str) -> list[InputError]:
    if not isinstance(point, dict):
        return [InputError("a point must be a table", value=_given(point), place=place)]
    errors = [_unknown(key, KEYS, place) for key in point if key not in KEYS]
    errors += [InputError(f"{key} must be given", value="none", place=place) for key in NEEDED if key not in point]
    for key, given in point.items():
        rule = _rule(key, given)
        if rule:
            errors.append(InputError(f"{key} must be {rule}", value=_given(given), place=place))
    return errors


def _rule(key: str, given: object) -> str:
    """Return the rule that a key's value breaks; empty if the value is valid."""
    if key == "gpus":
        return "" if type(given) is int and 1 <= given <= MOST_GPUS else f"a whole number from 1 to {MOST_GPUS}"
    if key == "rate" or key in AMOUNTS:
        least, most = ("of 0 or more", MOST_RATE) if key == "rate" else ("above 0", MOST_AMOUNT)
        number = isinstance(given, int | float) and not isinstance(given, bool) and 0 <= given <= most
        return "" if number and (given or key == "rate") else f"a number {least}, at most {most:g}"
    if key in ("locality", "known"):
        words = LEVELS if key == "locality" else KNOWN
        return "" if isinstance(given, str) and given in words else f"one of {', '.join(words)}"
    if key == "date":
        return "" if isinstance(given, str) and _is_day(given) else 'a day in quotes, such as "2026-11-23"'
    if key == "gpu_type":
        return "" if isinstance(given, str) and given.strip() else "text that is not empty"
    return "" if isinstance(given, str) or key not in KEYS else "text"


def _is_day(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _rate(point: dict[str, Any]) -> KnownRate:
    return KnownRate(
        gpus=point["gpus"],
        gpu_type=point["gpu_type"],
        locality=LEVELS[point["locality"]],
        rate=float(point["rate"]),
        known=KNOWN[point.get("known", "declared")],
        machine=point.get("machine", ""),
        date=point.get("date", ""),
        **{name: float(point[name]) for name in AMOUNTS if name in point},
    )


def _unknown(key: str, known: Iterable[str], place: str) -> InputError:
    rule = f"a key must be one of {', '.join(known)}"
    return InputError(rule, value=f'"{key}"{did_you_mean(key, known)}', place=place)


def _given(given: object) -> str:
    return "none" if given is None else shown(given)[:80]
