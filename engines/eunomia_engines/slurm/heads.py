"""Numbers of heads in batch jobs: each head takes the next number, and only the head with the highest one serves.

A number is a folder on the storage that all nodes share, since ``mkdir`` succeeds in one process only. A head that sees
a higher number than its own ends. The next head serves once the previous one has released the journal's lock.
"""

import contextlib
from pathlib import Path
from typing import Final

from eunomia_engines.slurm.request import FOLDER

HEADS: Final = "heads"
_DIGITS: Final = 6


def take_number(state: Path) -> int:
    """Reserve the next number for this head alone, and return it.

    Raises:
        OSError: the storage cannot be written.
    """
    folder = _folder(state)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    while True:
        number = highest(state) + 1
        with contextlib.suppress(FileExistsError):
            (folder / f"{number:0{_DIGITS}}").mkdir(mode=0o700)
            return number


def highest(state: Path) -> int:
    """Return the highest number that a head has taken; 0: none has.

    Raises:
        OSError: the storage cannot be read.
    """
    try:
        return max((int(path.name) for path in _folder(state).iterdir() if path.name.isdecimal()), default=0)
    except FileNotFoundError:
        return 0


def _folder(state: Path) -> Path:
    return state / FOLDER / HEADS
