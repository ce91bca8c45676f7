"""Parses scalars of Event protos without protobuf: one event at a time, or columns of events of the same layout.

Field numbers (tensorflow event.proto, summary.proto, tensor.proto): Event: 1 wall_time, 2 step, 5 summary, 7
session_log; Summary: 1 value; Value: 1 tag, 2 simple_value, 8 tensor, 9 metadata; SummaryMetadata: 1 plugin_data, whose
field 1 is plugin_name; TensorProto: 1 dtype, 2 shape, 4 tensor_content, 5 float_val, 6 double_val, 7 int_val, 10
int64_val, 13 half_val. Scalars are simple_value (TensorFlow 1, torch) and tensors of one number (TensorFlow 2, torch's
new style).
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from eunomia_appmaster.profiler.crc32c import Bytes

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_SESSION_START = 1
_SCALAR_PLUGIN = b"scalars"
_UNPACK = {"<f4": struct.Struct("<f"), "<f8": struct.Struct("<d"), "<f2": struct.Struct("<e")}
_UNPACK |= {"<i4": struct.Struct("<i"), "<i8": struct.Struct("<q")}
# by dtype of a TensorProto: the packing of tensor_content, and the field that holds the values otherwise
_DTYPES = {1: ("<f4", 5), 2: ("<f8", 6), 3: ("<i4", 7), 9: ("<i8", 10), 19: ("<f2", 13)}
_MAX_SHAPES = 32
_FEW = 32  # number of events below which numpy's fixed cost does not pay


class MalformedEventError(ValueError):
    """A record has a valid CRC, but its data are not an Event proto."""


@dataclass(frozen=True, slots=True)
class _Value:
    """One scalar of an event: positions of its tag and number in the bytes; a number without a position is stored."""

    tag_at: int
    tag_end: int
    number_at: int = -1
    packing: str = ""
    number: float = 0.0

    def read(self, data: bytes) -> float:
        if self.number_at < 0:
            return self.number
        return float(_UNPACK[self.packing].unpack_from(data, self.number_at)[0])


@dataclass(slots=True)
class _Event:
    """Positions of the parts of one event in its bytes; -1: absent."""

    wall_time_at: int = -1
    step_at: int = -1
    step_end: int = -1
    values: list[_Value] = field(default_factory=list)
    starts_session: bool = False


@dataclass(slots=True, eq=False)
class Batch:
    """Scalars in record order, as columns (n); ``purges``: steps from which new sessions invalidate older points.

    record: index of the record; tag: number of the tag in ``Tags``; malformed: indices of records that are not events.
    """

    record: NDArray[np.int64]
    tag: NDArray[np.int64]
    step: NDArray[np.int64]
    wall_time: NDArray[np.float64]
    value: NDArray[np.float64]
    purges: list[int]
    malformed: list[int]


class Tags:
    """Assigns numbers to tags in order of first appearance."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self.names: list[str] = []

    def number(self, tag: bytes) -> int:
        """Return the tag's number; an unknown tag gets a new one."""
        found = self._numbers.get(tag)
        if found is None:
            found = self._numbers[tag] = len(self.names)
            self.names.append(tag.decode("utf-8", errors="replace"))
        return found


