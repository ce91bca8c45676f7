"""Writes manifests as YAML in block style; strings are in JSON quotes, unless every reader takes them as strings.

A string of several lines becomes a literal block.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

_BARE: Final = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*\Z")
_BLOCK: Final = re.compile(r"[!-~][ -~]*(?:\n[ -~]*)*\n[ -~]*[!-~]\Z")
"""Pattern of several lines of ASCII, the first one not indented and the last one not empty."""
_TAKEN: Final = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
"""Words in lower case that YAML 1.1 or 1.2 does not read as strings."""


def yaml_text(documents: Sequence[Mapping[str, Any]]) -> str:
    """Return documents as YAML, each after a line ``---``.

    Args:
        documents: nested mappings with string keys, lists, strings, whole numbers and booleans.

    Raises:
        TypeError: a value of another type.
    """
    return "".join(f"{line}\n" for document in documents for line in ("---", *_lines(document)))


def _lines(node: Any) -> Iterator[str]:
    """Yield the lines of a mapping or list that is not empty."""
    if isinstance(node, Mapping):
        for key, below in node.items():
            yield from _entry(f"{_scalar(key)}:", below, indent="  ")
    else:
        for below in node:
            yield from _item(below)


def _entry(head: str, below: Any, *, indent: str) -> Iterator[str]:
    if isinstance(below, (Mapping, list, tuple)) and below:
        yield head
        yield from (f"{indent}{line}" for line in _lines(below))
    elif isinstance(below, str) and _BLOCK.match(below):
        yield f"{head} |-"
        yield from (f"{indent}{line}" if line else "" for line in below.split("\n"))
    else:
        yield f"{head} {_scalar(below)}"


def _item(below: Any) -> Iterator[str]:
    if isinstance(below, (Mapping, list, tuple)) and below:
        first, *rest = _lines(below)
        yield f"- {first}"
        yield from (f"  {line}" for line in rest)
    else:
        yield f"- {_scalar(below)}"


def _scalar(one: Any) -> str:
    if isinstance(one, str):
        return one if _BARE.match(one) and one.lower() not in _TAKEN else json.dumps(one)
    if isinstance(one, (bool, int)):
        return json.dumps(one)
    if isinstance(one, (Mapping, list, tuple)):
        return "{}" if isinstance(one, Mapping) else "[]"
    raise TypeError(f"a manifest must hold strings, whole numbers and booleans, but got {one!r}")
