"""Checkpoints of one writer: written atomically, verified on read; the last good ones are kept.

A checkpoint is two files in the writer's folder: the data, ``000096.pt``, and its record, ``000096.json`` (step,
sha256, bytes, incarnation, saved_at, the metric if the checkpoint is kept for it, and a checksum of the record). The
record is renamed into place last, so a checkpoint with a record is complete. A folder has one writer (rank 0 of an
incarnation) and any number of readers, which change nothing in it.
"""

import hashlib
import json
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

import structlog

from eunomia.errors import EunomiaError, InputError
from eunomia_appmaster.node.kept_files import opened, sealed

_log = structlog.get_logger()
_READ_ATTEMPTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A complete checkpoint: file, size in bytes, SHA-256 and step; ``saved_at`` is in Unix seconds."""

    step: int
    path: Path
    sha256: str
    bytes: int
    incarnation: int
    saved_at: float
    metric: float | None = None
    """The tuner's metric at that step, if the checkpoint is kept for its metric; else None."""


class CheckpointError(EunomiaError):
    """A checkpoint cannot be used (it is corrupt or incomplete), or was not written."""


class CheckpointStore:
    """The checkpoints of one writer in ``folder``; the newest ``keep`` good ones are kept.

    Newest means the latest incarnation first, then the highest step: an incarnation that had to resume from an earlier
    step replaces the checkpoints after that step. Files with other names in the folder are not touched.

    Args:
        folder: the folder, created at the first save.
        keep: how many good checkpoints to keep, at least 1.
        owned: whether this is the writer, which renames corrupt checkpoints; a reader skips them.
        also: steps whose checkpoints are looked up by name, even if the folder's listing lacks them.

    Raises:
        InputError: ``keep`` is less than 1.
    """

    def __init__(self, folder: Path, *, keep: int = 2, owned: bool = True, also: Iterable[int] = ()) -> None:
        if keep < 1:
            raise InputError("a checkpoint store must keep at least 1 checkpoint", value=str(keep), place=str(folder))
        self.folder = folder
        self.keep = keep
        self.faults: list[CheckpointError] = []
        self.digests: dict[tuple[str, int, int, int], str] = {}
        """SHA-256 of files by their identity, so that an unchanged file is hashed only once; stores may share it."""
        self.good_kept = 0
        """Number of good checkpoints after the last save, at most ``keep``."""
        self._owned = owned
        self._also = tuple(also)

    def save(
        self, step: int, write: Callable[[Path], None], *, incarnation: int, metric: float | None = None
    ) -> Checkpoint:
        """Write a checkpoint atomically and drop the oldest beyond ``keep``.

        Args:
            step: the optimizer step of the saved state.
            write: writes the data to the path given to it (a temporary file in the same folder).
            incarnation: number of the job's incarnation that writes, from 1.
            metric: a finite value of the tuner's metric for the record; None: the record has no metric.

        Raises:
            InputError: ``step`` or ``incarnation`` is negative.
            CheckpointError: ``write`` left no file.
            OSError: a write failed. Exceptions of ``write`` propagate. Earlier checkpoints stay unchanged.
        """
        if step < 0 or incarnation < 0:
            raise InputError(
                "step and incarnation of a checkpoint must not be negative",
                value=f"step {step}, incarnation {incarnation}",
                place=str(self.folder),
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        self._clean_leftovers()
        mark = f"{os.getpid()}.{uuid.uuid4().hex[:8]}.tmp"
        data, record = self.folder / f".{step:06d}.pt.{mark}", self.folder / f".{step:06d}.json.{mark}"
        try:
            write(data)
            checkpoint = self._measure(data, step, incarnation, metric)
            _write_synced(record, _to_json(checkpoint))
            data.replace(checkpoint.path)
            sync_folder(self.folder)
            record.replace(_record_of(checkpoint.path))
            sync_folder(self.folder)
        except BaseException:
            # Once the data has its final name, the temporary record suffices to read it: `_clean_leftovers` or a reader
            # completes the save.
            if data.exists():
                data.unlink()
                record.unlink(missing_ok=True)
            raise
        self.digests[_identity(checkpoint.path)] = checkpoint.sha256
        self._retain(checkpoint)
        return checkpoint

    def adopt(self, found: Checkpoint, *, before: int) -> Checkpoint | None:
        """Link another writer's checkpoint into this folder; if the file system has no links, copy it.

        Args:
            found: the checkpoint.
            before: this writer's incarnation, whose own checkpoints are newer even if their steps are lower.

        Returns:
            The linked checkpoint; None: its writer has replaced it meanwhile.

        Raises:
            FileNotFoundError: the checkpoint's writer, or a newer one, has deleted it meanwhile.
            OSError: a write failed.
        """
        adopted = replace(found, path=self.folder / found.path.name, incarnation=min(found.incarnation, before - 1))
        record = self.folder / f".{found.path.stem}.json.{os.getpid()}.{uuid.uuid4().hex[:8]}.tmp"
        _link(found.path, adopted.path)
        try:
            self._check(adopted)
        except CheckpointError:
            adopted.path.unlink()
            return None
        _write_synced(record, _to_json(adopted))
        record.replace(_record_of(adopted.path))
        sync_folder(self.folder)
        return adopted

    def latest(self) -> Checkpoint | None:
        """Return the newest checkpoint whose size and SHA-256 match its record; None: there is none.

        A corrupt checkpoint is logged as ``checkpoint.corrupt`` and added to ``faults``, and the next older one is
        tried. If this is the writer, it also renames the corrupt one (appends ``.corrupt`` to its names).
        """
        for record in self._records():
            checkpoint = self._verify(record)
            if checkpoint is not None:
                return checkpoint
        return None

    def good(self) -> list[Checkpoint]:
        """Return all checkpoints whose data match their record, newest first; corrupt ones as in ``latest``."""
        return [found for record in list(self._records()) if (found := self._verify(record)) is not None]

    def steps(self) -> list[int]:
        """Return the steps that have a checkpoint, ascending, without verifying the checkpoints."""
        return sorted(int(record.stem) for record in self._record_paths())

    # -- reading

    def _record_paths(self) -> list[Path]:
        found = {path for path in self._named("*.json") if path.stem.isdecimal()}
        found |= {path for step in self._also if (path := self.folder / f"{step:06d}.json").exists()}
        return sorted(found)

    def _named(self, pattern: str) -> list[Path]:
        try:
            return list(self.folder.glob(pattern))
        except FileNotFoundError:  # a newer writer has deleted the folder
            return []

    def _records(self) -> Iterator[Path]:
        """Yield the records, newest first, but unreadable ones before all others, so that they are reported."""

        def age(record: Path) -> tuple[float, int]:
            try:
                return _read_record(record).incarnation, int(record.stem)
            except (CheckpointError, OSError):
                return float("inf"), int(record.stem)

        yield from sorted(self._record_paths(), key=age, reverse=True)

    def _verify(self, record: Path) -> Checkpoint | None:
        """Return the checkpoint of a record if it is good; else rename it (as its writer), report it, return None."""
        fault: CheckpointError | None = None
        for _ in range(_READ_ATTEMPTS):
            before = _content(record)
            if before is None:
                return None  # the writer has deleted it meanwhile
            try:
                checkpoint = _read_record(record)
                self._check(checkpoint)
                return checkpoint
            except CheckpointError as error:
                fault = error
            completed = self._interrupted(record)
            if completed is not None:
                return completed
            if _content(record) == before:
                break  # no process is writing it: it is corrupt
        if fault is not None and _content(record) is not None:
            self._set_aside(record, fault)
        return None

    def _check(self, checkpoint: Checkpoint) -> None:
        """Check that the data match the record; an unchanged file is hashed only once.

        Raises:
            CheckpointError: the data and the record do not match.
        """
        path, place = checkpoint.path, str(checkpoint.path)
        try:
            size = path.stat().st_size
            if size != checkpoint.bytes:
                rule = f"a checkpoint must have the size in its record, {checkpoint.bytes} bytes"
                raise CheckpointError(rule, value=f"{size} bytes", place=place)
            identity = _identity(path)
            digest = self.digests.get(identity) or _sha256(path)
        except OSError as error:
            raise CheckpointError(
                "the data of a checkpoint must be readable", value=str(error.strerror), place=place
            ) from error
        if digest != checkpoint.sha256:
            rule = f"a checkpoint must have the SHA-256 in its record, {checkpoint.sha256}"
            raise CheckpointError(rule, value=digest, place=place)
        self.digests[identity] = digest

    def _interrupted(self, record: Path) -> Checkpoint | None:
        """Return the checkpoint of a save that was interrupted, or is in progress, between its two renames."""
        for leftover in self._named(f".{record.stem}.json.*.tmp"):
            with suppress(CheckpointError, OSError):
                checkpoint = _read_record(leftover, stem=record.stem)
                self._check(checkpoint)
                return checkpoint
        return None

    def _set_aside(self, record: Path, fault: CheckpointError) -> None:
        for path in (record.with_suffix(".pt"), record) if self._owned else ():
            with suppress(OSError):
                path.rename(_free_name(path))
        self.faults.append(fault)
        _log.error("checkpoint.corrupt", rule=fault.rule, value=fault.value, place=fault.place)

    # -- writing

    def _measure(self, data: Path, step: int, incarnation: int, metric: float | None) -> Checkpoint:
        """Flush the data to the disk and return their checkpoint, under its final name."""
        if not data.is_file():
            rule = "the function that writes a checkpoint must leave a file at the path given to it"
            raise CheckpointError(rule, value="none", place=str(data))
        sync_file(data)
        return Checkpoint(
            step=step,
            path=self.folder / f"{step:06d}.pt",
            sha256=_sha256(data),
            bytes=data.stat().st_size,
            incarnation=incarnation,
            saved_at=time.time(),
            metric=metric,
        )

    def _clean_leftovers(self) -> None:
        """Complete saves that stopped between their renames, and delete the files of other unfinished saves."""
        for leftover in self._named(".*.json.*.tmp"):
            stem = leftover.name.split(".")[1]
            try:
                self._check(_read_record(leftover, stem=stem))
                leftover.replace(self.folder / f"{stem}.json")
            except CheckpointError:
                leftover.unlink(missing_ok=True)
        for leftover in self._named(".*.pt.*.tmp"):
            leftover.unlink(missing_ok=True)

    def _retain(self, newest: Checkpoint) -> None:
        """Delete checkpoints older than the newest ``keep`` good ones; corrupt checkpoints do not count."""
        kept = 1
        for record in list(self._records()):
            if record.stem == newest.path.stem:
                continue
            if kept >= self.keep:
                record.unlink(missing_ok=True)
                record.with_suffix(".pt").unlink(missing_ok=True)
            elif self._verify(record) is not None:
                kept += 1
        self.good_kept = kept

    def remove_all(self) -> None:
        """Delete checkpoints in the layout of earlier versions, which had no folder per writer; other files stay."""
        for record in self._record_paths():
            with suppress(CheckpointError, OSError):
                _read_record(record)
                record.unlink()
                record.with_suffix(".pt").unlink(missing_ok=True)


def _record_of(data: Path) -> Path:
    return data.with_suffix(".json")


def _link(path: Path, own: Path) -> None:
    try:
        own.hardlink_to(path)
    except FileNotFoundError:
        raise
    except OSError:  # a file system without links, or a file of another account
        copy = own.with_name(f".{own.name}.{os.getpid()}.{uuid.uuid4().hex[:8]}.tmp")
        shutil.copyfile(path, copy)
        sync_file(copy)
        copy.replace(own)


def _identity(path: Path) -> tuple[str, int, int, int]:
    stat = path.stat()
    return path.name, stat.st_ino, stat.st_size, stat.st_mtime_ns


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _to_json(checkpoint: Checkpoint) -> str:
    values = asdict(checkpoint)
    del values["path"]
    if values["metric"] is None:
        del values["metric"]
    return sealed(values) + "\n"


def _read_record(record: Path, *, stem: str | None = None) -> Checkpoint:
    """Read a record; ``stem`` names the data if the record still has a temporary name."""
    kinds: dict[str, type | tuple[type, ...]] = {
        "step": int,
        "sha256": str,
        "bytes": int,
        "incarnation": int,
        "saved_at": (int, float),
    }
    stem = record.stem if stem is None else stem
    try:
        values, _ = opened(record.read_bytes())
    except (ValueError, OSError) as error:
        rule = "the record of a checkpoint must be JSON, as it was written"
        raise CheckpointError(rule, value=str(error), place=str(record)) from error
    if any(not isinstance(values.get(k), kind) for k, kind in kinds.items()):
        rule = "the record of a checkpoint must hold " + ", ".join(kinds)
        raise CheckpointError(rule, value=json.dumps(values)[:200], place=str(record))
    if f"{values['step']:06d}" != stem:
        rule = "the record of a checkpoint must be named after its step"
        raise CheckpointError(rule, value=f"step {values['step']}", place=str(record))
    if not isinstance(values.setdefault("metric", None), (int, float, type(None))):
        rule = "the metric in the record of a checkpoint must be a number"
        raise CheckpointError(rule, value=repr(values["metric"])[:200], place=str(record))
    known = {field.name: values[field.name] for field in fields(Checkpoint) if field.name != "path"}
    return Checkpoint(path=record.parent / f"{stem}.pt", **known)


def _free_name(path: Path) -> Path:
    """Return ``path`` with ``.corrupt`` appended, and a number if that name exists."""
    candidate, number = path.with_name(path.name + ".corrupt"), 2
    while candidate.exists():
        candidate, number = path.with_name(f"{path.name}.{number}.corrupt"), number + 1
    return candidate


def _write_synced(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def sync_file(path: Path) -> None:
    """Sync a file's content to the disk, so that it survives a power cut."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Sync the names in a folder to the disk, so that they survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
