"""Notices of an app about files lost or replaced after damage: all screens show them, and the arbiter journals them."""

from collections.abc import Iterable

import structlog

log = structlog.get_logger()

MOST_NOTICES, MOST_LETTERS = 20, 500
"""Most notices that are kept (the last ones), and most characters of each."""


class Notices:
    """The notices of one app, oldest first; they survive a restart of its app master in ``master.json``.

    Args:
        known: notices of earlier attempts.
    """

    def __init__(self, known: Iterable[str] = ()) -> None:
        self._kept = list(map(str, known))[-MOST_NOTICES:]

    @property
    def kept(self) -> tuple[str, ...]:
        """The notices, oldest first."""
        return tuple(self._kept)

    def add(self, text: str) -> None:
        """Add a notice, unless it equals the last one."""
        text = text[:MOST_LETTERS]
        if self._kept[-1:] == [text]:
            return
        self._kept = [*self._kept, text][-MOST_NOTICES:]
        log.error("master.notice", why=text)
