"""The checkpoints of one job: each writer has its own folder, and readers use the newest writer's good checkpoint.

``checkpoints/a2-i5-g1/000110.pt`` is of incarnation 5, which attempt 2 of the app master started. Checkpoints directly
in ``checkpoints/`` were written by earlier versions and count as older than all others
(docs/decisions/0321-no-writer-touches-what-another-wrote.md).
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from eunomia.errors import InputError
from eunomia_appmaster.app.checkpoints import Checkpoint, CheckpointError, CheckpointStore, sync_folder
from eunomia_appmaster.app.fences import Fence, fences_in, make_own, remove_folder

CHECKPOINTS_FOLDER = "checkpoints"
BEST_FOLDER = "best"
"""Folder of the checkpoint that a job keeps for its best metric, next to ``checkpoints``."""
_READ_ATTEMPTS = 10
_NAMED = re.compile(r"(a\d+-i\d+-g\d+)/(\d+)")


class JobCheckpoints:
    """The checkpoints of one job in ``folder``.

    An instance reads the checkpoints of all writers. After ``begin`` it is a writer itself and changes only its own
    folder; once that folder has ``keep`` good checkpoints, the newest writer deletes the folders of older writers.

    Args:
        folder: the shared folder, created by ``begin``.
        keep: how many good checkpoints a writer keeps, at least 1.
        named: names of existing checkpoints, as ``name_of`` returns them, since a listing of a folder on a network file
            system may lack files that another machine has just written.

    Raises:
        InputError: ``keep`` is less than 1, or a name is malformed.
    """

    def __init__(self, folder: Path, *, keep: int = 2, named: Iterable[str] = ()) -> None:
        self.folder = folder
        self.keep = keep
        self.faults: list[CheckpointError] = []
        self.fence: Fence | None = None
        """Fence of this writer; None: this instance only reads."""
        self._named = _parsed(named, folder)
        self._digests: dict[tuple[str, int, int, int], str] = {}
        self._own = CheckpointStore(folder, keep=keep, owned=False)

    # -- reading

    def latest(self) -> Checkpoint | None:
        """Return the newest good checkpoint of the newest writer that has one; None: no writer has.

        Corrupt checkpoints are skipped and added to ``faults``; only those of this writer are renamed.
        """
        return next((found for store in self._stores() if (found := store.latest()) is not None), None)

    def good(self) -> list[Checkpoint]:
        """Return all good checkpoints, the newest writer's first; an older writer's later steps were undone since."""
        return [found for store in self._stores() for found in store.good()]

    def steps(self) -> list[int]:
        """Return the steps that have a checkpoint of any writer, ascending, without verifying the checkpoints."""
        return sorted({step for store in self._stores() for step in store.steps()})

    def _stores(self) -> Iterator[CheckpointStore]:
        """Yield the checkpoint store of each writer, newest first, then the store of earlier versions."""
        for fence in sorted({*fences_in(self.folder), *self._named}, reverse=True):
            yield self._own if fence == self.fence else self._store_of(fence)
        yield self._store(self.folder)

    def _store_of(self, fence: Fence) -> CheckpointStore:
        return self._store(self.folder / fence.name, also=self._named.get(fence, ()))

    def _store(self, folder: Path, *, owned: bool = False, also: Iterable[int] = ()) -> CheckpointStore:
        store = CheckpointStore(folder, keep=self.keep, owned=owned, also=also)
        store.faults, store.digests = self.faults, self._digests
        return store

    # -- writing

    def begin(self, attempt: int | None, incarnation: int | None, *, adopt: bool = True) -> Checkpoint | None:
        """Create this writer's own folder, with the newest good checkpoint in it.

        Args:
            attempt: number of the app master's attempt; None: the newest one that has written.
            incarnation: number of the job's incarnation; None: the one after the last.
            adopt: whether the newest good checkpoint is linked (without links: copied) into the folder.

        Returns:
            The checkpoint to resume from; None: the job starts from the beginning.

        Raises:
            InputError: the folder cannot be created or written.
            CheckpointError: a newer writer has taken over and deleted the folder, or other writers replaced each
                checkpoint while it was linked.
        """
        try:
            known = fences_in(self.folder)
            if attempt is None:
                attempt = known[0].attempt if known else 0
            if incarnation is None:
                incarnation = self._next_incarnation(known)
            self.fence = make_own(self.folder, attempt, incarnation)
            self._own = self._store(self.folder / self.fence.name, owned=True)
            sync_folder(self.folder)
            return self._adopt(incarnation) if adopt else None
        except OSError as error:
            rule = "a folder for checkpoints must be writable"
            raise InputError(rule, value=error.strerror or str(error), place=str(self.folder)) from error

    def save(
        self, step: int, write: Callable[[Path], None], *, incarnation: int, metric: float | None = None
    ) -> Checkpoint:
        """Write a checkpoint in this writer's folder, with the arguments of ``CheckpointStore.save``.

        Raises:
            CheckpointError: a newer writer has deleted this writer's folder, or as ``CheckpointStore.save``.
            InputError: as ``CheckpointStore.save``.
            OSError: as ``CheckpointStore.save``.
        """
        if self.fence is None:
            raise CheckpointError("begin() must be called before save()", value="none", place=str(self.folder))
        self._check_not_replaced()
        try:
            saved = self._own.save(step, write, incarnation=incarnation, metric=metric)
        except OSError:
            self._check_not_replaced()
            raise
        if self._own.good_kept >= self.keep:
            self._remove_older()
        return saved

    def _next_incarnation(self, known: list[Fence]) -> int:
        newest = self.latest()
        return max([0 if newest is None else newest.incarnation, *(fence.incarnation for fence in known)]) + 1

    def _adopt(self, incarnation: int) -> Checkpoint | None:
        """Link the newest good checkpoint of another writer into this writer's folder, and return it."""
        for _ in range(_READ_ATTEMPTS):
            found = self.latest()
            if found is None or found.path.parent == self._own.folder:
                return found
            try:
                if (adopted := self._own.adopt(found, before=incarnation)) is not None:
                    return adopted
            except FileNotFoundError:
                self._check_not_replaced()
        rule = "a checkpoint must stay for the time that a link takes"
        raise CheckpointError(rule, value=f"other ones in each of {_READ_ATTEMPTS} looks", place=str(self.folder))

    def _check_not_replaced(self) -> None:
        if self.fence is not None and not self._own.folder.is_dir():
            newer = max(fences_in(self.folder), default=self.fence)
            if newer > self.fence:
                rule = "a writer must be the newest of its job to go on after its folder was deleted"
                raise CheckpointError(rule, value=f"{newer.name} is newer", place=str(self._own.folder))

    def _remove_older(self) -> None:
        """Delete the folders of older writers, unless a newer writer exists: only the newest may delete."""
        known = fences_in(self.folder)
        if self.fence is None or any(fence > self.fence for fence in known):
            return
        for fence in known:
            if fence < self.fence:
                remove_folder(self.folder / fence.name)
        self._store(self.folder).remove_all()


def name_of(checkpoint: Checkpoint) -> str:
    """Return a checkpoint's name within its job, such as ``a2-i5-g1/000110``; empty: an earlier version wrote it."""
    fence = Fence.parse(checkpoint.path.parent.name)
    return "" if fence is None else f"{fence.name}/{checkpoint.path.stem}"


def _parsed(named: Iterable[str], folder: Path) -> Mapping[Fence, set[int]]:
    found: dict[Fence, set[int]] = {}
    for name in named:
        parts = _NAMED.fullmatch(name)
        fence = None if parts is None else Fence.parse(parts[1])
        if parts is None or fence is None:
            raise InputError("a checkpoint must be named as a2-i5-g1/000110", value=repr(name), place=str(folder))
        found.setdefault(fence, set()).add(int(parts[2]))
    return found
