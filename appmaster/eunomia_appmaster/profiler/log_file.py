"""A growing event file; each poll reads the records that have been completed since the last one."""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from eunomia_appmaster.profiler.events import Batch, BatchBuilder, Tags
from eunomia_appmaster.profiler.findings import Finding, FindingKind
from eunomia_appmaster.profiler.records import (
    FEW_RECORDS,
    FOOTER_BYTES,
    FRAME_BYTES,
    HEADER_BYTES,
    Frames,
    columns,
    columns_fit,
    data_fit,
    find_record,
    walk,
)

_LARGEST_WINDOW = 1 << 21
_SMALLEST_WINDOW = 1 << 12
_HEAD_BYTES = 64
_NO_STEPS = np.empty(0, dtype=np.int64)
_NO_NUMBERS = np.empty(0, dtype=np.float64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Columns:
    """Points of one tag in the order written: step (n,) int64; wall_time (n,), Unix seconds, and value (n,) float64."""

    step: NDArray[np.int64]
    wall_time: NDArray[np.float64]
    value: NDArray[np.float64]


class LogFile:
    """The points of one event file and how far it has been read.

    ``points`` has the columns by tag; ``purges`` has the steps from which on sessions of this file invalidate the
    points of older writers (``purge_step``).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.points: dict[str, list[Columns]] = {}
        self.purges: list[int] = []
        self._seen: tuple[int, int, int, int] | None = None
        self._failed = False
        self._head = b""
        self._begin()

    def _begin(self) -> None:
        self.points.clear()
        self.purges.clear()
        self._tags = Tags()
        self._offset = 0  # byte of the first record not read yet, or from which the next good one is searched
        self._whole_at = FRAME_BYTES  # file size from which a further read can find a whole record
        self._bad_from: int | None = None  # first byte of a corrupt stretch whose end is being searched
        self._reported_from: int | None = None  # first byte of the last corrupt stretch that was reported

    def poll(self, stat: os.stat_result) -> tuple[list[tuple[str, Columns]], list[Finding]]:
        """Read the new records; ``stat`` is the file's present status.

        Returns:
            New points by tag (a tag may occur several times), and findings; both are empty if the file is unchanged.
        """
        seen = (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns)
        if seen == self._seen and not self._failed:
            return [], []
        new: list[tuple[str, Columns]] = []
        findings: list[Finding] = []
        try:
            with self.path.open("rb", buffering=0) as file:
                self._notice_replacement(file.fileno(), seen, findings)
                self._seen = seen
                self._read(file.fileno(), stat.st_size, new, findings)
            self._failed = False
        except OSError as error:
            if not self._failed:
                rule = "a log file must be readable"
                findings.append(self._finding(FindingKind.FILE_UNREADABLE, rule, str(error.strerror)))
            self._failed = True
        return new, findings

    def column(self, tag: str) -> Columns:
        """Return all points of one tag in the order written."""
        parts = self.points.get(tag, [])
        if len(parts) != 1:
            parts = [
                Columns(
                    step=np.concatenate([_NO_STEPS, *(part.step for part in parts)]),
                    wall_time=np.concatenate([_NO_NUMBERS, *(part.wall_time for part in parts)]),
                    value=np.concatenate([_NO_NUMBERS, *(part.value for part in parts)]),
                )
            ]
            if tag in self.points:
                self.points[tag] = parts
        return parts[0]

    def _notice_replacement(self, file: int, seen: tuple[int, int, int, int], findings: list[Finding]) -> None:
        """Start over if the file was replaced or truncated."""
        head = os.pread(file, _HEAD_BYTES, 0)
        if self._seen is not None:
            shorter = min(len(head), len(self._head))
            if seen[:2] != self._seen[:2] or head[:shorter] != self._head[:shorter]:
                rule = "a log file must stay the same file; its points are read again"
                findings.append(self._finding(FindingKind.FILE_REPLACED, rule, "another file of the same name"))
                self._begin()
            elif seen[2] < self._seen[2]:
                rule = f"a log file must not shrink (it had {self._seen[2]} bytes); its points are read again"
                findings.append(self._finding(FindingKind.FILE_SHRANK, rule, f"{seen[2]} bytes"))
                self._begin()
        self._head = head

    # -- windows

    def _read(self, file: int, size: int, new: list[tuple[str, Columns]], findings: list[Finding]) -> None:
        """Read window after window until ``size``, or until the next record is incomplete."""
        window = _LARGEST_WINDOW
        while self._whole_at <= size:
            data = os.pread(file, max(window, self._whole_at - self._offset), self._offset)
            before = self._offset, self._bad_from
            at_end = self._offset + len(data) >= size
            if self._bad_from is None:
                self._follow(data, at_end, new, findings)
            else:
                self._search(data, findings)
            if self._bad_from != before[1]:
                window = _SMALLEST_WINDOW  # so that little is read twice in a file with many corrupt records
            elif at_end and self._offset == before[0]:
                break
            else:
                window = min(2 * window, _LARGEST_WINDOW)
        if self._bad_from is not None:
            self._report_corrupt(self._bad_from, None, findings)

    def _follow(self, data: bytes, at_end: bool, new: list[tuple[str, Columns]], findings: list[Finding]) -> None:
        """Process the records at the beginning of ``data``; at a corrupt record, start to search for a valid one."""
        frames = walk(data)
        bad = self._take(data, frames, new, findings)
        stretches = _stretches(bad, frames)
        end, unfinished = frames.end, None
        if stretches and stretches[-1][1] == end and not frames.next_fits:
            # Only a valid next header shows that the length of the last corrupt record is right.
            unfinished = stretches.pop()[0]
        for first, last in stretches:
            self._report_corrupt(self._offset + first, self._offset + last, findings)
        if frames.next_fits is False and not (at_end and not any(data[end:])):  # zeros: not written yet
            self._bad_from = self._offset + (end if unfinished is None else unfinished)
            self._offset, self._whole_at = self._bad_from + 1, self._bad_from + 1 + FRAME_BYTES
            return
        self._whole_at = self._offset + frames.whole_at
        if unfinished is not None:
            self._whole_at = self._offset + end + HEADER_BYTES
            if at_end:
                self._report_corrupt(self._offset + unfinished, None, findings)
            end = unfinished
        self._offset += end

    def _search(self, data: bytes, findings: list[Finding]) -> None:
        """Advance to the next valid record, or to the first position where one may begin."""
        place, whole_at, found = find_record(data)
        self._whole_at = self._offset + whole_at
        self._offset += place
        if found and self._bad_from is not None:
            self._report_corrupt(self._bad_from, self._offset, findings)
            self._bad_from = None

    # -- records

    def _take(
        self, data: bytes, frames: Frames, new: list[tuple[str, Columns]], findings: list[Finding]
    ) -> NDArray[np.int64]:
        """Store the scalars of the records whose data match their CRC; returns the indices of the others."""
        builder, bad = BatchBuilder(self._tags), []
        for length in np.unique(frames.lengths).tolist():
            group = np.flatnonzero(frames.lengths == length)
            if len(group) < FEW_RECORDS:
                for record, start in zip(group.tolist(), frames.starts[group].tolist(), strict=True):
                    if data_fit(data, start, length):
                        builder.add(record, data[start : start + length])
                    else:
                        bad.append(record)
                continue
            strings = columns(data, frames.starts[group], length + FOOTER_BYTES)
            fit = columns_fit(strings)
            if not fit.all():
                bad.extend(group[~fit].tolist())
                group, strings = group[fit], strings[:, fit]
            builder.add_group(group, strings[:-FOOTER_BYTES])
        offsets = frames.starts + (self._offset - HEADER_BYTES)
        self._keep(builder.build(), offsets, new, findings)
        return np.array(sorted(bad), dtype=np.int64)

    def _keep(
        self, batch: Batch, offsets: NDArray[np.int64], new: list[tuple[str, Columns]], findings: list[Finding]
    ) -> None:
        """Append the points by tag; ``offsets``: bytes of the records in the file, for findings."""
        self.purges.extend(batch.purges)
        for record in batch.malformed:
            rule = "a record of a log file must hold an Event"
            kind = FindingKind.MALFORMED_EVENT
            findings.append(self._finding(kind, rule, "other bytes, skipped", offset=int(offsets[record])))
        order = np.argsort(batch.tag, kind="stable")
        tags = batch.tag[order]
        for rows in np.split(order, np.flatnonzero(np.diff(tags)) + 1):
            if not len(rows):
                continue
            tag = self._tags.names[int(batch.tag[rows[0]])]
            points = Columns(step=batch.step[rows], wall_time=batch.wall_time[rows], value=batch.value[rows])
            self._check(tag, points, offsets[batch.record[rows]], findings)
            self.points.setdefault(tag, []).append(points)
            new.append((tag, points))

    def _check(self, tag: str, points: Columns, offsets: NDArray[np.int64], findings: list[Finding]) -> None:
        odd = np.flatnonzero(~np.isfinite(points.value))
        if len(odd):
            value = f"{points.value[odd[0]]} at step {points.step[odd[0]]}{_and_more(len(odd))}"
            rule, offset = "a logged value must be finite (it is kept)", int(offsets[odd[0]])
            findings.append(self._finding(FindingKind.NOT_FINITE, rule, value, offset=offset, tag=tag))
        known = self.points.get(tag)
        before = np.concatenate([known[-1].step[-1:] if known else points.step[:1], points.step[:-1]])
        back = np.flatnonzero(points.step < before)
        if len(back):
            value = f"step {points.step[back[0]]} after step {before[back[0]]}{_and_more(len(back))}"
            rule, offset = "steps must not go back within one writer (the last value wins)", int(offsets[back[0]])
            findings.append(self._finding(FindingKind.STEPS_BACKWARDS, rule, value, offset=offset, tag=tag))

    # -- findings

    def _report_corrupt(self, first: int, end: int | None, findings: list[Finding]) -> None:
        """Report a corrupt part of the file once: when its end is known, or at the end of the file."""
        if first == self._reported_from:
            return
        self._reported_from = first
        rule = "the lengths and data of records must fit their CRCs"
        value = "no whole record after this byte yet" if end is None else f"{end - first} bytes that do not, skipped"
        findings.append(self._finding(FindingKind.CORRUPT_RECORD, rule, value, offset=first))

    def _finding(
        self, kind: FindingKind, rule: str, value: str, *, offset: int | None = None, tag: str | None = None
    ) -> Finding:
        return Finding(kind=kind, rule=rule, value=value, path=self.path, offset=offset, tag=tag)


def _stretches(bad: NDArray[np.int64], frames: Frames) -> list[tuple[int, int]]:
    """Return the first byte and the end of each run of adjacent bad records."""
    if not len(bad):
        return []
    runs = np.split(bad, np.flatnonzero(np.diff(bad) > 1) + 1)
    ends = frames.starts + frames.lengths + FOOTER_BYTES
    return [(int(frames.starts[run[0]]) - HEADER_BYTES, int(ends[run[-1]])) for run in runs]


def _and_more(count: int) -> str:
    return f" and {count - 1} more" if count > 1 else ""