class BatchBuilder:
    """Collects scalars, event by event or group by group, and puts them into the order of their records."""

    def __init__(self, tags: Tags) -> None:
        self._tags = tags
        self._groups: list[tuple[NDArray[np.int64], ...]] = []
        self._numbers: list[NDArray[np.float64]] = []
        self._walls: list[NDArray[np.float64]] = []
        self._single: list[tuple[int, int, int, float, float]] = []
        self.purges: list[int] = []
        self.malformed: list[int] = []

    def add(self, record: int, data: bytes) -> None:
        """Add the scalars of one event."""
        try:
            event = _parse(data)
            wall_time = 0.0 if event.wall_time_at < 0 else _UNPACK["<f8"].unpack_from(data, event.wall_time_at)[0]
            step = 0 if event.step_at < 0 else _signed(_varint(data, event.step_at)[0])
            for value in event.values:
                tag = self._tags.number(data[value.tag_at : value.tag_end])
                self._single.append((record, tag, step, wall_time, value.read(data)))
        except (MalformedEventError, IndexError, struct.error):
            self.malformed.append(record)
            return
        if event.starts_session:
            self.purges.append(step)

    def add_group(self, records: NDArray[np.int64], strings: Bytes) -> None:
        """Add events of equal length: ``strings`` (length, n) has one event per column.

        Events that differ from the first one only in wall time, step, number and the tag's letters are read in one
        pass; the others form the next group, until few events are left.
        """
        for _ in range(_MAX_SHAPES):
            if len(records) < _FEW:
                break
            alike = self._add_alike(records, strings)
            records, strings = records[~alike], strings[:, ~alike]
        for record, string in zip(records.tolist(), strings.T, strict=True):
            self.add(record, string.tobytes())

    def _add_alike(self, records: NDArray[np.int64], strings: Bytes) -> NDArray[np.bool_]:
        """Add the events shaped like the first one; returns a mask of them."""
        first = strings[:, 0].tobytes()
        try:
            event = _parse(first)
        except (MalformedEventError, IndexError):
            event = _Event()
        if len(event.values) != 1 or event.wall_time_at < 0 or event.values[0].number_at < 0:
            self.add(int(records[0]), first)
            return np.asarray(np.arange(len(records)) == 0)
        alike = _alike(strings, event)
        if not alike.all():
            records, strings = records[alike], strings[:, alike]
        value = event.values[0]
        tags = self._tag_column(strings[value.tag_at : value.tag_end])
        self._groups.append((records, tags, _step_column(strings[event.step_at : event.step_end], len(records))))
        self._walls.append(_number_column(strings, event.wall_time_at, "<f8"))
        self._numbers.append(_number_column(strings, value.number_at, value.packing))
        return alike

    def _tag_column(self, letters: Bytes) -> NDArray[np.int64]:
        """Return the numbers (n,) of the tags whose letters are the columns of ``letters`` (length, n)."""
        length, count = letters.shape
        if (letters == letters[:, :1]).all():
            return np.full(count, self._tags.number(letters[:, 0].tobytes()), dtype=np.int64)
        number, joined = self._tags.number, letters.T.tobytes()
        return np.array([number(joined[at : at + length]) for at in range(0, count * length, length)], dtype=np.int64)

    def build(self) -> Batch:
        """Return all scalars added so far."""
        single = list(zip(*self._single, strict=True)) or [()] * 5
        columns = [
            np.concatenate([*(group[i] for group in self._groups), np.array(single[i], dtype=np.int64)])
            for i in range(3)
        ]
        walls = np.concatenate([*self._walls, np.array(single[3], dtype=np.float64)])
        numbers = np.concatenate([*self._numbers, np.array(single[4], dtype=np.float64)])
        record, tag, step = columns
        if (record[1:] < record[:-1]).any():
            order = np.argsort(record, kind="stable")
            record, tag, step, walls, numbers = (column[order] for column in (*columns, walls, numbers))
        return Batch(
            record=record,
            tag=tag,
            step=step,
            wall_time=walls,
            value=numbers,
            purges=self.purges,
            malformed=sorted(self.malformed),
        )


# -- columns


def _alike(strings: Bytes, event: _Event) -> NDArray[np.bool_]:
    """Return a mask of the strings with the same layout as ``event``, so that its positions are valid for them."""
    fixed = np.ones(len(strings), dtype=np.bool_)
    value = event.values[0]
    fixed[event.wall_time_at : event.wall_time_at + 8] = False
    fixed[value.tag_at : value.tag_end] = False
    fixed[value.number_at : value.number_at + _UNPACK[value.packing].size] = False
    if event.step_at >= 0:
        fixed[event.step_at : event.step_end] = False
    alike = np.ones(strings.shape[1], dtype=np.bool_)
    for place in np.flatnonzero(fixed).tolist():
        alike &= strings[place] == strings[place, 0]
    for place in range(event.step_at, event.step_end):
        goes_on = strings[place] >= 0x80
        alike &= goes_on if place < event.step_end - 1 else ~goes_on
    return alike


def _step_column(digits: Bytes, count: int) -> NDArray[np.int64]:
    result = np.zeros(count, dtype=np.uint64)
    for place, digit in enumerate(digits):
        result |= (digit & np.uint8(0x7F)).astype(np.uint64) << np.uint64(7 * place)
    return result.view(np.int64)


def _number_column(strings: Bytes, at: int, packing: str) -> NDArray[np.float64]:
    size = _UNPACK[packing].size
    return np.ascontiguousarray(strings[at : at + size].T).view(packing)[:, 0].astype(np.float64)


# -- one event


