"""The state of an app master as an append-only record: a complete state, and a log of the changes since.

``master.json`` holds a complete, numbered state. ``master.changes.jsonl`` has one line for each write since: the
number of the state that it follows, its own number, and differences. Once the log is as long as the state, and at the
start of each attempt, the present state replaces the old one, and a new log begins. Both files have a backup
(``.old``). Each line and each state has a checksum, so that the last complete entry before a damaged or truncated one
can be found.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from eunomia_appmaster.app.master_folders import CHANGES_FILE
from eunomia_appmaster.master.job_index import ChangedJobs, JobIndex
from eunomia_appmaster.node.json_changes import changed, difference
from eunomia_appmaster.node.kept_files import OLDER, opened, sealed
from eunomia_appmaster.node.system import MACHINE, System

MOST_LINE_BYTES = 1 << 28
"""Longest entry of a log that is read, in bytes."""
LEAST_LOG_BYTES = 64 * 1024
"""Bytes that a log may have even if the state is shorter."""
STATE = "state"
"""Key of a state's number; a state of an earlier version has neither a number nor a log."""


class LogRead(NamedTuple):
    """The result of reading a log."""

    entries: int
    """Number of entries that were applied."""
    number: int
    """The largest number of a state that occurs in the log."""
    complete: bool = True
    """Whether the log reached the newest state."""
    torn: bool = False
    """Whether the last line is incomplete, as after a kill, or the log has not begun."""
    damage: str = ""
    """What is wrong with the entry at which reading stopped; empty: nothing."""


class _Replay:
    """A state to which log entries are applied in place."""

    def __init__(self, state: dict[str, Any]) -> None:
        self.state = state
        self.entries = 0
        self.number = self._at = int(state.get(STATE, 0))
        self.begun = self.number == 0
        """Whether the state's log has begun; it has not after a kill before its first line, or if it was lost."""
        self._since = 0
        """Number of entries since the state with number ``_at``."""
        self._places = {int(job["number"]): place for place, job in enumerate(state["jobs"])}

    @property
    def complete(self) -> bool:
        """Whether the replay has reached the newest state that occurs in the log."""
        return self._at == self.number

    def take(self, line: bytes) -> None:
        """Apply a line of the log, unless it follows another state.

        Raises:
            ValueError: the line is damaged, or an entry before it is missing.
        """
        entry, summed = opened(line)
        if not summed:
            raise ValueError("its sum is gone")
        try:
            after, number = int(entry["after"]), int(entry["entry"])
            self.number = max(self.number, after)
            if number == 0 and entry["follows"] == [self._at, self._since]:
                self._at, self._since = after, 0  # no change before that state is missing, so its log continues here
            self.begun |= after == self._at
            if number == 0 or after != self._at:
                return
            if number != self._since + 1:
                raise ValueError(f"entry {self._since + 1} is missing")
            self._apply(entry)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(repr(error)) from error
        self._since = number
        self.entries += 1

    def _apply(self, entry: Mapping[str, Any]) -> None:
        state, jobs = self.state, self.state["jobs"]
        if "rest" in entry:
            rest = {key: content for key, content in state.items() if key not in ("jobs", STATE)}
            state |= changed(rest, entry["rest"])
        for job in entry.get("jobs", ()):
            place = self._places.setdefault(int(job["number"]), len(jobs))
            if place < len(jobs):
                jobs[place] |= job
            else:
                jobs.append(job)


