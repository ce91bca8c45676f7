"""Removes what ended apps left on the disk, without following a link that a script may have put there."""

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from eunomia.errors import EunomiaError
from eunomia_appmaster.app.checkpoints import BEST_FOLDER, CheckpointStore

CHECKPOINTS = "checkpoints"


def bytes_of(folder: Path) -> int:
    """Return what a folder takes on the disk, in bytes; links are counted, not followed."""
    total = 0
    for _, folders, files, number in os.fwalk(folder, follow_symlinks=False, onerror=None):
        for name in (*folders, *files):
            try:
                total += os.stat(name, dir_fd=number, follow_symlinks=False).st_blocks * 512
            except FileNotFoundError:  # removed meanwhile
                continue
    return total


def remove_app(apps: Path, app: str) -> None:
    """Remove an app's folder with all that is in it.

    Args:
        apps: the folder of all apps' folders.
        app: name of the app, and of its folder.

    Raises:
        EunomiaError: the folder is a link, or cannot be removed.
    """
    with _opened(apps) as parent:
        _remove(app, parent, apps)


def remove_all_but_best(apps: Path, app: str, best_job: str) -> None:
    """Remove the folders of an app's trials, but for the checkpoint that the best trial keeps.

    Files of the app itself stay: its app file, ``trials.csv``, ``activity.jsonl``.

    Args:
        apps: the folder of all apps' folders.
        app: name of the app.
        best_job: id of the best trial, ``app/number``; empty: none is known.

    Raises:
        EunomiaError: a folder is a link, or cannot be removed.
    """
    best = best_job.rpartition("/")[2]
    with _opened(apps) as parent, _opened(apps / app, app, parent) as folder:
        for name in _folders(folder):
            if name != best:
                _remove(name, folder, apps / app)
                continue
            kept = BEST_FOLDER if CheckpointStore(apps / app / name / BEST_FOLDER, keep=1).latest() else CHECKPOINTS
            with _opened(apps / app / name, name, folder) as trial:
                for other in os.listdir(trial):  # noqa: PTH208 - by descriptor
                    if other != kept:
                        _remove(other, trial, apps / app / name)


def _folders(number: int) -> list[str]:
    names = os.listdir(number)
    return [name for name in names if stat.S_ISDIR(os.stat(name, dir_fd=number, follow_symlinks=False).st_mode)]


def _remove(name: str, parent: int, place: Path) -> None:
    """Remove what has a name in an open folder; of a link the link itself."""
    try:
        if stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            shutil.rmtree(name, dir_fd=parent)
        else:
            os.unlink(name, dir_fd=parent)
    except FileNotFoundError:
        return
    except OSError as error:
        raise EunomiaError("a folder must be removable", value=str(error), place=str(place / name)) from error


@contextmanager
def _opened(path: Path, name: str | None = None, parent: int | None = None) -> Iterator[int]:
    """Open a folder, of an open one where that is given; a link is refused."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        number = os.open(path if name is None else name, flags, dir_fd=parent)
    except OSError as error:
        raise EunomiaError("a folder must be a folder, no link", value=str(error), place=str(path)) from error
    try:
        yield number
    finally:
        os.close(number)
