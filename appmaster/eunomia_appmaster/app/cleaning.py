"""Removes files of ended apps from the disk; never follows a link that a training script may have put there."""

import contextlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from eunomia.errors import EunomiaError
from eunomia_appmaster.app.job_checkpoints import BEST_FOLDER, CHECKPOINTS_FOLDER, JobCheckpoints
from eunomia_appmaster.app.master_folders import ACTIVITY_FOLDER, MASTER_FOLDER
from eunomia_appmaster.node.file_rights import reading_as_owner
from eunomia_appmaster.node.kept_apart import LAUNCHER

RECORDS: Final = "containers"
"""Name of the folder with a launcher's records of containers that run under accounts of users."""
MOST_DEPTH: Final = 200
"""Deepest nesting of folders that is followed; each level needs an open file and a recursive call."""
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class TooDeepError(EunomiaError):
    """Folders are nested deeper than ``MOST_DEPTH``, which no training job needs."""


def bytes_of(folder: Path) -> int:
    """Return the disk space of a folder in bytes; 0 if it is gone or a link.

    Symbolic links are counted, not followed; a file with several names counts once.

    Raises:
        TooDeepError: folders are nested so deep that they cannot be counted.
        OSError: the folder cannot be read.
    """
    try:
        number = os.open(folder, _FOLDER)
    except (FileNotFoundError, NotADirectoryError):
        return 0
    try:
        return _bytes_in(number, folder, set())
    finally:
        os.close(number)


def _bytes_in(number: int, place: Path, seen: set[int], depth: int = 0) -> int:
    """Return the disk space of an open folder's files in bytes; files that are removed during the call are skipped."""
    if depth > MOST_DEPTH:
        raise TooDeepError(f"folders must be nested at most {MOST_DEPTH} deep", value="more", place=str(place))
    total = 0
    with os.scandir(number) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                state = entry.stat(follow_symlinks=False)
                total += 0 if state.st_ino in seen else state.st_blocks * 512
                if state.st_nlink > 1:
                    seen.add(state.st_ino)
                if not entry.is_dir(follow_symlinks=False):
                    continue
                inner = os.open(entry.name, _FOLDER, dir_fd=number)  # fails if a link has replaced it meanwhile
                try:
                    total += _bytes_in(inner, place, seen, depth + 1)
                finally:
                    os.close(inner)
    return total


def remove_app(apps: Path, app: str) -> None:
    """Remove an app's folder with its whole content.

    Args:
        apps: the folder of all apps' folders.
        app: name of the app, and of its folder.

    Raises:
        EunomiaError: the folder is a link, or cannot be removed.
    """
    with _opened(apps) as parent:
        _remove(app, parent, apps)
    _remove_records(apps, app)


def remove_all_but_best(apps: Path, app: str, best_job: str) -> None:
    """Remove the folders of an app's trials, except the kept checkpoint of the best trial.

    Files of the app itself stay: its app file, and the ``trials.csv`` and events of its app masters.

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
            if name in (MASTER_FOLDER, ACTIVITY_FOLDER):
                continue
            if name != best:
                _remove(name, folder, apps / app)
                continue
            store = JobCheckpoints(apps / app / name / BEST_FOLDER, keep=1)
            kept = BEST_FOLDER if reading_as_owner(apps / app, store.latest) else CHECKPOINTS_FOLDER
            with _opened(apps / app / name, name, folder) as trial:
                for other in os.listdir(trial):  # noqa: PTH208 - by descriptor
                    if other != kept:
                        _remove(other, trial, apps / app / name)
    _remove_records(apps, app)


def _remove_records(apps: Path, app: str) -> None:
    """Remove the records of an app's containers by this machine's launcher, which are outside of the app's folder."""
    records = apps.parent / LAUNCHER / RECORDS
    if records.is_dir():
        with _opened(records) as parent:
            _remove(app, parent, records)


def _folders(number: int) -> list[str]:
    names = os.listdir(number)
    return [name for name in names if stat.S_ISDIR(os.stat(name, dir_fd=number, follow_symlinks=False).st_mode)]


def _remove(name: str, parent: int, place: Path) -> None:
    """Remove a file, folder or link by its name in an open folder; the target of a link stays."""
    try:
        _remove_tree(name, parent, place)
    except FileNotFoundError:
        return
    except OSError as error:
        raise EunomiaError("a folder must be removable", value=str(error), place=str(place / name)) from error


def _remove_tree(name: str, parent: int, place: Path, depth: int = 0) -> None:
    """Remove a file, a link, or a folder with its content; no link is followed, even if one replaces a folder."""
    if depth > MOST_DEPTH:
        raise TooDeepError(f"folders must be nested at most {MOST_DEPTH} deep", value="more", place=str(place))
    if not stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
        os.unlink(name, dir_fd=parent)
        return
    number = os.open(name, _FOLDER, dir_fd=parent)
    try:
        for inner in os.listdir(number):  # noqa: PTH208 - by descriptor
            with contextlib.suppress(FileNotFoundError):
                _remove_tree(inner, number, place, depth + 1)
    finally:
        os.close(number)
    os.rmdir(name, dir_fd=parent)


@contextmanager
def _opened(path: Path, name: str | None = None, parent: int | None = None) -> Iterator[int]:
    """Open a folder by its path, or by its name in an open parent folder; a link is refused."""
    try:
        number = os.open(path if name is None else name, _FOLDER, dir_fd=parent)
    except OSError as error:
        raise EunomiaError("a folder must be a folder, no link", value=str(error), place=str(path)) from error
    try:
        yield number
    finally:
        os.close(number)
