"""The log folder of one job: the points of each tag from all its event files."""

import os
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from eunomia.errors import InputError
from eunomia_appmaster.profiler.findings import Finding, FindingKind
from eunomia_appmaster.profiler.log_file import Columns, LogFile
from eunomia_appmaster.profiler.writers import is_event_file, number_writers


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Series:
    """Points of one tag: step (n,) int64, wall_time (n,) float64 (Unix seconds), value (n,) float64, writer (n,) int64.

    Values may be NaN or infinite. A writer is an incarnation of the job (``number_writers``).
    """

    step: NDArray[np.int64]
    wall_time: NDArray[np.float64]
    value: NDArray[np.float64]
    writer: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.step)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Poll:
    """The result of one poll: new points by tag in the order read, including superseded ones, and findings."""

    points: dict[str, Series]
    findings: tuple[Finding, ...]


class LogFolder:
    """Reads the event files of one folder while they grow; sub-folders are not read.

    The folder may be absent until its first file is written.

    Args:
        path: the folder, such as a job's ``logs/``.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._files: dict[str, LogFile] = {}
        self._gone: set[str] = set()
        self._writers: dict[str, int] = {}
        self._failed = False

    def poll(self) -> Poll:
        """Read the new points of all files. A file that did not change costs one ``stat``.

        An unreadable folder is reported as a finding, once; the next poll tries to read it again.

        Raises:
            InputError: the path is not a folder.
        """
        findings: list[Finding] = []
        new: dict[str, list[tuple[str, Columns]]] = {}
        for name, stat in self._scan(findings).items():
            points, found = self._files[name].poll(stat)
            findings += found
            if points:
                new[name] = points
        return Poll(points=self._join(new), findings=tuple(findings))

    def tags(self) -> list[str]:
        """Return the tags seen so far, sorted."""
        return sorted({tag for file in self._files.values() for tag in file.points})

    def series(self, tag: str) -> Series:
        """Return the valid points of a tag: steps ascending, one value per step; empty for an unknown tag.

        A newer writer supersedes the points of older ones from its first step of this tag on, and from its
        ``purge_step`` on. Within a writer the last value of a step wins.
        """
        writers = self._columns(tag)
        parts: list[Series] = []
        undone_from = np.iinfo(np.int64).max
        for writer, points in reversed(writers.items()):
            parts.insert(0, _last_of_each_step(writer, points, undone_from))
            purges = [step for name in self._names(writer) for step in self._files[name].purges]
            undone_from = min([undone_from, *purges, *points.step.min(initial=undone_from, keepdims=True).tolist()])
        return _concatenate(parts)

    def as_written(self, tag: str, *, writer: int) -> Series:
        """Return all points of one writer and tag in the order written, including superseded ones."""
        points = self._columns(tag).get(writer)
        return _concatenate([] if points is None else [_series(writer, points)])

    def writers(self) -> list[int]:
        """Return the writers of the files seen so far, oldest first."""
        return sorted(set(self._writers.values()))

    # -- files

    def _scan(self, findings: list[Finding]) -> dict[str, os.stat_result]:
        """Return the present event files in order of their writers, and update which files exist."""
        stats: dict[str, os.stat_result] = {}
        try:
            with os.scandir(self.path) as entries:
                for entry in entries:
                    if is_event_file(entry.name):
                        _add_stat(entry, stats)
        except FileNotFoundError:
            pass  # nothing is written yet; files that are known already are reported as gone
        except NotADirectoryError as error:
            raise InputError("a log folder must be a folder", value="a file", place=str(self.path)) from error
        except OSError as error:
            self._note_failure(error, findings)
            return {}
        self._failed = False
        if stats.keys() != self._files.keys() - self._gone:
            self._note_changes(stats, findings)
        return {name: stats[name] for name in self._writers if name in stats}

    def _note_failure(self, error: OSError, findings: list[Finding]) -> None:
        if not self._failed:
            rule, value = "a log folder must be readable", str(error.strerror)
            findings.append(Finding(kind=FindingKind.FILE_UNREADABLE, rule=rule, value=value, path=self.path))
        self._failed = True

    def _note_changes(self, stats: dict[str, os.stat_result], findings: list[Finding]) -> None:
        for name in stats.keys() - self._files.keys():
            self._files[name] = LogFile(self.path / name)
        gone = self._files.keys() - stats.keys()
        rule = "a log file must stay (its points are kept)"
        for name in sorted(gone - self._gone):
            path = self.path / name
            findings.append(Finding(kind=FindingKind.FILE_GONE, rule=rule, value="no such file", path=path))
        self._gone = set(gone)
        self._writers = number_writers(self._files)

    def _names(self, writer: int) -> list[str]:
        return [name for name, number in self._writers.items() if number == writer]

    def _columns(self, tag: str) -> dict[int, Columns]:
        """Return the points of a tag by writer, oldest first, also of a writer without points, which may purge."""
        return {
            writer: _join_columns([self._files[n].column(tag) for n in self._names(writer)])
            for writer in self.writers()
        }

    def _join(self, new: dict[str, list[tuple[str, Columns]]]) -> dict[str, Series]:
        parts: dict[str, list[Series]] = defaultdict(list)
        for name, points in new.items():
            for tag, found in points:
                parts[tag].append(_series(self._writers[name], found))
        return {tag: _concatenate(found) for tag, found in parts.items()}


def _add_stat(entry: "os.DirEntry[str]", stats: dict[str, os.stat_result]) -> None:
    with suppress(OSError):  # deleted meanwhile, or a dangling link
        if entry.is_file():
            stats[entry.name] = entry.stat()


def _series(writer: int, points: Columns) -> Series:
    numbers = np.full(len(points.step), writer, dtype=np.int64)
    return Series(step=points.step, wall_time=points.wall_time, value=points.value, writer=numbers)


def _last_of_each_step(writer: int, points: Columns, undone_from: int) -> Series:
    step = points.step
    rows = np.arange(len(step))
    if (step[1:] <= step[:-1]).any():
        rows = np.argsort(step, kind="stable")
        ordered = step[rows]
        rows = rows[np.append(ordered[1:] != ordered[:-1], True)[: len(rows)]]
    rows = rows[step[rows] < undone_from]
    return _series(writer, Columns(step=step[rows], wall_time=points.wall_time[rows], value=points.value[rows]))


def _join_columns(parts: list[Columns]) -> Columns:
    if len(parts) == 1:
        return parts[0]
    return Columns(
        step=np.concatenate([part.step for part in parts]),
        wall_time=np.concatenate([part.wall_time for part in parts]),
        value=np.concatenate([part.value for part in parts]),
    )


def _concatenate(parts: list[Series]) -> Series:
    if len(parts) == 1:
        return parts[0]
    no_steps, no_numbers = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float64)
    return Series(
        step=np.concatenate([no_steps, *(part.step for part in parts)]),
        wall_time=np.concatenate([no_numbers, *(part.wall_time for part in parts)]),
        value=np.concatenate([no_numbers, *(part.value for part in parts)]),
        writer=np.concatenate([no_steps, *(part.writer for part in parts)]),
    )
