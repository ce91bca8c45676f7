"""The highest attempt of each app's master that a node has seen; the node refuses orders of earlier attempts."""

from pathlib import Path

import structlog

from eunomia_appmaster.launcher.errors import OldAttemptError
from eunomia_appmaster.launcher.files import read_json, write_json

log = structlog.get_logger()

MOST_APPS = 1000
"""Maximum number of apps whose attempts are kept: those whose attempt number rose last."""
MOST_ATTEMPTS = 1_000_000
"""Highest attempt that is kept. The arbiter's next number is above it, so a forged order must not use up numbers."""


class Attempts:
    """The highest attempts by app, in a file that survives the launcher.

    Attempt 1 refuses nothing, so only apps with a later attempt are kept.

    Args:
        path: path of the file; a damaged file is put aside, and attempts are recorded from zero again.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._highest = {
            app: attempt for app, attempt in (read_json(path) or {}).items() if isinstance(attempt, int) and attempt > 1
        }

    def __getitem__(self, app: str) -> int:
        return self._highest.get(app, 1)

    def saw(self, app: str, attempt: int) -> None:
        """Refuse orders of lower attempts of an app's master from now on."""
        if not self[app] < attempt <= MOST_ATTEMPTS:
            return
        self._highest.pop(app, None)
        self._highest[app] = attempt
        for oldest in list(self._highest)[:-MOST_APPS]:
            del self._highest[oldest]
        log.info("attempt.seen", app=app, attempt=attempt)
        try:
            write_json(self._path, self._highest)
        except OSError as error:  # a full disk: the next write includes it
            log.warning("attempts.not_saved", app=app, attempt=attempt, error=str(error))

    def check(self, app: str, attempt: int) -> None:
        """Check an order's attempt, and refuse lower ones from now on; 0: the app master does not report its attempt.

        Raises:
            OldAttemptError: a higher attempt was seen.
        """
        if attempt and attempt < self[app]:
            rule = f"an order for app {app} must be of attempt {self[app]} of its app master, the highest that was seen"
            raise OldAttemptError(rule, value=f"attempt {attempt}")
        self.saw(app, attempt)
