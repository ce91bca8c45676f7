"""The launcher's JSON files: written whole or not at all, with a sum, and with their former content beside them."""

import contextlib
import os
from pathlib import Path
from typing import Any

import structlog

from eunomia.errors import InputError
from eunomia_appmaster.node.kept_files import (
    DAMAGED,
    OLDER,
    KeptContent,
    complete,
    keep_older,
    read_kept,
    sealed,
    set_aside,
)

log = structlog.get_logger()

CURE = "restore it from a backup, or restart the machine, so that no worker is left, and delete it"


def write_json(path: Path, content: dict[str, Any], *, sync: bool = False, older: bool = True) -> None:
    """Replace ``path``, readable by its owner alone.

    Args:
        path: of the file.
        content: without a sum.
        sync: wait until it would survive a power cut.
        older: keep its former content beside it; false for a file that is read once, soon.
    """
    beside, text = path.with_name(f"{path.name}.new"), sealed(content)
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        file.write(text)
        if sync:
            file.flush()
            os.fsync(file.fileno())
    if older:
        keep_older(path)
    beside.replace(path)
    if older:
        complete(path, text)


def read_kept_json(path: Path) -> dict[str, Any]:
    """Read a file that nothing can replace; where it is damaged, its older copy, with a log line. Empty: no such file.

    Raises:
        InputError: it is damaged, and there is no good older copy.
    """
    return _taken(path, read_kept(path, cure=CURE)) or {}


def read_json(path: Path) -> dict[str, Any] | None:
    """Read what ``write_json`` wrote, or its older copy, which the log says; None if there is no such file.

    Where both are damaged, that counts as none, too: they are put aside as ``<name>.damaged``, and the log says so.
    """
    try:
        return _taken(path, read_kept(path, cure="a launcher goes on without it"))
    except InputError as error:
        put_aside(path, str(error))
        return None


def put_aside(path: Path, why: str) -> None:
    """Rename a file that cannot be used, and its older copy."""
    log.error("launcher.damaged_file", error=why, kept=f"{path.name}{DAMAGED}")
    with contextlib.suppress(OSError):
        set_aside(path)
        set_aside(path.with_name(path.name + OLDER))


def let_read(path: Path) -> None:
    """Let all accounts read a file and its older copy."""
    for one in (path, path.with_name(path.name + OLDER)):
        with contextlib.suppress(FileNotFoundError):
            one.chmod(0o644)


def remove(path: Path) -> None:
    """Delete a file and its older copy."""
    path.unlink(missing_ok=True)
    path.with_name(path.name + OLDER).unlink(missing_ok=True)


def _taken(path: Path, kept: KeptContent) -> dict[str, Any] | None:
    if kept.damage:
        log.error("launcher.older_copy", why=kept.damage, taken=f"{path.name}{OLDER}", place=str(path))
        set_aside(path)
        if kept.content is not None:
            with contextlib.suppress(OSError):  # a full disk: the copy is read again at the next start
                write_json(path, kept.content)
    return kept.content
