"""A node's lease on its slots: each answered heartbeat renews it, and no worker may run once it has ended.

The lease counts from the *sending* of the heartbeat, on a clock that includes sleep (``System.uptime``). The arbiter
counts from its later answer, and starts work of the node elsewhere only after that end and a margin. So the same work
never runs twice at once, whatever fails: the network, the launcher or the arbiter. Shepherds, the parents of workers,
read the end from a file, so that a dead or stopped launcher does not prolong the lease.
"""

import json
import math
import os
import zlib
from pathlib import Path
from typing import Any, Final

import structlog

from eunomia_appmaster.launcher.errors import LeaseEndedError
from eunomia_appmaster.launcher.shepherd import LEASE_BYTES, read_lease
from eunomia_appmaster.node.boot import boot_id
from eunomia_appmaster.node.system import MACHINE, System

log = structlog.get_logger()

FILE: Final = "lease"
WHEN_ALONE: Final = ("stop", "go-on")
"""Options for workers when the node's lease ends: stop them, or let them continue."""
SHEPHERDS_WAIT_SECONDS: Final = 1.0
"""Longest time in seconds that shepherds wait for the launcher's order to suspend before they send their own."""


class NodeLease:
    """The node's lease, and its file.

    Args:
        path: path of the file.
        system: provides the clock.

    Attributes:
        goes_on: whether workers continue after its end; new ones are not started in any case.
    """

    def __init__(self, path: Path, *, system: System = MACHINE) -> None:
        self.path = path
        self._system = system
        self.goes_on = False
        self._ends_at: float | None = None
        """Uptime in seconds at which the lease ends; infinite: never. None: no lease since the machine's start."""
        self._grace = 0.0
        self._ordered = False
        self._renewed_at = -math.inf
        kept = read_lease(str(path))
        if kept is not None and kept["boot_id"] == boot_id():
            self._ends_at = math.inf if kept["held_until"] is None else float(kept["held_until"])
            self._grace = float(kept["grace"])

    @property
    def is_endless(self) -> bool:
        """Whether the arbiter granted the lease without an end."""
        return self._ends_at == math.inf

    @property
    def left_seconds(self) -> float:
        """The seconds until the lease ends, infinite without an end; 0: it has ended, or there is none."""
        return 0.0 if self._ends_at is None else max(0.0, self._ends_at - self._system.uptime())

    @property
    def leaves_in_seconds(self) -> float:
        """The seconds until workers must suspend to use their grace before the end; infinite if they then run on."""
        return math.inf if self.goes_on else max(0.0, self.left_seconds - self._grace)

    @property
    def is_old(self) -> bool:
        """Whether half of the time from renewal to the order to suspend has passed without an answer of the arbiter."""
        return self.left_seconds - self._grace < self._system.uptime() - self._renewed_at

    def renew(self, sent_at: float, seconds: float, grace: float) -> None:
        """Extend the lease after the arbiter's answer to a call.

        Args:
            sent_at: uptime in seconds at which the call was sent.
            seconds: length of the lease from then on; 0: without an end.
            grace: seconds before its end at which workers are ordered to suspend.
        """
        self._ends_at = sent_at + seconds if seconds > 0.0 else math.inf
        self._grace, self._renewed_at, self._ordered = grace, sent_at, False
        self._write()

    def ordered_to_leave(self) -> None:
        """Record for the shepherds that the launcher has ordered the workers to suspend."""
        self._ordered = True
        self._write()

    def check(self) -> None:
        """Check that containers may be started.

        Raises:
            LeaseEndedError: the lease has ended, or ends too soon.
        """
        if self._ends_at is None or self.is_over:
            rule = "a node must hold its slots by a lease of the arbiter before it starts a process"
            raise LeaseEndedError(rule, value="none yet" if self._ends_at is None else "its end, without an answer")

    @property
    def is_over(self) -> bool:
        """Whether the lease has ended, or ends so soon that nothing is started any more."""
        return self._ends_at is not None and (self.left_seconds if self.goes_on else self.leaves_in_seconds) <= 0.0

    def _write(self) -> None:
        """Write the file in place, so that a full disk prevents no renewal; a reader skips a partial write."""
        held_until = None if self._ends_at is None or self.is_endless else self._ends_at
        ends_at = None if self.goes_on else held_until
        wait = min(SHEPHERDS_WAIT_SECONDS, self._grace / 4.0)
        warn_at = None if ends_at is None else ends_at - self._grace + wait
        kept: dict[str, Any] = {"ends_at": ends_at, "warn_at": warn_at, "ordered": self._ordered}
        kept |= {"held_until": held_until, "grace": self._grace, "boot_id": boot_id()}
        line = json.dumps(kept).encode()
        text = line + f" {zlib.crc32(line):08x}".encode()
        try:
            fd = os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o600)
            try:
                os.pwrite(fd, text.ljust(LEASE_BYTES), 0)
            finally:
                os.close(fd)
        except OSError as error:
            log.error("lease.not_written", error=str(error))
