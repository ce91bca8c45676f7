"""JSON files that carry a sum and leave an older copy, which is taken where the newer one is damaged."""

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eunomia.errors import InputError
from eunomia.model.shapes import value

SUM = "sum"
OLDER, DAMAGED = ".old", ".damaged"


@value
class KeptContent:
    """What a file holds, or its older copy.

    Attributes:
        content: without the sum; None: there is no file.
        damage: what is wrong with the newer file, whose older copy was taken; empty: nothing.
    """

    content: dict[str, Any] | None
    damage: str = ""


def sealed(content: Mapping[str, Any]) -> str:
    """Return an object as JSON with its sum.

    Raises:
        ValueError: a number that is not finite.
    """
    text = json.dumps(content, allow_nan=False)
    return f"{text[:-1]}{', ' if content else ''}{json.dumps(SUM)}: {json.dumps(_sum(text))}}}"


def keep_older(path: Path) -> None:
    """Make the present file the older copy; to be called before the file is replaced."""
    new = path.with_name(f"{path.name}{OLDER}.new")
    new.unlink(missing_ok=True)
    try:
        new.hardlink_to(path)
    except FileNotFoundError:  # the first one
        return
    new.replace(path.with_name(path.name + OLDER))


def read_kept(path: Path, *, cure: str) -> KeptContent:
    """Read a file, or its older copy where it is damaged or gone; files of earlier versions have no sum.

    Args:
        path: of the newer file.
        cure: what a user can do if both are damaged, as a sentence without a full stop.

    Raises:
        InputError: it is damaged, and there is no good older copy.
    """
    older = path.with_name(path.name + OLDER)
    try:
        content, summed = _opened(path)
        if summed or not _is_summed(older):
            return KeptContent(content=content)
        damage = f"{path.name} is damaged: its sum is gone"
    except FileNotFoundError:
        if not older.exists():
            return KeptContent(content=None)
        damage = f"{path.name} is gone"
    except ValueError as error:
        damage = f"{path.name} is damaged: {error}"
    try:
        return KeptContent(content=_opened(older)[0], damage=damage)
    except (FileNotFoundError, ValueError):
        rule = f"a file must be as it was written, or have a good older copy; {cure}"
        raise InputError(rule, value=damage, place=str(path)) from None


def set_aside(path: Path) -> None:
    """Rename a damaged file, so that it does not become the older copy."""
    if path.exists():
        path.replace(path.with_name(path.name + DAMAGED))


def _opened(path: Path) -> tuple[dict[str, Any], bool]:
    """Return the object of a file, and whether it has a sum; ValueError: it is no object, or its sum is wrong."""
    content = json.loads(path.read_bytes())
    if not isinstance(content, dict):
        raise ValueError(f"it must hold a JSON object, but got {type(content).__name__}")
    known = content.pop(SUM, None)
    if known is not None and known != _sum(json.dumps(content)):
        raise ValueError("its sum is wrong")
    return content, known is not None


def _is_summed(path: Path) -> bool:
    """Return whether a file is of a version that writes sums."""
    try:
        return _opened(path)[1]
    except (FileNotFoundError, ValueError):
        return False


def _sum(text: str) -> str:
    return f"{zlib.crc32(text.encode()):08x}"
