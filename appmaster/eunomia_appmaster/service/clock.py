"""The arbiter's clock: seconds since its first start, going on over restarts, never backwards.

While it runs it follows the machine's monotonic clock, so that setting the machine's time does not move it. Over a
restart it adds the time for which no arbiter ran, since jobs ran on: by the machine's uptime, which cannot be set
either, and by Unix time only if the machine itself was restarted meanwhile.
"""

import time
from pathlib import Path
from typing import Any, Final

from eunomia.journal.journal import Journal, Step, uptime
from eunomia.units import ZERO, Seconds

BOOT: Final = "boot"
"""In the journal's meta: ``{"id": ..., "after_step": ...}``; later steps were written since the boot of that id."""
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Clock:
    """Counts on from a journal's last step.

    Args:
        last: the arbiter's time of the last step; 0 for a new journal.
        away: seconds that passed since.
    """

    def __init__(self, last: Seconds = ZERO, away: float = 0.0) -> None:
        self._offset = float(last) + max(0.0, away) - time.monotonic()

    @classmethod
    def after(cls, journal: Journal, last: Step | None) -> "Clock":
        """Go on after the last step of a journal, and note there on which boot.

        Args:
            journal: open for writing.
            last: its last step; None: it has none yet.
        """
        noted = journal.meta.get(BOOT)
        known: dict[str, Any] = noted if isinstance(noted, dict) and isinstance(noted.get("after_step"), int) else {}
        here = boot_id()
        if known.get("id") != here:
            journal.set_meta(**{BOOT: {"id": here, "after_step": 0 if last is None else last.number}})
        if last is None:
            return cls()
        if known.get("id") == here and last.number > known["after_step"] and last.uptime is not None:
            return cls(last.now, uptime() - last.uptime)
        return cls(last.now, time.time() - last.at)

    def now(self) -> Seconds:
        """Seconds since the first start."""
        return Seconds(time.monotonic() + self._offset)


def boot_id() -> str:
    """Returns an id of this boot of the machine; empty if the system has none."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""
