"""The lease by which a node holds its slots: each answered heartbeat renews it, and at its end nothing may run there.

It counts from the *sending* of the heartbeat, on a clock that goes on in sleep (``System.uptime``). The arbiter counts
from its answer, which is later, and starts nothing of the node elsewhere before that end and a margin. So the two never
run at once, whatever became of the network, the launcher or the arbiter. The parents of workers read the end from a
file, so that a launcher that is dead or stopped does not stretch it.
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
"""What workers do when the lease ends."""
SHEPHERDS_WAIT_SECONDS: Final = 1.0
"""Most seconds that shepherds leave the order to save and leave to the launcher, which sends it better than they do."""


class NodeLease:
    """The node's lease, and its file.

    Args:
        path: of the file.
        system: has the clock.

    Attributes:
        goes_on: whether workers go on when it ends; new ones are not started even so.
    """

    def __init__(self, path: Path, *, system: System = MACHINE) -> None:
        self.path = path
        self._system = system
        self.goes_on = False
        self._ends_at: float | None = None
        """Uptime; infinite: it has no end. None: the arbiter has given none since the machine's start."""
        self._grace = 0.0
        self._ordered = False
        self._renewed_at = -math.inf
        kept = read_lease(str(path))
        if kept is not None and kept["boot_id"] == boot_id():
            self._ends_at = math.inf if kept["held_until"] is None else float(kept["held_until"])
            self._grace = float(kept["grace"])

    @property
    def is_endless(self) -> bool:
        """Whether the arbiter gave it without an end."""
        return self._ends_at == math.inf

    @property
    def left_seconds(self) -> float:
        """The seconds until its end, infinite without one; 0: it has ended, or there is none."""
        return 0.0 if self._ends_at is None else max(0.0, self._ends_at - self._system.uptime())

    @property
    def leaves_in_seconds(self) -> float:
        """The seconds until its workers have to leave, so that their grace ends with it; infinite where they go on."""
        return math.inf if self.goes_on else max(0.0, self.left_seconds - self._grace)

    @property
    def is_old(self) -> bool:
        """Whether half of the time until its workers have to leave has passed without an answer."""
        return self.left_seconds - self._grace < self._system.uptime() - self._renewed_at

    def renew(self, sent_at: float, seconds: float, grace: float) -> None:
        """Let it end later, by the answer to a call.

        Args:
            sent_at: uptime at which the call was sent.
            seconds: of the lease from then on; 0: without an end.
            grace: seconds before its end at which workers are ordered to leave.
        """
        self._ends_at = sent_at + seconds if seconds > 0.0 else math.inf
        self._grace, self._renewed_at, self._ordered = grace, sent_at, False
        self._write()

    def ordered_to_leave(self) -> None:
        """Let the shepherds know that the workers have their order."""
        self._ordered = True
        self._write()

    def check(self) -> None:
        """Raise ``LeaseEndedError`` where nothing may be started any more."""
        if self._ends_at is None or self.is_over:
            rule = "a node must hold its slots by a lease of the arbiter before it starts a process"
            raise LeaseEndedError(rule, value="none yet" if self._ends_at is None else "its end, without an answer")

    @property
    def is_over(self) -> bool:
        """Whether it ends so soon that nothing is started any more, or has ended."""
        return self._ends_at is not None and (self.left_seconds if self.goes_on else self.leaves_in_seconds) <= 0.0

    def _write(self) -> None:
        """Write the file in place: a full disk refuses no renewal. A reader that meets half of it keeps the former."""
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
