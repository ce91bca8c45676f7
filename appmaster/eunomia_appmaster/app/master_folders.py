"""Folders of app masters: each attempt writes the tuner's state and ``trials.csv`` in its own folder.

``master/a2-g1/`` belongs to attempt 2. The events of jobs are kept in ``activity/``, one file per attempt. Files that
earlier versions wrote lie directly in the app's folder and count as older than all attempts.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from eunomia.errors import EunomiaError
from eunomia_appmaster.app.fences import Fence, fences_in, make_own, remove_folder
from eunomia_appmaster.node.kept_files import DAMAGED, OLDER

MASTER_FOLDER: Final = "master"
ACTIVITY_FOLDER: Final = "activity"
ACTIVITY_FILE: Final = "activity.jsonl"
"""File of events that earlier versions wrote."""
STATE_FILE: Final = "master.json"
CHANGES_FILE: Final = "master.changes.jsonl"
TRIALS_FILE: Final = "trials.csv"
_OF_EARLIER_VERSIONS: Final = (
    TRIALS_FILE,
    *(name + ending for name in (STATE_FILE, CHANGES_FILE) for ending in ("", OLDER, DAMAGED)),
)


class OwnFolder:
    """The folder of one attempt of an app's master, and the file for the attempt's events.

    Args:
        app_dir: folder of the app.
        attempt: number of this attempt of the app's master.

    Raises:
        EunomiaError: a later attempt has a folder, so that files of this one would never be read.
        OSError: the folder cannot be created.
    """

    def __init__(self, app_dir: Path, attempt: int) -> None:
        self._app_dir = app_dir
        self.fence = make_own(app_dir / MASTER_FOLDER, attempt)
        self.path = app_dir / MASTER_FOLDER / self.fence.name
        newest = max([*fences_in(app_dir / MASTER_FOLDER), self.fence])
        if newest > self.fence:
            remove_folder(self.path)
            rule = "an attempt of an app master must be the newest of its app"
            raise EunomiaError(rule, value=f"attempt {attempt}, after {newest.attempt}", place=str(self.path.parent))
        (app_dir / ACTIVITY_FOLDER).mkdir(exist_ok=True)
        self.activity = app_dir / ACTIVITY_FOLDER / f"{self.fence.name}.jsonl"

    def remove_older(self) -> None:
        """Delete the folders of older attempts, once this one has written its state and trials; events stay."""
        for fence in fences_in(self.path.parent):
            if fence < self.fence:
                remove_folder(self.path.parent / fence.name)
        for name in _OF_EARLIER_VERSIONS:
            with suppress(OSError):
                (self._app_dir / name).unlink(missing_ok=True)


def master_folders(app_dir: Path) -> Iterator[Path]:
    """Yield the folders that may hold an app's state, newest attempt first."""
    for fence in fences_in(app_dir / MASTER_FOLDER):
        yield app_dir / MASTER_FOLDER / fence.name
    yield app_dir


def trials_file(app_dir: Path) -> Path:
    """Return the path of an app's newest ``trials.csv``, which may not exist yet."""
    found = (folder / TRIALS_FILE for folder in master_folders(app_dir))
    return next((path for path in found if path.is_file()), app_dir / TRIALS_FILE)


def activity_files(app_dir: Path) -> list[Path]:
    """Return the files of an app's events, oldest attempt first."""
    found: list[tuple[Fence, Path]] = []
    with suppress(OSError):
        for path in (app_dir / ACTIVITY_FOLDER).iterdir():
            fence = Fence.parse(path.stem)
            if fence is not None and path.suffix == ".jsonl":
                found.append((fence, path))
    return [app_dir / ACTIVITY_FILE, *(path for _, path in sorted(found))]
