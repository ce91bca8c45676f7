"""Heartbeat files by which the Ray nodes on an app's slots and the search program detect each other's state.

Each node writes ``slot-NUMBER.json`` several times a second, and the search program writes ``driver.json``. A writer is
presumed dead if its heartbeat has not changed for a while by the reader's own clock, so clocks need not agree.
"""

import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from eunomia.model.shapes import value

BEAT_SECONDS = 0.2
"""Seconds between two heartbeats."""
SILENT_SECONDS = 10.0
"""Seconds without a new heartbeat after which a node is presumed dead."""
DRIVER_SILENT_SECONDS = 60.0
"""Seconds without a new heartbeat after which the search program is presumed dead."""


class _Beat(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    process: int
    """Process id of the writer; a new writer restarts the numbers of heartbeats."""
    beat: int
    """Number of the heartbeat."""

    def write(self, path: Path) -> None:
        """Replace the file atomically: a reader gets the old content or the new content."""
        new = path.with_name(f".{path.name}.{os.getpid()}")
        new.write_text(self.model_dump_json())
        new.rename(path)

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Return the content of a file; None: the file is missing or damaged."""
        try:
            return cls.model_validate_json(path.read_bytes())
        except (OSError, ValidationError, json.JSONDecodeError):
            return None


class SlotBeat(_Beat):
    """The heartbeat of the Ray node of a slot."""

    state: Literal["starting", "up", "leaving"]
    """``up``: Ray may use the node. ``leaving``: the node's slot is to be given up."""
    host: str
    """Host name, as trials report it."""
    processes: tuple[int, ...] = ()
    """Ids of all descendants of the node's process."""


class DriverBeat(_Beat):
    """The heartbeat of the search program."""

    over: bool = False
    """Whether the search has ended; its nodes then exit at once."""


def slot_file(folder: Path, number: int) -> Path:
    """Return the path of the heartbeat file of a slot's node."""
    return folder / f"slot-{number}.json"


def driver_file(folder: Path) -> Path:
    """Return the path of the heartbeat file of the search program."""
    return folder / "driver.json"


def token_file(folder: Path) -> Path:
    """Return the path of the token with which nodes join the Ray cluster; no such file: Ray requires no token."""
    return folder / "ray_token"


def give_token(folder: Path, env: Mapping[str, str]) -> None:
    """Write the token of this process's Ray cluster for the nodes of its slots, readable only by the present user.

    Args:
        folder: folder of the search's files.
        env: environment of the process, in which ``ray.init`` has set whether a token is required.

    Raises:
        OSError: the token cannot be read or written.
    """
    if env.get("RAY_AUTH_MODE", "").lower() != "token":
        return
    named = env.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token"
    token = env.get("RAY_AUTH_TOKEN") or Path(named).read_text()
    file = os.open(token_file(folder), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(file, "w") as opened:  # noqa: PTH123 - the file is created with its permissions
        opened.write(token.strip())


def token_variables(folder: Path) -> dict[str, str]:
    """Return the environment variables with which Ray's commands use the token of a search's cluster."""
    path = token_file(folder)
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(path)} if path.exists() else {}


class Pulse:
    """Measures, by a monotonic clock, the time since the last heartbeat of a writer.

    Args:
        clock: returns the time in seconds, which never decreases.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last: tuple[int, int] | None = None
        self._heard_at = clock()

    def silent_seconds(self, beat: _Beat | None) -> float:
        """Return the seconds since the last new heartbeat, given the present content of the file (None: unreadable)."""
        now = self._clock()
        if beat is not None and (beat.process, beat.beat) != self._last:
            self._last = (beat.process, beat.beat)
            self._heard_at = now
        return now - self._heard_at


@value
class LeaseView:
    """The slots that a search has now, as last seen."""

    up: int = 0
    """Number of slots whose nodes Ray may use."""
    leaving: frozenset[tuple[str, int]] = frozenset()
    """Host name and process id of all processes on slots that are to be given up."""
