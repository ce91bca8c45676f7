"""Checks that a state folder is writable and on a local disk, before anything in it is changed."""

import os
from collections.abc import Iterator
from pathlib import Path

from eunomia.errors import InputError
from eunomia_appmaster.node.file_systems import check_local

RULE = (
    "a state folder and the folders in it must be writable for the user of `eunomia serve` "
    "(give that user the right, mount its disk for writing, or take another --state-dir)"
)


def check_writable(state: Path) -> None:
    """Check that files in a state folder can be replaced, without writing anything.

    Raises:
        InputError: the folder, a folder inside it, or, if it is new, its parent is not writable; or the folder is on a
            network file system.
    """
    check_local(state)
    for folder in _folders(state):
        if os.access(folder, os.W_OK | os.X_OK):
            continue
        read_only = bool(os.statvfs(folder).f_flag & os.ST_RDONLY)
        why = "a read-only file system" if read_only else f"no right to write for user {os.geteuid()}"
        raise InputError(RULE, value=why, place=str(folder))


def _folders(state: Path) -> Iterator[Path]:
    """Yield the folders in which Eunomia's processes replace files; for a new state folder, its parent."""
    try:
        if state.exists() and not state.is_dir():
            raise InputError("a state folder must be a folder", value="a file", place=str(state))
        if not state.is_dir():
            yield next(above for above in state.resolve().parents if above.is_dir())
            return
        yield state
        for name in ("run", "tls", "launcher", "launcher/live", "launcher/app_masters", "apps", "journal.archive"):
            if (state / name).is_dir():
                yield state / name
        if (state / "apps").is_dir():
            yield from sorted(folder for folder in (state / "apps").iterdir() if folder.is_dir())
    except PermissionError as error:
        raise InputError(RULE, value="no right to read it", place=str(error.filename)) from None
    except OSError as error:  # such as a name that is too long
        raise InputError(RULE, value=error.strerror or str(error), place=str(error.filename)) from None
