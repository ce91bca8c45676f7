"""Marks of how far a journal was written, kept outside of SQLite, to detect lost steps.

After each commit, never before, the arbiter writes a mark to ``journal.mark``, and its answers carry the mark to
launchers and app masters, which send it back when they register. A journal that does not reach a mark has lost steps on
which a machine or an app has acted: SQLite silently treats a damaged frame of its log as the end of the log.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import structlog

from eunomia.errors import InputError
from eunomia.journal.journal import Journal
from eunomia.journal.values import Note
from eunomia.model.shapes import value
from eunomia_appmaster.node.mark_file import MARK, MarkFile
from eunomia_appmaster.node.system import MACHINE, System

log = structlog.get_logger()

LOSS: Final = "loss"
"""Kind of the notes about accepted losses."""
ACCEPT: Final = "eunomia serve --accept-loss"
UNTIL: Final = f"nothing is decided before a backup is restored, or this accepted: `{ACCEPT}`"
SYNC_STEPS: Final = 200
"""Number of steps after which the mark is synced to the disk; a mark older than the journal is not an error."""
MOST_NAMED: Final = 10
"""Maximum number of apps that the text of a loss names."""
_FIELDS: Final = ("history", "step", "sum", "notes")
_UNKNOWN: Final = -1


@value
class Mark:
    """A mark: records how far a journal was written.

    Attributes:
        history: starts at 1 and increases with each accepted loss, after which step numbers are reused.
        step: number of the last step.
        sum: checksum of that step, which covers all steps before it; -1 if not known.
        notes: number of writes of notes; -1 if not known.
    """

    history: int
    step: int
    sum: int
    notes: int

    def text(self) -> str:
        """Return the mark as text for files and messages."""
        return " ".join(f"{name}={getattr(self, name)}" for name in _FIELDS)

    @classmethod
    def of(cls, text: str) -> "Mark | None":
        """Parse the text of a mark; None if it is not one."""
        names, _, numbers = zip(*(part.partition("=") for part in text.split(" ")), strict=True)
        if names != _FIELDS or not all(number.removeprefix("-").isdecimal() for number in numbers):
            return None
        read = dict(zip(_FIELDS, map(int, numbers), strict=True))
        return cls(**read) if all(_UNKNOWN <= number < 2**62 for number in read.values()) else None


@value
class Loss:
    """Data that a journal has lost.

    Attributes:
        mark: the mark that the journal does not reach.
        by: the place where the mark was found.
        last: the journal's last step.
        what: the loss as text, a clause.
    """

    mark: Mark
    by: str
    last: int
    what: str

    def words(self, apps: Iterable[str] = ()) -> str:
        """Return the loss as a sentence without a full stop; ``apps``: names of the lost apps."""
        named = sorted(apps)
        more = f" and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
        lost = f": app{'s' if len(named) > 1 else ''} {', '.join(named[:MOST_NAMED])}{more}" if named else ""
        return f"{self.what}{lost} (the journal ends with step {self.last}; {self.by} has step {self.mark.step})"


class Marks:
    """The mark of a journal that is open for writing.

    Args:
        journal: the arbiter's journal.
        path: the mark file, see ``MARK``.
        system: the clock of the machine.
    """

    def __init__(self, journal: Journal, path: Path, *, system: System = MACHINE) -> None:
        self._journal, self._system = journal, system
        self._file = MarkFile(path)
        self._history = _history_of(journal)
        self._refused = False
        self._synced = 0
        self.present = ""
        """The present mark as text, for launchers and app masters; empty if none is written yet."""
        if self._file.damage:
            log.error("journal.mark_damaged", what=self._file.damage)
        elif not self._file.text and journal.last_step:
            log.warning("journal.mark_missing", what=f"there is no {path.name}: a loss of steps would not be noticed")

    def check_begun(self, *, accepted: bool) -> None:
        """Check that a journal with neither steps nor a secret has never had steps or notes, by the mark file.

        Args:
            accepted: whether the operator has accepted the loss.

        Raises:
            InputError: it had some; the message names the remedy.
        """
        kept = Mark.of(self._file.text)
        empty = not self._journal.meta.get("secret") and not self._journal.last_step
        if kept is None or not empty or accepted or max(kept.step, kept.notes) <= 0:
            return
        rule = f"a journal must hold the steps that {MARK} tells of; restore a backup, or begin a new one: `{ACCEPT}`"
        value = f"an empty one, and {kept.step} steps are gone"
        raise InputError(rule, value=value, place=str(self._journal.path))

    def follow(self) -> None:
        """Write the mark of the last commit; if the disk refuses, the older one stays."""
        reached = self._journal.reached
        mark = Mark(
            history=self._history,
            step=reached.step,
            sum=_UNKNOWN if reached.sum is None else reached.sum,
            notes=_UNKNOWN if reached.notes is None else reached.notes,
        )
        self.present = mark.text()
        try:
            self._file.write(self.present)
            if mark.step >= self._synced + SYNC_STEPS:
                self._file.sync()
                self._synced = mark.step
        except OSError as error:
            if not self._refused:
                log.warning("journal.mark_refused", why=str(error))
            self._refused = True
        else:
            self._refused = False

    def lost(self, kept: Iterable[tuple[str, str]] = ()) -> Loss | None:
        """Return the loss by the furthest mark, from the mark file or kept elsewhere; None if nothing is lost.

        Args:
            kept: pairs of a place and the text of the mark kept there.
        """
        found = [loss for by, text in ((MARK, self._file.text), *kept) if (loss := self._against(by, text)) is not None]
        return max(found, key=lambda loss: (loss.mark.history, loss.mark.step), default=None)

    def is_behind(self, text: str) -> bool:
        """Return whether a mark is ahead of the present one, or its step has another checksum; no file is read."""
        kept, here = Mark.of(text), Mark.of(self.present)
        if kept is None or here is None:
            return False
        if (kept.history, kept.step) != (here.history, here.step):
            return (kept.history, kept.step) > (here.history, here.step)
        return _UNKNOWN not in (kept.sum, here.sum) and kept.sum != here.sum

    def accept(self, loss: Loss, what: str, *, logged: bool = True) -> None:
        """Journal a loss; later steps belong to a new history, and older marks become invalid.

        Args:
            loss: see ``lost``.
            what: the loss as text.
            logged: whether to log it; a command that shows the losses itself does not need that.
        """
        self._history = max(self._history, loss.mark.history) + 1
        at = self._system.unix_time()
        noted = {"history": self._history, "what": what, "step": loss.mark.step, "last": loss.last, "at": at}
        self._journal.note(Note(kind=LOSS, key=str(self._history), value=noted))
        if logged:
            log.warning("journal.loss_accepted", what=what)
        self.follow()

    def close(self) -> None:
        """Close the mark file."""
        self._file.close()

    def _against(self, by: str, text: str) -> Loss | None:
        kept = Mark.of(text)
        if kept is None or kept.history < self._history:
            return None
        reached = self._journal.reached
        gone, here = kept.step - reached.step, self._journal.sum_of(kept.step)
        what = ""
        if gone > 0:
            what = f"{gone} steps are gone" if gone > 1 else "1 step is gone"
        elif kept.history > self._history:
            what = "the journal is older than a loss that was accepted"
        elif here is not None and kept.sum not in (_UNKNOWN, here):
            what = f"step {kept.step} is another one than before"
        elif reached.notes is not None and kept.notes > reached.notes:
            what = "what was noted of apps after the last step is gone"
        return Loss(mark=kept, by=by, last=reached.step, what=what) if what else None


def _history_of(journal: Journal) -> int:
    """Return the number of the journal's history, by its last accepted loss."""
    noted = (loss.get("history") for loss in journal.notes(LOSS).values() if isinstance(loss, dict))
    return max((number for number in noted if isinstance(number, int)), default=1)
