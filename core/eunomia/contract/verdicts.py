"""Verdicts: one reason of a closed set for each claim that a stage turned down."""

from enum import IntEnum
from typing import Final

import numpy as np

from eunomia.model.shapes import builds
from eunomia.units import Rows


class Reason(IntEnum):
    """Why a job waits; the names, in lower case, are what users, tables and metrics see."""

    NO_SIZE_FITS = 1
    """No size on its menu fits the cluster."""
    NO_GPU_OF_TYPE = 2
    FRAGMENTED = 3
    """Enough GPUs are free, but not where the job could use them together."""
    CPUS_SHORT = 4
    MEMORY_SHORT = 5
    OUTRANKED = 6
    """Other jobs come first in the order of service."""
    NOT_OFFERED = 7
    """Left out of an auction, since other apps are treated worse."""
    OUTBID = 8
    HELD_BACK = 9
    """The app won GPUs that the auction kept back as its payment."""
    SHARE_USED_UP = 10
    PLANNED_LATER = 11
    AWAITING_RELEASE = 12
    """Granted GPUs that their last holder has not released yet."""
    PAUSED_BY_APP = 13
    NOT_PROFILED = 14
    BACKING_OFF = 15
    """Failed recently and restarts after a pause."""
    AWAITING_ROUND = 16
    """Arrived since the last round, or an offer is open."""
    PLUGIN_FAULT = 17
    GPU_HOURS = 18
    """Its user has used up its GPU hours of the day."""
    SUSPENDED = 19
    """Its app is suspended, as beyond a limit of disk."""

    @property
    def word(self) -> str:
        """The reason as users see it."""
        return _WORDS[self]


_WORDS: Final = {reason: reason.name.lower() for reason in Reason}


@builds
class Verdicts:
    """Claims that a stage turned down: ``rows`` of claims and a ``Reason`` code for each."""

    rows: Rows
    reasons: Rows


NO_VERDICTS: Final = Verdicts(rows=np.empty(0, np.int32), reasons=np.empty(0, np.int32))


def turned_down(rows: Rows, reason: Reason) -> Verdicts:
    """Return verdicts that give all these claims the same reason."""
    return Verdicts(rows=rows, reasons=np.full(rows.size, int(reason), dtype=np.int32))
