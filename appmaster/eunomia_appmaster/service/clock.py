"""The arbiter's clock: seconds since its first start; it continues over restarts and never decreases.

While it runs it follows the machine's monotonic clock, so that setting the machine's time has no effect. At a restart
it adds the time for which no arbiter ran, since jobs kept running: by the machine's uptime, which cannot be set either,
and by Unix time only if the machine was rebooted meanwhile.
"""

from typing import Any, Final

from eunomia.journal.journal import Journal, Step
from eunomia.units import ZERO, Seconds
from eunomia_appmaster.node.boot import boot_id
from eunomia_appmaster.node.system import MACHINE, System

BOOT: Final = "boot"
"""Key in the journal's meta data: ``{"id": ..., "after_step": ...}``; later steps were written in the boot with that
id."""


class Clock:
    """A clock that counts seconds from a journal's last step.

    Args:
        last: time of the last step in seconds; 0 for a new journal.
        away: seconds that have passed since the last step.
        system: has the machine's clocks.
    """

    def __init__(self, last: Seconds = ZERO, away: float = 0.0, *, system: System = MACHINE) -> None:
        self._system = system
        self._offset = float(last) + max(0.0, away) - system.monotonic()

    @classmethod
    def after(cls, journal: Journal, last: Step | None, *, system: System = MACHINE) -> "Clock":
        """Continue from the last step of a journal, and write the id of this boot into the journal.

        Args:
            journal: open for writing.
            last: the journal's last step; None if it has none.
            system: has the machine's clocks.
        """
        noted = journal.meta.get(BOOT)
        known: dict[str, Any] = noted if isinstance(noted, dict) and isinstance(noted.get("after_step"), int) else {}
        here = boot_id()
        if known.get("id") != here:
            journal.set_meta(**{BOOT: {"id": here, "after_step": 0 if last is None else last.number}})
        if last is None:
            return cls(system=system)
        if known.get("id") == here and last.number > known["after_step"] and last.uptime is not None:
            return cls(last.now, system.uptime() - last.uptime, system=system)
        return cls(last.now, system.unix_time() - last.at, system=system)

    def now(self) -> Seconds:
        """Return the seconds since the first start."""
        return Seconds(self._system.monotonic() + self._offset)
