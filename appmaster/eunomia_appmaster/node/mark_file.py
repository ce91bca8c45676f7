"""A file with one short text in two entries, written alternately, each with a checksum.

A write changes only one entry, so that after a torn write or damage the other remains, which is one write older. Data
are synced only on request: after a power failure, the text may be an older one, but never a mixture.
"""

import os
import zlib
from pathlib import Path
from typing import Final

MARK: Final = "journal.mark"
"""Name of the mark file next to a journal, and in a launcher's folder."""
MOST_LETTERS: Final = 400
"""Most characters of a text, which must be ASCII."""
ENTRY_BYTES: Final = 512
"""Bytes of an entry: one sector, which disks write atomically."""


class MarkFile:
    """A mark file: its text, and its damage if there is any.

    Args:
        path: path of the file, which the first write creates with mode 0600 if needed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text = ""
        """The text that was written last; empty: none, or no entry is undamaged."""
        self.damage = ""
        """Description of the file's damage, as a sentence without a full stop; empty: undamaged."""
        self._turn = 0
        self._handle: int | None = None
        self._read()

    def write(self, text: str) -> None:
        """Write a text, unless it equals the last one.

        Raises:
            OSError: the write failed.
            ValueError: the text is longer than ``MOST_LETTERS`` characters, or not ASCII.
        """
        if text == self.text and self._handle is not None:
            return
        if len(text) > MOST_LETTERS or not (text.isascii() and text.isprintable()):
            raise ValueError(f"a mark must have at most {MOST_LETTERS} printable letters of ASCII")
        turn = self._turn + 1
        if self._handle is None:
            self._handle = self._made(_entry(turn, text))
        else:
            os.pwrite(self._handle, _entry(turn, text), turn % 2 * ENTRY_BYTES)
        self._turn, self.text = turn, text

    def sync(self) -> None:
        """Flush written entries to the disk.

        Raises:
            OSError: the disk refuses.
        """
        if self._handle is not None:
            os.fdatasync(self._handle)

    def close(self) -> None:
        """Close the file."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _made(self, entry: bytes) -> int:
        """Replace the file by a new one with the same entry twice; returns its descriptor."""
        fresh = self.path.with_name(f".{self.path.name}.tmp")
        fresh.unlink(missing_ok=True)
        handle = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            os.pwrite(handle, entry * 2, 0)
            os.fdatasync(handle)
            fresh.replace(self.path)
        except BaseException:
            os.close(handle)
            raise
        return handle

    def _read(self) -> None:
        try:
            with self.path.open("rb") as file:
                content = file.read(2 * ENTRY_BYTES + 1)
        except FileNotFoundError:
            return
        except OSError as error:
            self.damage = f"{self.path.name} cannot be read: {error.strerror}"
            return
        parts = (content[:ENTRY_BYTES], content[ENTRY_BYTES:])
        good = sorted(found for part in parts if (found := _opened(part)) is not None)
        if good:
            self._turn, self.text = good[-1]
        if len(good) < 2:
            taken = "the other one is taken" if good else "none is left"
            self.damage = f"{2 - len(good)} of the 2 entries of {self.path.name} are damaged; {taken}"


def _entry(turn: int, text: str) -> bytes:
    said = f"{turn} {text}"
    return f"{said} {zlib.crc32(said.encode('ascii')):08x}".ljust(ENTRY_BYTES - 1).encode("ascii") + b"\n"


def _opened(content: bytes) -> tuple[int, str] | None:
    """Return the sequence number and the text of an entry; None: it is damaged."""
    if len(content) != ENTRY_BYTES or not content.isascii():
        return None
    turn, _, text = content.decode("ascii").rstrip().rpartition(" ")[0].partition(" ")
    return (int(turn), text) if turn.isdigit() and _entry(int(turn), text) == content else None
