"""Notices of an app: what was lost or replaced after damage, which every screen shows and the arbiter journals."""

from collections.abc import Iterable

import structlog

log = structlog.get_logger()

MOST_NOTICES, MOST_LETTERS = 20, 500
"""Notices that are kept, the last ones, and letters of each."""


class Notices:
    """The notices of one app, oldest first; they survive its app master in ``master.json``.

    Args:
        known: of earlier attempts.
    """

    def __init__(self, known: Iterable[str] = ()) -> None:
        self._kept = list(map(str, known))[-MOST_NOTICES:]

    @property
    def kept(self) -> tuple[str, ...]:
        """Returns the notices."""
        return tuple(self._kept)

    def add(self, text: str) -> None:
        """Add a notice; one that is the same as the last is not repeated."""
        text = text[:MOST_LETTERS]
        if self._kept[-1:] == [text]:
            return
        self._kept = [*self._kept, text][-MOST_NOTICES:]
        log.error("master.notice", why=text)
