"""Reads the activities of jobs on their slots from the events that the app masters have noted."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path

import structlog

from eunomia_appmaster.app.master_folders import activity_files
from eunomia_appmaster.node.file_rights import reading_as_owner
from eunomia_appmaster.node.kept_files import opened

log = structlog.get_logger()

ENDS = frozenset({"suspended", "paused", "finished", "stopped", "failed"})
"""Events after which the job has no process on its slots."""

RUNS = frozenset({"running", "resumed"})
"""Events after which the job's processes exist."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """An event of a job: ``event`` is the app master's name for it, ``at`` is Unix time."""

    at: float
    app: str
    job: str
    event: str
    slots: tuple[int, ...]
    step: int
    incarnation: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """An activity of a job on its slots: start, restore, run or save, with Unix times."""

    app: str
    job: str
    slots: tuple[int, ...]
    start: float
    end: float
    activity: str


class ActivityLog:
    """Reads the events of one app while they grow; an incomplete last line is read once it is complete.

    For root, they are read with the rights of the folder's owner, so that no link there leads further.

    Args:
        app_dir: folder of the app, with a file for each attempt of its app master.
        app: its name.
    """

    def __init__(self, app_dir: Path, app: str) -> None:
        self._app_dir = app_dir
        self._app = app
        self._offsets: dict[Path, int] = {}

    def poll(self) -> list[Line]:
        """Return the new lines, those of older attempts first."""
        new = reading_as_owner(self._app_dir, lambda: [*map(self._new, activity_files(self._app_dir))])
        return [line for lines in new for line in lines]

    def _new(self, path: Path) -> list[Line]:
        offset = self._offsets.get(path, 0)
        try:
            with path.open("rb") as file:
                file.seek(offset)
                text = file.read()
        except OSError:  # not there yet, or a link of a user to what it may not read
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
                )
            except (ValueError, KeyError, TypeError):
                # half a line, whose writer was killed, or a damaged one
                log.warning("activity.line_left_out", place=str(path), line=line[:200].decode(errors="replace"))


def from_first_steps(lines: Sequence[Line], first_steps: Mapping[tuple[str, int], float]) -> list[Line]:
    """Return the lines with a job running from the end of its first step on, where that is known and later.

    The app master takes a job for running once its process stands; it may still import its modules and read its data.

    Args:
        lines: all lines of the run, in the order of their times.
        first_steps: Unix time of the end of the first step, by job and incarnation.
    """
    made, following = list(lines), dict[str, float]()
    for at in reversed(range(len(made))):
        line = made[at]
        if line.event in RUNS:
            first = first_steps.get((line.job, line.incarnation), line.at)
            made[at] = dataclasses.replace(line, at=max(line.at, min(first, following.get(line.job, first))))
        if _activity(line) is not None:
            following[line.job] = line.at
    return made


def segments(lines: Sequence[Line], until: float) -> list[Segment]:
    """Return each job's activities with their times; one without an end lasts until the next start, or ``until``."""
    made: list[Segment] = []
    for job in dict.fromkeys(line.job for line in lines):
        made += _of_job([line for line in lines if line.job == job], until)
    return sorted(made, key=lambda each: each.start)


def _of_job(lines: Sequence[Line], until: float) -> Iterator[Segment]:
    doing: tuple[str, float, tuple[int, ...]] | None = None
    first = lines[0]
    for line in [*lines, dataclasses.replace(first, at=until, event="stopped")]:
        activity = _activity(line)
        if activity is None:
            continue
        if doing is not None and line.at > doing[1]:
            name, start, slots = doing
            yield Segment(app=line.app, job=line.job, slots=slots, start=start, end=line.at, activity=name)
        slots = line.slots or (doing[2] if doing else ())
        doing = None if line.event in ENDS else (activity, line.at, slots)


def _activity(line: Line) -> str | None:
    """Return the job's activity after this event; None: the event does not change it."""
    match line.event:
        case "start":
            return "restore" if line.step else "start"
        case event if event in RUNS:
            return "run"
        case "suspending" | "stalled":
            return "save"
        case event if event in ENDS:
            return ""
        case _:
            return None
