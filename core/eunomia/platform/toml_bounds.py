"""Limits the size and depth of TOML from users before it is parsed.

The parser's time grows with the square of a key's length, and what reads the values calls itself once a level. The
text is looked through once, in time that grows with its length. Where it is no TOML, the look ends, and the parser
says what is wrong.
"""

import re
import tomllib
from typing import Any, Final

from eunomia.errors import InputError
from eunomia.model.shapes import value

DEEPEST: Final = 32
"""Most parts of a key, and most levels of nested lists and tables."""
LONGEST: Final = 1000
"""Most characters of a bare key or a number."""


@value
class Bounds:
    """Limits on the size of a file."""

    kibibytes: int
    keys: int
    """Keys and headers of tables together."""


SMALL: Final = Bounds(kibibytes=256, keys=2000)
"""Bounds of an app file and of a profile."""
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
    """Read TOML that is neither too large nor too deep.

    Args:
        text: of the file.
        what: what it is, as in "an app file"; errors begin with it.
        place: the file's name.
        bounds: how large it may be.

    Raises:
        InputError: it is no TOML, or beyond a bound.
    """
    check_size(len(text.encode("utf-8", "surrogatepass")), what, place=place, bounds=bounds)
    _Look(text, what, place, bounds).check()
    try:
        tree = tomllib.loads(text)
    except ValueError as error:  # some numbers and dates are refused by Python rather than by TOML
        raise InputError(f"{what} must be TOML", value=str(error), place=place) from error
    _check_tree(tree, what, place)
    return tree


def check_size(size: int, what: str, *, place: str | None, bounds: Bounds = SMALL) -> None:
    """Refuse a file that is too large, given its size in bytes.

    Raises:
        InputError: it is too large.
    """
    if size > bounds.kibibytes * 1024:
        rule = f"{what} must have at most {bounds.kibibytes} KiB"
        raise InputError(rule, value=f"{size / 1024:.0f} KiB", place=place)


def _check_tree(tree: dict[str, Any], what: str, place: str | None) -> None:
    """Refuse a tree that nests headers, keys and values too deeply, or whose quoted keys are too long."""
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


class _Look:
    """Scans a text once and counts its keys and nesting."""

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
