"""The launcher's JSON files: written atomically, with a checksum, and with a backup of the previous content."""

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

REMEDY = "restore it from a backup, or restart the machine, so that no worker is left, and delete it"


def write_json(path: Path, content: dict[str, Any], *, sync: bool = False, older: bool = True) -> None:
    """Replace a JSON file atomically, readable only by its owner.

    Args:
        path: path of the file.
        content: object to write, without a checksum.
        sync: whether to wait until the file would survive a power cut.
        older: whether to keep the previous content as a backup; not needed for a file that is read once, soon.
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
    """Read a file that must not be lost; if it is damaged, read its backup and log that. Empty: the file is missing.

    Raises:
        InputError: it is damaged, and there is no good backup.
    """
    return _taken(path, read_kept(path, remedy=REMEDY)) or {}


def read_json(path: Path) -> dict[str, Any] | None:
    """Read a file of ``write_json``; if it is damaged, read its backup and log that. None: no readable file or backup.

    If the backup is damaged as well, the result is None; both are renamed to ``<name>.damaged``, which is logged.
    """
    try:
        return _taken(path, read_kept(path, remedy="a launcher goes on without it"))
    except InputError as error:
        put_aside(path, str(error))
        return None


def put_aside(path: Path, why: str) -> None:
    """Rename a damaged file and its backup to ``<name>.damaged``, and log the reason ``why``."""
    log.error("launcher.damaged_file", error=why, kept=f"{path.name}{DAMAGED}")
    with contextlib.suppress(OSError):
        set_aside(path)
        set_aside(path.with_name(path.name + OLDER))


def let_read(path: Path) -> None:
    """Make a file and its backup readable for all accounts."""
    for one in (path, path.with_name(path.name + OLDER)):
        with contextlib.suppress(FileNotFoundError):
            one.chmod(0o644)


def remove(path: Path) -> None:
    """Delete a file and its backup."""
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
