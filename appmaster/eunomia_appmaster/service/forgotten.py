"""Apps that ended long ago: the service has forgotten them, the journal has not."""

from collections.abc import Collection
from pathlib import Path

from eunomia.journal import read_journal
from eunomia_appmaster.service.apps import NOTE, App, read_app

MOST_LISTED = 5000
"""Of them in one answer, which has to fit a message."""


class Forgotten:
    """Looks ended apps up in the journal, whenever somebody asks.

    Args:
        path: the journal's.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def app(self, name: str) -> App | None:
        """One by name; None: none of this name has ended.

        Raises:
            InputError: the journal cannot be read.
        """
        with read_journal(self._path) as journal:
            values = journal.note_of(NOTE, name)
        app = None if values is None else read_app(name, values)
        return app if app is not None and app.over else None

    def besides(self, known: Collection[str]) -> list[App]:
        """Those that are not among the known ones, in order of submission; of very many the last.

        Raises:
            InputError: the journal cannot be read.
        """
        with read_journal(self._path) as journal:
            notes = journal.notes(NOTE)
        read = (read_app(name, values) for name, values in notes.items() if name not in known)
        ended = [app for app in read if app is not None and app.over]
        return ended[-MOST_LISTED:]
