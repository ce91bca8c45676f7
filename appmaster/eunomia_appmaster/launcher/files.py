"""Small JSON files that are written whole or not at all."""

import contextlib
import json
import os
from pathlib import Path
from typing import Any

import structlog

from eunomia.errors import InputError

log = structlog.get_logger()


def write_json(path: Path, content: dict[str, Any], *, sync: bool = False) -> None:
    """Replace ``path``, readable by its owner alone; ``sync`` waits until it would survive a power cut."""
    beside = path.with_name(f"{path.name}.new")
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        json.dump(content, file)
        if sync:
            file.flush()
            os.fsync(file.fileno())
    beside.replace(path)


def read_json(path: Path) -> dict[str, Any] | None:
    """Read what ``write_json`` wrote; None if there is no such file.

    A file that a power cut left empty or torn counts as none: it is put aside as ``<name>.torn``, and the log says so.
    """
    try:
        return read_whole_json(path)
    except InputError as error:
        log.error("launcher.torn_file", error=str(error), kept=f"{path.name}.torn")
        with contextlib.suppress(OSError):
            path.replace(path.with_name(f"{path.name}.torn"))
        return None


def read_whole_json(path: Path) -> dict[str, Any] | None:
    """Read what ``write_json`` wrote; None if there is no such file.

    Raises:
        InputError: it holds something else.
    """
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:  # no JSON, or no UTF-8
        raise InputError("a launcher's file must be whole JSON", value=str(error), place=str(path)) from None
    if not isinstance(content, dict):
        raise InputError("a launcher's file must hold a JSON object", value=type(content).__name__, place=str(path))
    return content
