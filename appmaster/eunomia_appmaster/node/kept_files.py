"""Small files with a checksum: JSON with a backup that is used if the newer file is damaged, and token files."""

import json
import os
import re
import stat
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eunomia.errors import InputError, UnreachableError
from eunomia.model.shapes import value

SUM = "sum"
OLDER, DAMAGED = ".old", ".damaged"
MOST_BYTES = 1 << 30
"""Longest file that is read, in bytes."""
_TOKEN = re.compile(r"([a-z]+:\S*:)?[0-9a-f]{64}")


class DamagedTokenError(UnreachableError):
    """A token file does not contain a token."""


@value
class KeptContent:
    """The content of a file or of its backup.

    Attributes:
        content: the object, without the checksum; None: there is no file.
        damage: what is wrong with the file, whose backup was read instead; empty: nothing.
    """

    content: dict[str, Any] | None
    damage: str = ""


def sealed(content: Mapping[str, Any]) -> str:
    """Return an object as JSON with its checksum.

    Raises:
        ValueError: it contains a number that is not finite.
    """
    text = json.dumps(content, allow_nan=False)
    return f"{text[:-1]}{', ' if content else ''}{json.dumps(SUM)}: {json.dumps(_sum(text))}}}"


def keep_older(path: Path) -> None:
    """Make the present file the backup; call this before the file is replaced."""
    new = path.with_name(f"{path.name}{OLDER}.new")
    new.unlink(missing_ok=True)
    try:
        new.hardlink_to(path)
    except FileNotFoundError:  # the first one
        return
    new.replace(path.with_name(path.name + OLDER))


def write_kept(path: Path, content: Mapping[str, Any], *, sync: bool = False) -> None:
    """Replace a file; its previous content becomes the backup.

    Args:
        path: path of the file.
        content: object to write, without a checksum.
        sync: whether to wait until it would survive a power cut.
    """
    new, text = path.with_name(f"{path.name}.new"), sealed(content)
    with new.open("w", encoding="utf-8") as file:
        file.write(text)
        if sync:
            file.flush()
            os.fsync(file.fileno())
    keep_older(path)
    new.replace(path)
    complete(path, text)


def complete(path: Path, text: str) -> None:
    """Write the backup of a file that has none yet, so that there are two copies after the first write."""
    older = path.with_name(path.name + OLDER)
    if older.exists():
        return
    new = path.with_name(f"{older.name}.new")
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, stat.S_IMODE(path.stat().st_mode))
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        file.write(text)
    new.replace(older)


def read_kept(path: Path, *, remedy: str) -> KeptContent:
    """Read a file, or its backup if it is damaged or missing; files of earlier versions have no checksum.

    Args:
        path: path of the newer file.
        remedy: remedy for users if both are damaged, as a sentence without a full stop.

    Raises:
        InputError: it is damaged, and there is no good backup.
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
        rule = f"a file must be as it was written, or have a good older copy; {remedy}"
        raise InputError(rule, value=damage, place=str(path)) from None


def opened(text: bytes | str) -> tuple[dict[str, Any], bool]:
    """Parse text that ``sealed`` wrote, and return the object and whether the text had a checksum.

    Files of earlier versions have none.

    Raises:
        ValueError: it is not a JSON object, or its checksum is wrong.
    """
    content = json.loads(text)
    if not isinstance(content, dict):
        raise ValueError(f"it must hold a JSON object, but got {type(content).__name__}")
    known = content.pop(SUM, None)
    if known is not None and known != _sum(json.dumps(content)):
        raise ValueError("its sum is wrong")
    return content, known is not None


def set_aside(path: Path) -> None:
    """Rename a damaged file, so that it does not become the backup."""
    if path.exists():
        path.replace(path.with_name(path.name + DAMAGED))


def sealed_token(token: str) -> str:
    """Return the content of a token file: the token, and a second line with its checksum."""
    return f"{token}\n{SUM} {_sum(token)}\n"


def read_token(path: Path) -> str:
    """Read a token file with a checksum, or one of an earlier version, which has only the token.

    Raises:
        DamagedTokenError: it is missing or damaged; the process that wrote it writes it again.
    """
    rule = "a file must hold a token as it was written; the process that wrote it writes it again"
    try:
        token, *more = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:  # ValueError: empty, or no UTF-8
        raise DamagedTokenError(rule, value=str(error), place=str(path)) from None
    if more != [f"{SUM} {_sum(token)}"] if more else not _TOKEN.fullmatch(token):
        raise DamagedTokenError(rule, value="another content", place=str(path))
    return token


def _opened(path: Path) -> tuple[dict[str, Any], bool]:
    """Return the object in a file, and whether it has a checksum.

    Raises:
        ValueError: it is not a JSON object, or its checksum is wrong.
    """
    with open(path, "rb", opener=_not_waiting) as file:
        state = os.fstat(file.fileno())
        if not stat.S_ISREG(state.st_mode) or state.st_size > MOST_BYTES:
            raise ValueError(f"it must be a plain file of at most {MOST_BYTES >> 20} MiB")
        return opened(file.read(state.st_size))  # a larger amount is allocated before it is read


def _not_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # a pipe that a user has put there has no end to wait for


def _is_summed(path: Path) -> bool:
    """Return whether a file was written by a version that writes checksums."""
    try:
        return _opened(path)[1]
    except (FileNotFoundError, ValueError):
        return False


def _sum(text: str) -> str:
    return f"{zlib.crc32(text.encode()):08x}"
