"""The bytes of a trace, from a file (gzipped or not) or stdin, with checks that apply to every text."""

import gzip
import io
import sys
import zlib
from functools import cached_property
from pathlib import Path
from typing import IO, Final

from eunomia.errors import InputError
from eunomia.words import shown
from eunomia_testbed.example import EXAMPLE_FILES

MOST_BYTES: Final = 2 * 1024**3
"""Largest size of a trace in bytes, compressed or decompressed."""
MOST_LINE: Final = 1024**2
"""Largest number of characters in a line of a table."""
HEAD: Final = 64 * 1024
PARQUET: Final = b"PAR1"
_GZIP: Final = b"\x1f\x8b"
_CHUNK: Final = 16 * 1024**2


class TraceSource:
    """The decompressed bytes of a trace.

    Args:
        name: name in messages: the file's name, or ``stdin``.
        data: the bytes.
        path: path of the file; None: the bytes are not from a file.
    """

    def __init__(self, name: str, data: bytes, path: Path | None = None) -> None:
        self.name, self.data, self.path = name, data, path

    @property
    def is_parquet(self) -> bool:
        """Return whether the bytes are a Parquet file."""
        return self.data.startswith(PARQUET)

    @property
    def head(self) -> str:
        """Return the first 64 KiB as text, for detecting the format; ``PAR1`` for a Parquet file."""
        return PARQUET.decode() if self.is_parquet else self.data[:HEAD].decode("utf-8-sig", errors="replace")

    @cached_property
    def text(self) -> str:
        """Return the whole trace as text.

        Raises:
            InputError: the bytes are not UTF-8 text.
        """
        rule = "a trace must be text in UTF-8, gzipped or not, or Parquet"
        zero = self.data.find(b"\0")
        if zero >= 0:
            raise InputError(rule, value="a zero byte", place=self._at(zero))
        try:
            return self.data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise InputError(rule, value=f"byte 0x{self.data[error.start]:02x}", place=self._at(error.start)) from error

    def beside(self, name: str) -> "TraceSource | None":
        """Return the file ``name`` in the trace's folder; None: it does not exist, or the trace is not from a file."""
        if self.path is None:
            return None
        for path in (self.path.parent / name, self.path.parent / f"{name}.gz"):
            if path.is_file():
                return open_source(path)
        return None

    def _at(self, position: int) -> str:
        line = self.data.count(b"\n", 0, position) + 1
        return f"{self.name}, line {line}"


def open_source(path: str | Path) -> TraceSource:
    """Read a whole file, or stdin for ``-``; gzip is recognized by its first bytes.

    Raises:
        InputError: the file is missing, a directory, unreadable, empty, too long, or truncated.
    """
    if str(path) == "-":
        return _checked("stdin", sys.stdin.buffer, None)
    file = Path(path)
    try:
        if file.is_dir():
            raise InputError("a trace must be a file", value=f"{shown(str(path))}, a directory")
        with file.open("rb") as stream:
            return _checked(file.name, stream, file)
    except FileNotFoundError as error:
        hint = f"; eunomia example writes {path}" if str(path) in EXAMPLE_FILES else ""
        raise InputError("a trace must exist", value=f"{shown(str(path))}{hint}") from error
    except OSError as error:
        raise InputError("a trace must be readable", value=error.strerror or str(error), place=str(path)) from error


def _checked(name: str, stream: IO[bytes], path: Path | None) -> TraceSource:
    data = _whole(name, stream)
    if data.startswith(_GZIP):
        data = _unpacked(name, data)
    if not data.strip():
        raise InputError("a trace must not be empty", value=f"{len(data)} bytes", place=name)
    return TraceSource(name, data, path)


def _whole(name: str, stream: IO[bytes] | gzip.GzipFile, *, so_far: list[bytes] | None = None) -> bytes:
    chunks: list[bytes] = [] if so_far is None else so_far
    size = 0
    while chunk := stream.read(_CHUNK):
        size += len(chunk)
        if size > MOST_BYTES:
            raise InputError(f"a trace must be at most {MOST_BYTES // 1024**3} GiB", value="more", place=name)
        chunks.append(chunk)
    return b"".join(chunks)


def _unpacked(name: str, packed: bytes) -> bytes:
    chunks: list[bytes] = []
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(packed)) as stream:
            return _whole(name, stream, so_far=chunks)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        line = _readable(packed).count(b"\n") + 1
        rule = "a gzip file must be whole"
        raise InputError(rule, value=str(error), place=f"{name}, after line {line} of what it holds") from error


def _readable(packed: bytes) -> bytes:
    """Return as many bytes of a broken gzip file as can be decompressed."""
    try:
        return zlib.decompressobj(wbits=31).decompress(packed, _CHUNK)
    except zlib.error:
        return b""
