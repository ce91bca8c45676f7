"""Limit the size and depth of users' TOML before it is parsed.

The parser's time is quadratic in the length of a key, and code that reads the values recurses once per level. The
text is therefore scanned first, in linear time. Where it is not TOML, the scan stops, and the parser reports the
error.
"""

import re
import tomllib
from typing import Any, Final

from eunomia.errors import InputError
from eunomia.model.shapes import value

DEEPEST: Final = 32
"""Maximum number of parts of a key, and of levels of nested lists and tables."""
LONGEST: Final = 1000
"""Maximum number of characters of a bare key or a number."""


@value
class Bounds:
    """Limits on the size of a TOML file."""

    kibibytes: int
    keys: int
    """Maximum number of keys and table headers together."""


SMALL: Final = Bounds(kibibytes=256, keys=2000)
"""Limits for an app file or a profile."""
LARGE: Final = Bounds(kibibytes=16 * 1024, keys=1_000_000)
"""Limits for a cluster file, which may have a row for each machine."""

_TOKEN = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}'
    r"|'''.*?'{3,5}"
    r'|"(?!"")(?:[^"\\\n]|\\.)*"'
    r"|'(?!'')[^'\n]*'"
    r"|\#[^\n]*"
    r"|[A-Za-z0-9_+\-]+"
    r"|[\[\]{}.=,\n]"
    r"|[ \t\r:]+",
    re.DOTALL,
)


def parse_toml(text: str, what: str, *, place: str | None, bounds: Bounds = SMALL) -> dict[str, Any]:
    """Parse TOML text after checking its size and depth.

    Args:
        text: content of the file.
        what: kind of file, such as "an app file"; error messages begin with it.
        place: name of the file, for error messages.
        bounds: limits on its size.

    Raises:
        InputError: the text is not TOML, or exceeds a limit.
    """
    check_size(len(text.encode("utf-8", "surrogatepass")), what, place=place, bounds=bounds)
    _Scan(text, what, place, bounds).check()
    try:
        tree = tomllib.loads(text)
    except ValueError as error:  # some numbers and dates are refused by Python rather than by TOML
        raise InputError(f"{what} must be TOML", value=str(error), place=place) from error
    _check_tree(tree, what, place)
    return tree


def check_size(size: int, what: str, *, place: str | None, bounds: Bounds = SMALL) -> None:
    """Check a file's size in bytes against the limits.

    Raises:
        InputError: the file is too large.
    """
    if size > bounds.kibibytes * 1024:
        rule = f"{what} must have at most {bounds.kibibytes} KiB"
        raise InputError(rule, value=f"{size / 1024:.0f} KiB", place=place)


def _check_tree(tree: dict[str, Any], what: str, place: str | None) -> None:
    """Check that a parsed tree is not nested too deeply and has no quoted keys that are too long."""
    level: list[Any] = [tree]
    for _ in range(DEEPEST + 1):
        longest = max((len(key) for item in level if isinstance(item, dict) for key in item), default=0)
        if longest > LONGEST:
            rule = f"{what} must have names and numbers of at most {LONGEST} characters"
            raise InputError(rule, value=f"{longest} characters", place=place)
        insides = (item.values() if isinstance(item, dict) else item for item in level)
        level = [item for inside in insides for item in inside if isinstance(item, dict | list)]
        if not level:
            return
    rule = f"{what} must have at most {DEEPEST} lists and tables in each other"
    raise InputError(rule, value=f"{DEEPEST + 1} or more", place=place)


class _Scan:
    """A scan of TOML text that counts keys and nesting levels."""

    def __init__(self, text: str, what: str, place: str | None, bounds: Bounds) -> None:
        self._text = text
        self._what = what
        self._place = place
        self._bounds = bounds
        self._depth = 0
        self._parts = 1
        self._keys = 0
        self._at = 0
        self._line_begins = True

    def check(self) -> None:
        """Raise ``InputError`` if the text exceeds a limit."""
        while (found := _TOKEN.match(self._text, self._at)) is not None:
            token = found.group()
            self._take(token[0], len(token))
            self._line_begins = token == "\n" or (self._line_begins and token.isspace())
            self._at = found.end()

    def _take(self, first: str, length: int) -> None:
        if first == ".":
            self._parts += 1
            self._bound(self._parts, DEEPEST, "keys of at most {} parts", "parts")
        elif first in "[{":
            self._keys += self._line_begins and self._depth == 0  # the header of a table
            self._depth, self._parts = self._depth + 1, 1
            self._bound(self._depth, DEEPEST, "at most {} lists and tables in each other", "or more")
        elif first in "]}":
            self._depth, self._parts = max(0, self._depth - 1), 1
        elif first in "=,\n":
            self._parts = 1
            self._keys += first == "="
            self._bound(self._keys, self._bounds.keys, "at most {} keys", "or more")
        elif first not in "\"'# \t\r:":
            self._bound(length, LONGEST, "names and numbers of at most {} characters", "characters")

    def _bound(self, count: int, most: int, rule: str, unit: str) -> None:
        if count > most:
            line = self._text.count("\n", 0, self._at) + 1
            where = f"{self._place}, line {line}" if self._place else f"line {line}"
            raise InputError(f"{self._what} must have {rule.format(most)}", value=f"{count} {unit}", place=where)
