"""Verdicts: the reason, from a closed set, for which a stage turned down each claim."""

from enum import IntEnum
from typing import Final

import numpy as np

from eunomia.model.shapes import builds
from eunomia.units import Rows


class Reason(IntEnum):
    """The reason for which a job waits; messages, tables and metrics show its name in lower case."""

    NO_SIZE_FITS = 1
    """No size on the job's menu fits the cluster."""
    NO_GPU_OF_TYPE = 2
    FRAGMENTED = 3
    """Enough GPUs are free, but not on machines where the job could use them together."""
    CPUS_SHORT = 4
    MEMORY_SHORT = 5
    OUTRANKED = 6
    """Other jobs come first in the order of service."""
    NOT_OFFERED = 7
    """The app was left out of an auction, because other apps are worse off."""
    OUTBID = 8
    HELD_BACK = 9
    """The app won GPUs that the auction withheld as its payment."""
    SHARE_USED_UP = 10
    PLANNED_LATER = 11
    AWAITING_RELEASE = 12
    """The job was granted GPUs that their last holder has not released yet."""
    PAUSED_BY_APP = 13
    NOT_PROFILED = 14
    BACKING_OFF = 15
    """The job failed recently and is restarted after a back-off."""
    AWAITING_ROUND = 16
    """The job arrived after the last round, or an offer is still open."""
    PLUGIN_FAULT = 17
    GPU_HOURS = 18
    """The job's user has used up the GPU hours of the day."""
    SUSPENDED = 19
    """The job's app is suspended, for example because it exceeds its disk quota."""

    @property
    def word(self) -> str:
        """Return the reason's name as shown to users."""
        return _WORDS[self]


_WORDS: Final = {reason: reason.name.lower() for reason in Reason}


@builds
class Verdicts:
    """The claims that a stage turned down: their ``rows``, and a ``Reason`` code for each."""

    rows: Rows
    reasons: Rows


NO_VERDICTS: Final = Verdicts(rows=np.empty(0, np.int32), reasons=np.empty(0, np.int32))


def turned_down(rows: Rows, reason: Reason) -> Verdicts:
    """Return verdicts that give all these claims the same reason."""
    return Verdicts(rows=rows, reasons=np.full(rows.size, int(reason), dtype=np.int32))
