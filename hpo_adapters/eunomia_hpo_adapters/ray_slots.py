"""Files by which the Ray nodes on an app's slots and the program that searches know of each other.

Each node writes ``slot-NUMBER.json`` several times a second, the searching program ``driver.json``. A reader counts a
writer as gone when its beat has not changed for a while by the reader's own clock, so clocks need not agree.
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
"""Seconds between two writes."""
SILENT_SECONDS = 10.0
"""Seconds without a new beat after which a node counts as gone."""
DRIVER_SILENT_SECONDS = 60.0
"""Seconds without a new beat after which the searching program counts as gone."""


class _Beat(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    process: int
    """Process id of the writer; another writer begins with beat 0 again."""
    beat: int
    """Number of the write."""

    def write(self, path: Path) -> None:
        """Replace the file; readers see the old content or the new one."""
        new = path.with_name(f".{path.name}.{os.getpid()}")
        new.write_text(self.model_dump_json())
        new.rename(path)

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Return the content of a file; None: it is missing or damaged."""
        try:
            return cls.model_validate_json(path.read_bytes())
        except (OSError, ValidationError, json.JSONDecodeError):
            return None


class SlotBeat(_Beat):
    """What the node of a slot says of itself."""

    state: Literal["starting", "up", "leaving"]
    """``up``: Ray may use it. ``leaving``: its slot is to be given up."""
    host: str
    """Host name, as trials report it."""
    processes: tuple[int, ...] = ()
    """Processes below the node's."""


class DriverBeat(_Beat):
    """What the program that searches says of itself."""

    over: bool = False
    """Whether the search has ended, so that its nodes end at once."""


def slot_file(folder: Path, number: int) -> Path:
    """Return the file of a slot's node."""
    return folder / f"slot-{number}.json"


def driver_file(folder: Path) -> Path:
    """Return the file of the searching program."""
    return folder / "driver.json"


def token_file(folder: Path) -> Path:
    """Return the file of the token by which nodes join Ray's cluster; missing: Ray asks for none."""
    return folder / "ray_token"


def give_token(folder: Path, env: Mapping[str, str]) -> None:
    """Write the token of this process's Ray cluster for the nodes of its slots, readable for this account alone.

    Args:
        folder: of the search's files.
        env: the process's environment, in which ``ray.init`` has set whether there is a token.

    Raises:
        OSError: the token cannot be read or written.
    """
    if env.get("RAY_AUTH_MODE", "").lower() != "token":
        return
    named = env.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token"
    token = env.get("RAY_AUTH_TOKEN") or Path(named).read_text()
    file = os.open(token_file(folder), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(file, "w") as opened:  # noqa: PTH123 - the file is made with its rights
        opened.write(token.strip())


def token_variables(folder: Path) -> dict[str, str]:
    """Return the environment variables by which Ray's commands use the token of a search's cluster."""
    path = token_file(folder)
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(path)} if path.exists() else {}


class Pulse:
    """Tells by a monotonic clock how long a writer has been silent.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last: tuple[int, int] | None = None
        self._heard_at = clock()

    def silent_seconds(self, beat: _Beat | None) -> float:
        """Return the seconds since the last new beat, given what is read now."""
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
