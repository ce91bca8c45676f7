"""The log of calls that a launcher refuses."""

from typing import Final

import structlog

from eunomia.errors import EunomiaError
from eunomia_appmaster.launcher.errors import LeaseEndedError
from eunomia_appmaster.node.system import MACHINE, System

log = structlog.get_logger()

AGAIN_SECONDS: Final = 60.0
"""Seconds between two log lines about the end of the node's lease, after which app masters keep calling."""


class RefusalLog:
    """Logs every refusal, but after the end of the node's lease only one per minute.

    Args:
        system: the machine's clock.
    """

    def __init__(self, *, system: System = MACHINE) -> None:
        self._system = system
        self._said_at = -AGAIN_SECONDS
        self._left_out = 0

    def log(self, error: EunomiaError) -> None:
        """Log a refusal; after the lease's end at most one per minute, with the number suppressed since."""
        if not isinstance(error, LeaseEndedError):
            log.info("request.refused", error=str(error))
            return
        now = self._system.uptime()
        if now - self._said_at < AGAIN_SECONDS:
            self._left_out += 1
            return
        log.info("request.refused", error=str(error), times_before=self._left_out)
        self._said_at, self._left_out = now, 0
