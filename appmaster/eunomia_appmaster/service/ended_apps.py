"""Reads apps that ended long ago from the journal, since the service keeps only the last ones in memory."""

from collections.abc import Collection
from pathlib import Path
from typing import Final

from eunomia.journal.journal import JournalReader, read_journal
from eunomia_appmaster.protocol.pages import MOST_LISTED, PAGE
from eunomia_appmaster.service.app_record import NOTE, App, read_app

_END: Final = 2**63 - 1
"""A position after all notes of a journal."""


class EndedApps:
    """Looks up ended apps in the journal.

    Args:
        path: the journal's file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def app(self, name: str) -> App | None:
        """Return the ended app of this name; None if there is none.

        Raises:
            InputError: the journal cannot be read.
        """
        with read_journal(self._path) as journal:
            return _ended(journal, name)

    def page(self, known: Collection[str], before: int = 0) -> tuple[list[App], int]:
        """Return a page of ended apps in order of submission, and the position for the next, earlier page.

        Args:
            known: names of apps to leave out.
            before: position in the journal before which the page ends; 0: the journal's end.

        Returns:
            Those of the last ``PAGE`` apps before that position that have ended, and the position of the first of the
            ``PAGE`` apps; 0 if there is no earlier app.

        Raises:
            InputError: the journal cannot be read.
        """
        with read_journal(self._path) as journal:
            rows = journal.last_notes(NOTE, before or _END, PAGE)
            found = [_ended(journal, name) for _, name in reversed(rows) if name not in known]
        return [app for app in found if app is not None], rows[-1][0] if len(rows) == PAGE else 0

    def all_except(self, known: Collection[str]) -> list[App]:
        """Return the last ``MOST_LISTED`` ended apps that are not in ``known``, in order of submission.

        Raises:
            InputError: the journal cannot be read.
        """
        ended, before = self.page(known)
        while before and len(ended) < MOST_LISTED:
            more, before = self.page(known, before)
            ended = [*more, *ended]
        return ended[-MOST_LISTED:]


def _ended(journal: JournalReader, name: str) -> App | None:
    values = journal.note_of(NOTE, name)
    app = None if values is None else read_app(name, values)
    return app if app is not None and app.over else None
