"""Small JSON files that are written whole or not at all."""

import contextlib
import json
import os
from pathlib import Path
from typing import Any

import structlog

from eunomia.errors import InputError
from eunomia_appmaster.node.kept_files import OLDER, keep_older, read_kept, sealed, set_aside

log = structlog.get_logger()

CURE = "restore it from a backup, or restart the machine, so that no worker is left, and delete it"


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


def write_kept_json(path: Path, content: dict[str, Any]) -> None:
    """Replace ``path``, with a sum in it and its former content beside it; waits until it would survive a power cut."""
    beside = path.with_name(f"{path.name}.new")
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        file.write(sealed(content))
        file.flush()
        os.fsync(file.fileno())
    keep_older(path)
    beside.replace(path)


def read_kept_json(path: Path) -> dict[str, Any]:
    """Read what ``write_kept_json`` wrote, or its older copy, which the log says; empty if there is no such file.

    Raises:
        InputError: it is damaged, and there is no good older copy.
    """
    kept = read_kept(path, cure=CURE)
    if kept.damage:
        log.error("launcher.older_copy", why=kept.damage, taken=f"{path.name}{OLDER}")
        set_aside(path)
    return kept.content or {}


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
