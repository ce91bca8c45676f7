"""Write plain values as TOML, which the standard library can only read."""

import json
import math
import re
from collections.abc import Mapping

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def toml_key(name: str) -> str:
    """Return a key as TOML text, quoted if necessary."""
    return name if _BARE.fullmatch(name) else toml_value(name)


def toml_value(given: object) -> str:
    """Return a string, number, boolean, list or table as TOML text on one line."""
    if isinstance(given, bool):
        return "true" if given else "false"
    if isinstance(given, float):
        if math.isnan(given):
            return "nan"
        return repr(given) if math.isfinite(given) else ("inf" if given > 0 else "-inf")
    if isinstance(given, int):
        return str(given)
    if isinstance(given, str):
        # A JSON string is also a TOML string, except for DEL, which TOML requires to be escaped.
        return json.dumps(given, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(given, Mapping):
        inside = ", ".join(f"{toml_key(str(key))} = {toml_value(item)}" for key, item in given.items())
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(given, list | tuple | set | frozenset):
        return f"[{', '.join(toml_value(item) for item in given)}]"
    return toml_value(str(given))