def _parse(data: bytes) -> _Event:
    event = _Event()
    for number, wire, start, end in _fields(data, 0, len(data)):
        if number == 1 and wire == _FIXED64:
            event.wall_time_at = start
        elif number == 2 and wire == _VARINT:
            event.step_at, event.step_end = start, end
        elif number == 5 and wire == _BYTES:
            for inner, inner_wire, at, stop in _fields(data, start, end):
                if inner == 1 and inner_wire == _BYTES:
                    event.values.extend(_parse_value(data, at, stop))
        elif number == 7 and wire == _BYTES:
            for inner, inner_wire, at, _ in _fields(data, start, end):
                if inner == 1 and inner_wire == _VARINT:
                    event.starts_session = data[at] == _SESSION_START
    return event


def _parse_value(data: bytes, start: int, end: int) -> Iterator[_Value]:
    tag = content = metadata = None
    simple = -1
    for number, wire, at, stop in _fields(data, start, end):
        if number == 1 and wire == _BYTES:
            tag = at, stop
        elif number == 2 and wire == _FIXED32:
            simple, content = at, None
        elif number == 8 and wire == _BYTES:
            simple, content = -1, (at, stop)
        elif number == 9 and wire == _BYTES:
            metadata = at, stop
    if tag is None:
        return
    if simple >= 0:
        yield _Value(*tag, simple, "<f4")
    elif content is not None and (metadata is None or _plugin(data, *metadata) in (b"", _SCALAR_PLUGIN)):
        found = _parse_tensor(data, *content)
        if found is not None:
            yield _Value(tag[0], tag[1], found[0], found[1], found[2])


def _plugin(data: bytes, start: int, end: int) -> bytes:
    name = b""
    for number, wire, at, stop in _fields(data, start, end):
        if number == 1 and wire == _BYTES:
            for inner, inner_wire, name_at, name_end in _fields(data, at, stop):
                if inner == 1 and inner_wire == _BYTES:
                    name = data[name_at:name_end]
    return name


def _parse_tensor(data: bytes, start: int, end: int) -> tuple[int, str, float] | None:
    """Return position (-1: none), format, and number (if without position) of a one-number tensor; None for others."""
    dtype, parts = 0, []
    for number, wire, at, stop in _fields(data, start, end):
        if number == 1 and wire == _VARINT:
            dtype = _varint(data, at)[0]
        elif number == 2 and wire == _BYTES:
            if not _is_single(data, at, stop):
                return None
        else:
            parts.append((number, wire, at, stop))
    if dtype not in _DTYPES:
        return None
    packing, values_in = _DTYPES[dtype]
    size = _UNPACK[packing].size
    for number, wire, at, stop in parts:
        if number == 4 and wire == _BYTES and stop > at:
            return (at, packing, 0.0) if stop - at == size else None
        if number == values_in and stop > at:
            if packing in ("<f4", "<f8"):
                return (at, packing, 0.0) if stop - at == size else None
            integer, after = _varint(data, at)
            return (-1, "", _integer(integer, packing)) if after == stop else None
    return -1, "", 0.0  # proto3 leaves a tensor of zeros out


def _integer(integer: int, packing: str) -> float:
    if packing == "<f2":  # half_val holds the bits
        return float(_UNPACK["<f2"].unpack(struct.pack("<H", integer & 0xFFFF))[0])
    return float(_signed(integer))


def _is_single(data: bytes, start: int, end: int) -> bool:
    """Return whether a TensorShapeProto has one element: it has no dimensions, or all have size 1."""
    for number, wire, at, stop in _fields(data, start, end):
        if number == 2 and wire == _BYTES:
            sizes = [_varint(data, a)[0] for n, w, a, _ in _fields(data, at, stop) if n == 1 and w == _VARINT]
            if sizes != [1]:
                return False
    return True


def _fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield field number, wire type, first byte and end of the content of each field between ``at`` and ``end``."""
    while at < end:
        key, start = _varint(data, at)
        wire = key & 7
        if wire == _VARINT:
            at = _varint(data, start)[1]
        elif wire == _BYTES:
            length, start = _varint(data, start)
            at = start + length
        elif wire == _FIXED32:
            at = start + 4
        elif wire == _FIXED64:
            at = start + 8
        else:
            raise MalformedEventError(f"wire type {wire}")
        if at > end:
            raise MalformedEventError("a field ends after its message")
        yield key >> 3, wire, start, at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    result, shift = 0, 0
    while byte >= 0x80:
        result |= (byte & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if shift > 63:
            raise MalformedEventError("a varint of more than 10 bytes")
        byte = data[at]
    return (result | byte << shift) & 0xFFFFFFFFFFFFFFFF, at + 1


def _signed(integer: int) -> int:
    return integer - (1 << 64) if integer >> 63 else integer