def read_log(path: Path, state: dict[str, Any], *, older: bool = False) -> LogRead:
    """Apply the log next to a state's file, up to the first damaged entry.

    Args:
        path: path of the state's file.
        state: the state read from the file; changed in place.
        older: whether the state was read from the backup, so that the backup of the log is read first.
    """
    replay = _Replay(state)
    for name in (CHANGES_FILE + OLDER, CHANGES_FILE) if older else (CHANGES_FILE,):
        for line in _lines(path.with_name(name)):
            try:
                replay.take(line)
            except ValueError as error:
                torn = not line.endswith(b"\n")
                why = "" if torn else f"{name} is damaged after entry {replay.entries}: {error}"
                return LogRead(replay.entries, replay.number, replay.complete, torn, why)
    return LogRead(replay.entries, replay.number, replay.complete, torn=not replay.begun)


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            yield from iter(lambda: file.readline(MOST_LINE_BYTES), b"")
    except FileNotFoundError:
        return


class StateRecord:
    """Writes the state of an app master.

    Args:
        path: path of the complete state's file.
        jobs: the app's jobs.
        number: largest number of a state of earlier attempts; 0: none.
        system: files of the machine.
    """

    def __init__(self, path: Path, jobs: JobIndex, number: int = 0, *, system: System = MACHINE) -> None:
        self._path, self._jobs, self._system = path, jobs, system
        self._log = path.with_name(CHANGES_FILE)
        self._number = number
        self._changed: ChangedJobs = jobs.follow()
        self._with_gang: dict[int, dict[str, Any]] = {}
        """The jobs that had a gang at the last write, with their values at that time."""
        self._rest: dict[str, Any] | None = None
        """The state without its jobs at the last write; None: the next write is a complete state."""
        self._rest_text = ""
        self._entries = self._log_bytes = self._state_bytes = 0

    def write(self, rest: Mapping[str, Any]) -> None:
        """Write the changes since the last write.

        Args:
            rest: the state without its jobs.

        Raises:
            OSError: the write failed; the next write is a complete state.
        """
        text = json.dumps(rest, allow_nan=False)
        try:
            follows = None
            if self._rest is not None:
                self._append(text)
                follows = [self._number, self._entries]
            if self._rest is None or self._log_bytes > max(LEAST_LOG_BYTES, self._state_bytes):
                self._write_whole(text, follows)
        except BaseException:
            self._rest = None
            raise

    def _append(self, text: str) -> None:
        jobs = list(self._job_entries())
        entry: dict[str, Any] = {"after": self._number, "entry": self._entries + 1}
        if jobs:
            entry["jobs"] = jobs
        if text != self._rest_text:
            rest = json.loads(text)
            by = difference(self._rest, rest)
            self._rest, self._rest_text = rest, text
            if by is not None:
                entry["rest"] = by
        if len(entry) == 2:
            return
        line = sealed(entry)
        self._system.append_line(self._log, line, sync=True)
        self._entries += 1
        self._log_bytes += len(line) + 1

    def _job_entries(self) -> Iterator[dict[str, Any]]:
        """Yield the changed jobs: only the keys that differ for jobs that had a gang, complete jobs otherwise."""
        moved = {job.number: job for job in (*self._changed.take(), *self._jobs.with_gang())}
        before, self._with_gang = self._with_gang, {}
        for number, job in sorted(moved.items()):
            now = job.to_json()
            then = before.get(number)
            if job.gang is not None:
                self._with_gang[number] = now
            if then is None:
                yield now
            elif then != now:
                yield {"number": number} | {key: item for key, item in now.items() if then[key] != item}

    def _write_whole(self, text: str, follows: list[int] | None) -> None:
        """Replace the state's file by the complete state, and begin a new log."""
        self._changed.take()
        jobs = [job.to_json() for job in self._jobs.values()]
        self._with_gang = {job.number: job.to_json() for job in self._jobs.with_gang()}
        whole = json.loads(text)
        self._number += 1
        state = sealed({STATE: self._number, **whole, "jobs": jobs})
        self._system.replace_file(self._path, state, older=True)
        begin = sealed({"after": self._number, "entry": 0, "follows": follows})
        self._system.replace_file(self._log, begin + "\n", older=True)
        self._rest, self._rest_text = whole, text
        self._entries, self._log_bytes, self._state_bytes = 0, 0, len(state)
