"""Ends of an app master that count against it; how many of them suspend its app, and for how long."""

import json
import os
from pathlib import Path
from typing import Any

from eunomia_appmaster.launcher.container import SUSPENDED
from eunomia_appmaster.node.file_rights import as_owner
from eunomia_appmaster.node.machine_faults import FROM_OUTSIDE, MACHINE_FAULT, TERMINATED
from eunomia_appmaster.node.own_ends_limit import OwnEndsLimit
from eunomia_appmaster.protocol import launcher_pb2 as pb

NOT_OWN_CODES = frozenset({MACHINE_FAULT, SUSPENDED, TERMINATED})
FIRST_PAUSE_SECONDS = 60.0
"""Pause in seconds of a first suspension; it doubles with each further one, up to ``MOST_SUSPENDED_SECONDS``."""
MOST_SUSPENDED_SECONDS = 3600.0
MOST_WORDS = 300
_REST = " ..."
_TAIL_BYTES = 64 * 1024


def is_own(exit_: pb.Exit) -> bool:
    """Return whether an app master caused its end: by a failing exit code, or by a signal for a fault of its own.

    An unknown exit does not count: its shepherd was lost, or its start failed.
    """
    if exit_.HasField("code"):
        return exit_.code != 0 and exit_.code not in NOT_OWN_CODES
    return exit_.HasField("signal") and exit_.signal not in FROM_OUTSIDE


class OwnEnds:
    """The ends that an app's master caused itself; times are Unix seconds, since the record outlives the launcher.

    Attributes:
        times: times of the ends within the window.
        suspensions: number of consecutive suspensions; an attempt as long as the window resets it.
        suspended: whether the last end suspended the app.
    """

    def __init__(self, times: tuple[float, ...] = (), suspensions: int = 0, *, suspended: bool = False) -> None:
        self.times = list(times)
        self.suspensions = suspensions
        self.suspended = suspended

    def judge(
        self,
        exit_: pb.Exit,
        limit: OwnEndsLimit,
        *,
        lasted: float,
        now: float,
        stall: "pb.Stall.ValueType" = pb.NO_STALL,
    ) -> None:
        """Count an attempt that ends now, after ``lasted`` seconds, if it caused its end itself or hung."""
        self.suspended = False
        if lasted >= limit.seconds:
            self.suspensions = 0
        if stall != pb.STALL_HUNG and (stall != pb.NO_STALL or not is_own(exit_)):
            return
        self.times = [time for time in self.times if now - limit.seconds < time <= now] + [now]
        if self.suspensions or len(self.times) > limit.ends:
            self.suspended = True
            self.suspensions += 1

    @property
    def pause_seconds(self) -> float:
        """The seconds from a suspension to the next attempt."""
        return min(MOST_SUSPENDED_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** min(max(self.suspensions - 1, 0), 30))

    def words(self, limit: OwnEndsLimit, exit_: pb.Exit, said: str) -> str:
        """Return a message about a suspension: number of counted ends, the last end, and the last line of the log."""
        how = f"exit code {exit_.code}" if exit_.HasField("code") else f"signal {exit_.signal}"
        if len(self.times) > limit.ends:
            times = "once" if len(self.times) == 1 else f"{len(self.times)} times"
            often = f"{times} in {limit.seconds / 60.0:g} min, last"
        else:
            often = f"once more after {self.suspensions - 1} suspensions,"
        return f"ended by itself {often} with {how}{f': {said}' if said else ''}"

    def record(self) -> dict[str, Any]:
        """Return the counted ends as plain values for the launcher's record of the app master."""
        return {"times": self.times, "suspensions": self.suspensions, "suspended": self.suspended}

    @classmethod
    def of_record(cls, known: dict[str, Any]) -> "OwnEnds":
        """Read the counted ends from a record; records of earlier versions have none."""
        return cls(tuple(known.get("times", ())), known.get("suspensions", 0), suspended=known.get("suspended", False))


def last_words(log_file: Path) -> str:
    """Return the reason in the last line of an app master's log, which is JSON; else the line itself; empty: no line.

    The log is read with the rights of the app folder's owner; a link or a pipe in its place is not read.
    """
    try:
        with as_owner(log_file.parent), open(log_file, "rb", opener=_not_waiting) as file:
            file.seek(max(0, file.seek(0, 2) - _TAIL_BYTES))
            lines = file.read(_TAIL_BYTES).decode(errors="replace").splitlines()
    except OSError:
        return ""
    line = next((line.strip() for line in reversed(lines) if line.strip()), "")
    try:
        said = json.loads(line)
        why = said.get("why") or _exception(said)
    except (ValueError, AttributeError, LookupError, TypeError):
        why = line
    return shortened(str(why or line))


def shortened(text: str) -> str:
    """Return the beginning of a text, at most ``MOST_WORDS`` characters, with three dots for the rest."""
    if len(text) <= MOST_WORDS:
        return text
    kept = text[: MOST_WORDS - len(_REST)]
    return (kept.rpartition(" ")[0] or kept) + _REST


def _not_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW)


def _exception(said: dict[str, Any]) -> str:
    """Return the type and message of the exception in a line of the log."""
    last = said["exception"][0]
    return f"{last['exc_type']}: {last['exc_value']}"
