"""The TFRecord frame of an event file: length, masked CRC of the length, data, masked CRC of the data.

A record is 8 bytes of length (little endian), 4 bytes of CRC, the data, 4 bytes of CRC. The functions here work on a
buffer, not on files, so that one place distinguishes a truncated tail from a corrupt middle.
"""

import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eunomia_appmaster.profiler.crc32c import Bytes, crc32c, crc32c_columns, masked, masked_columns

HEADER_BYTES = 12
FOOTER_BYTES = 4
FRAME_BYTES = HEADER_BYTES + FOOTER_BYTES

_length = struct.Struct("<Q").unpack_from
_checksum = struct.Struct("<I").unpack_from
FEW_RECORDS = 16  # number of records of one length below which numpy's fixed cost does not pay


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Frames:
    """The records at the beginning of a buffer whose length fields are valid.

    starts: first byte of each record's data (n); lengths: bytes of the data (n); end: first byte after the records;
    next_fits: whether the CRC of the next header is valid, None while the header is incomplete; whole_at: the buffer
    length in bytes at which the record at ``end`` can be complete.
    """

    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    end: int
    next_fits: bool | None
    whole_at: int


def walk(data: bytes) -> Frames:
    """Find the records from the beginning of ``data`` by their lengths; only the CRCs of the lengths are checked."""
    starts, lengths, end, size = [], [], 0, len(data)
    last = size - FRAME_BYTES
    while end <= last:
        (length,) = _length(data, end)
        if length > last - end:
            break
        starts.append(end + HEADER_BYTES)
        lengths.append(length)
        end += length + FRAME_BYTES
    first, sizes = np.array(starts, dtype=np.int64), np.array(lengths, dtype=np.int64)
    wrong = np.flatnonzero(~_headers_fit(data, first - HEADER_BYTES))
    if len(wrong):
        good = int(wrong[0])
        first, sizes, end = first[:good], sizes[:good], starts[good] - HEADER_BYTES
    next_fits = header_fits(data, end) if size - end >= HEADER_BYTES else None
    whole_at = end + FRAME_BYTES + (_length(data, end)[0] if next_fits else 0)
    return Frames(starts=first, lengths=sizes, end=end, next_fits=next_fits, whole_at=whole_at)


def header_fits(data: bytes, at: int) -> bool:
    """Return whether the length at ``at`` matches its CRC; the header must be complete."""
    return bool(masked(crc32c(data[at : at + 8])) == _checksum(data, at + 8)[0])


def data_fit(data: bytes, start: int, length: int) -> bool:
    """Return whether one record's data match their CRC; the record must be complete."""
    return bool(masked(crc32c(data[start : start + length])) == _checksum(data, start + length)[0])


def columns(data: bytes, starts: NDArray[np.int64], length: int) -> Bytes:
    """Return a (length, n) array whose columns are the ``length`` bytes from each of ``starts`` on."""
    windows = np.lib.stride_tricks.as_strided(
        np.frombuffer(data, dtype=np.uint8), shape=(len(data) - length + 1, length), strides=(1, 1), writeable=False
    )
    return np.ascontiguousarray(windows[starts].T)


def columns_fit(strings: Bytes) -> NDArray[np.bool_]:
    """Return a mask of the records whose data match their CRC; ``strings`` (length + 4, n) has data and CRC."""
    stored = np.ascontiguousarray(strings[-FOOTER_BYTES:].T).view("<u4")[:, 0]
    return np.asarray(masked_columns(crc32c_columns(strings[:-FOOTER_BYTES])) == stored)


def find_record(data: bytes) -> tuple[int, int, bool]:
    """Find the next record whose length and data match their CRCs.

    Returns:
        The position to continue at, the buffer length at which a record there can be complete, and whether a record
            was found. If not, the position is the first one where a record could begin once more bytes have arrived.
    """
    size = len(data)
    positions = np.arange(max(0, size - HEADER_BYTES + 1), dtype=np.int64)
    for candidate in positions[_headers_fit(data, positions)].tolist():
        (length,) = _length(data, candidate)
        if candidate + FRAME_BYTES + length > size:
            return candidate, candidate + FRAME_BYTES + length, False
        if data_fit(data, candidate + HEADER_BYTES, length):
            return candidate, candidate + FRAME_BYTES + length, True
    going_on = max(0, size - HEADER_BYTES + 1)
    return going_on, going_on + FRAME_BYTES, False


def _headers_fit(data: bytes, positions: NDArray[np.int64]) -> NDArray[np.bool_]:
    if not len(positions):
        return np.zeros(0, dtype=np.bool_)
    if len(positions) < FEW_RECORDS:
        return np.array([header_fits(data, at) for at in positions.tolist()], dtype=np.bool_)
    return columns_fit(columns(data, positions, HEADER_BYTES))
