"""Reads the job events that app masters record in ``activity/a2-g1.jsonl`` in an app's folder."""

import dataclasses
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import structlog

from eunomia_appmaster.app.master_folders import activity_files
from eunomia_appmaster.node.file_rights import reading_as_owner
from eunomia_appmaster.node.kept_files import opened

log = structlog.get_logger()

ENDS = frozenset({"suspended", "paused", "finished", "stopped", "failed"})
"""Events after which the job has no process on its slots."""

START = "start"
"""Event of a job that is started: its processes do not exist yet."""

RUNS = frozenset({"running", "resumed"})
"""Events after which the job's processes exist."""

RESIZED = "resized"
"""Event after which the job's processes exist on the line's slots alone, without a restart."""

CHANGE = "change"
"""Event of a part of a live change: its order, or that its newcomers are ready."""
_ORDER = re.compile(r"\w+ \d+ -> (\d+) ordered")
"""Beginning of the text of an order: ``grow 2 -> 4 ordered``, which the reason follows."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """An event of a job: ``event`` is its name, as the app master writes it; ``at`` is its Unix time in seconds."""

    at: float
    app: str
    job: str
    event: str
    slots: tuple[int, ...]
    step: int
    incarnation: int
    why: str = ""
    """Reason of an end; empty: not recorded."""
    pause_seconds: float | None = None
    """Seconds for which the job stood still in a live change; None: there was none."""

    @property
    def ordered_size(self) -> int | None:
        """The number of slots that a live change orders for its job; None: the line is not such an order."""
        found = _ORDER.match(self.why) if self.event == CHANGE else None
        return None if found is None else int(found[1])


class ActivityLog:
    """Reads the events of one app while they are written; an incomplete last line is read once it is complete.

    A root process reads the files with the rights of the folder's owner, so that links in it give no further access.

    Args:
        app_dir: folder of the app, with one file for each attempt of its app master.
        app: name of the app.
    """

    def __init__(self, app_dir: Path, app: str) -> None:
        self._app_dir = app_dir
        self._app = app
        self._offsets: dict[Path, int] = {}

    def poll(self) -> list[Line]:
        """Return the lines written since the last call, those of older attempts first."""
        new = reading_as_owner(self._app_dir, lambda: [*map(self._new, activity_files(self._app_dir))])
        return [line for lines in new for line in lines]

    def _new(self, path: Path) -> list[Line]:
        offset = self._offsets.get(path, 0)
        try:
            with path.open("rb") as file:
                file.seek(offset)
                text = file.read()
        except OSError:  # it does not exist yet, or is a user's link to a file that the user may not read
            return []
        whole = text[: text.rfind(b"\n") + 1]
        self._offsets[path] = offset + len(whole)
        return list(self._lines(whole, path))

    def _lines(self, text: bytes, path: Path) -> Iterator[Line]:
        for line in text.splitlines():
            try:
                plain, _ = opened(line)
                yield Line(
                    at=datetime.fromisoformat(plain["t"]).timestamp(),
                    app=self._app,
                    job=str(plain["job"]),
                    event=str(plain["event"]),
                    slots=tuple(map(int, plain["slots"])),
                    step=int(plain["step"]),
                    incarnation=int(plain["incarnation"]),
                    why=str(plain.get("why", "")),
                    pause_seconds=None if plain.get("pause_seconds") is None else float(plain["pause_seconds"]),
                )
            except (ValueError, KeyError, TypeError):
                # an incomplete line, whose writer was killed, or a damaged one
                log.warning("activity.line_left_out", place=str(path), line=line[:200].decode(errors="replace"))
