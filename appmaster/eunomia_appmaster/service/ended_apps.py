"""Reads apps that ended long ago from the journal, since the service keeps only the last ones in memory."""

from collections.abc import Collection
from pathlib import Path

from eunomia.journal.journal import read_journal
from eunomia_appmaster.service.app_record import NOTE, App, read_app

MOST_LISTED = 5000
"""Most ended apps in one answer, so that it fits into a gRPC message."""


class EndedApps:
    """Looks up ended apps in the journal.

    Args:
        path: of the journal.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def app(self, name: str) -> App | None:
        """Return the ended app of this name; None if there is none.

        Raises:
            InputError: the journal cannot be read.
        """
        with read_journal(self._path) as journal:
            values = journal.note_of(NOTE, name)
        app = None if values is None else read_app(name, values)
        return app if app is not None and app.over else None

    def all_except(self, known: Collection[str]) -> list[App]:
        """Return the ended apps that are not in ``known``, in order of submission: the last ``MOST_LISTED`` of them.

        Raises:
            InputError: the journal cannot be read.
        """
        with read_journal(self._path) as journal:
            notes = journal.notes(NOTE)
        read = (read_app(name, values) for name, values in notes.items() if name not in known)
        ended = [app for app in read if app is not None and app.over]
        return ended[-MOST_LISTED:]
