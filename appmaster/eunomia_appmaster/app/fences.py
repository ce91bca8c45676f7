"""Fencing of writers: names of folders that order the writers of an app or job from oldest to newest.

Each writer creates its own folder below the shared one, by ``mkdir``, and changes nothing outside of it. So a writer
that was cut off from the arbiter but still runs cannot change the files of a later writer, and needs no check before a
write, whose result could be outdated by then.
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
    """The position of a writer in the order of all writers: by attempt, then incarnation, then generation.

    Attributes:
        attempt: number of the app master's attempt that started the writer; 0: started without an app master.
        incarnation: number of the job's incarnation; 0: the writer is an app master.
        generation: number of the writer among those of this attempt and incarnation, from 1.
    """

    attempt: int
    incarnation: int = 0
    generation: int = 1

    @property
    def name(self) -> str:
        """The name of the writer's folder: ``a2-i5-g1``; ``a2-g1`` for an app master."""
        incarnation = f"-i{self.incarnation}" if self.incarnation else ""
        return f"a{self.attempt}{incarnation}-g{self.generation}"

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """Return the fence that a folder's name denotes; None: it is not a writer's folder."""
        found = _NAME.fullmatch(name)
        if found is None:
            return None
        return cls(int(found["attempt"]), int(found["incarnation"] or 0), int(found["generation"]))


def fences_in(folder: Path) -> list[Fence]:
    """Return the fences of all writers that have a folder, newest first; empty if the folder cannot be read."""
    return sorted(_found(folder), reverse=True)


def make_own(folder: Path, attempt: int, incarnation: int = 0) -> Fence:
    """Create a writer's folder, and its parents.

    A folder that exists belongs to another writer: the next generation is tried.

    Raises:
        OSError: the folder cannot be created.
    """
    folder.mkdir(parents=True, exist_ok=True)
    same = [each.generation for each in _found(folder) if (each.attempt, each.incarnation) == (attempt, incarnation)]
    fence = Fence(attempt, incarnation, max(same, default=0) + 1)
    while True:
        try:
            (folder / fence.name).mkdir()
        except FileExistsError:  # a listing of a network file system may be a minute old
            fence = Fence(attempt, incarnation, fence.generation + 1)
        else:
            return fence


def remove_folder(folder: Path) -> None:
    """Remove a writer's folder with its files, records first; files that cannot be removed now stay.

    Records end in ``.json``; readers ignore a checkpoint without a record.
    """
    try:
        with os.scandir(folder) as entries:
            names = sorted((entry.name for entry in entries), key=lambda name: (not name.endswith(".json"), name))
        for name in names:
            (folder / name).unlink(missing_ok=True)
        folder.rmdir()
    except OSError:  # its writer, which was cut off, may have created another file
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
