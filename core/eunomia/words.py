"""Helpers for messages: values as in a profile, lists of names, suggestions for misspelt names."""

import difflib
from collections.abc import Iterable

from eunomia.errors import InputError
from eunomia.units import format_duration, parse_duration


def shown(given: object) -> str:
    """Return a value as it would be written in a profile."""
    if isinstance(given, bool):
        return "true" if given else "false"
    return f'"{given}"' if isinstance(given, str) else str(given)


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """Return ``; did you mean "x"?`` if a known word is close to the given one, else an empty string."""
    close = closest(given, known)
    return f'; did you mean "{close}"?' if close is not None else ""


def closest(given: str, known: Iterable[str]) -> str | None:
    """Return the known word closest to the given one, ignoring case, or None if no word is close."""
    folded = {word.casefold(): word for word in known}
    close = difflib.get_close_matches(given.casefold(), folded, n=1)
    return folded[close[0]] if close else None


def list_of(names: Iterable[str]) -> str:
    """Join names for a sentence: ``"a", "b" or "c"``."""
    quoted = [f'"{name}"' for name in names]
    return " or ".join(filter(None, [", ".join(quoted[:-1]), quoted[-1]])) if quoted else "nothing"


def exact_duration(seconds: float) -> str:
    """Format a duration so that ``parse_duration`` returns exactly the same number of seconds."""
    if seconds == 0.0:
        return "0s"
    short = format_duration(seconds)
    try:
        if parse_duration(short, name="duration") == seconds:
            return short
    except InputError:
        pass
    return f"{seconds:.12f}".rstrip("0").rstrip(".") + "s"
