"""The log of calls that a launcher refuses."""

from typing import Final

import structlog

from eunomia.errors import EunomiaError
from eunomia_appmaster.launcher.errors import LeaseEndedError
from eunomia_appmaster.node.system import MACHINE, System

log = structlog.get_logger()

AGAIN_SECONDS: Final = 60.0
"""Seconds between two lines about the end of the node's lease, after which app masters go on to call."""


class RefusalLog:
    """Logs refusals: each of them, but those after the end of the node's lease once a minute.

    Args:
        system: the machine's clock.
    """

    def __init__(self, *, system: System = MACHINE) -> None:
        self._system = system
        self._said_at = -AGAIN_SECONDS
        self._left_out = 0

    def log(self, error: EunomiaError) -> None:
        """Log a refusal, with the number of those that were left out before it."""
        if not isinstance(error, LeaseEndedError):
            log.info("request.refused", error=str(error))
            return
        now = self._system.uptime()
        if now - self._said_at < AGAIN_SECONDS:
            self._left_out += 1
            return
        log.info("request.refused", error=str(error), times_before=self._left_out)
        self._said_at, self._left_out = now, 0
