"""Fences of writers: which of several that write for one app or job is the newest, by the name of its own folder.

A writer makes a folder of its own below the one that it shares with others, by ``mkdir``, and changes nothing outside
of it. So one that was cut off from the arbiter, and goes on, touches nothing that a later one writes, and nothing has
to be checked that could change after the check.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

_NAME = re.compile(r"a(?P<attempt>\d+)(?:-i(?P<incarnation>\d+))?-g(?P<generation>\d+)")


@dataclass(frozen=True, slots=True, order=True)
class Fence:
    """The place of a writer in the order of all writers; a later attempt comes after every incarnation of an earlier.

    Attributes:
        attempt: of the app master that started it, as the arbiter numbers them; 0: a run without one.
        incarnation: of the job; 0: an app master.
        generation: how often a writer of this attempt and incarnation has begun, from 1.
    """

    attempt: int
    incarnation: int = 0
    generation: int = 1

    @property
    def name(self) -> str:
        """Name of its folder: ``a2-i5-g1``, of an app master ``a2-g1``."""
        incarnation = f"-i{self.incarnation}" if self.incarnation else ""
        return f"a{self.attempt}{incarnation}-g{self.generation}"

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """Return the fence of a folder's name; None: it is no writer's."""
        found = _NAME.fullmatch(name)
        if found is None:
            return None
        return cls(int(found["attempt"]), int(found["incarnation"] or 0), int(found["generation"]))


def fences_in(folder: Path) -> list[Fence]:
    """Return the writers that have a folder, newest first; none: the folder cannot be read."""
    return sorted(_found(folder), reverse=True)


def make_own(folder: Path, attempt: int, incarnation: int = 0) -> Fence:
    """Make the folder of a writer, and those above it.

    A folder that exists is another writer's: the next generation is tried.

    Raises:
        OSError: it cannot be made.
    """
    folder.mkdir(parents=True, exist_ok=True)
    same = [each.generation for each in _found(folder) if (each.attempt, each.incarnation) == (attempt, incarnation)]
    fence = Fence(attempt, incarnation, max(same, default=0) + 1)
    while True:
        try:
            (folder / fence.name).mkdir()
        except FileExistsError:  # a listing over a network may be a minute old
            fence = Fence(attempt, incarnation, fence.generation + 1)
        else:
            return fence


def remove_folder(folder: Path) -> None:
    """Remove a writer's folder with its files, records first; what cannot be removed now stays.

    Records end in ``.json``: without one, no reader takes what it describes.
    """
    try:
        with os.scandir(folder) as entries:
            names = sorted((entry.name for entry in entries), key=lambda name: (not name.endswith(".json"), name))
        for name in names:
            (folder / name).unlink(missing_ok=True)
        folder.rmdir()
    except OSError:  # its writer, which was cut off, may have begun another file
        return


def _found(folder: Path) -> Iterator[Fence]:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                fence = Fence.parse(entry.name)
                if fence is not None and entry.is_dir(follow_symlinks=False):
                    yield fence
    except OSError:
        return
