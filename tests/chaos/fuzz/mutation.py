"""Messages made hostile: bytes of real ones damaged, fields of real ones set to unexpected values."""

import random
from collections.abc import Sequence
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from chaos.fuzz.values import NAMES, REAL, WHOLE

_REALS = (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT)


def damaged(content: bytes, others: Sequence[bytes], rng: random.Random) -> bytes:
    """Bytes with one to four of: a bit turned, a byte set, a piece cut out, doubled, or taken from another message."""
    data = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data) + 1)
        end = min(len(data), at + rng.choice((1, 1, 2, 4, 16)))
        what = rng.randrange(6)
        if what == 0 and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        elif what == 1 and at < len(data):
            data[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        elif what == 2:
            del data[at:end]
        elif what == 3:
            data[at:at] = data[at:end] * rng.choice((1, 2, 50))
        elif what == 4:
            other = rng.choice(others)
            data[at:at] = other[rng.randrange(len(other) + 1) :][:64]
        else:
            del data[at:]
    return bytes(data)


def twisted(message: Message, others: Sequence[Message], rng: random.Random) -> Message:
    """A copy with one to three fields, at any depth, set, emptied, doubled, or taken from another message."""
    made = type(message)()
    made.CopyFrom(message)
    for _ in range(rng.randint(1, 3)):
        _twist(made, others, rng)
    return made


def _twist(message: Message, others: Sequence[Message], rng: random.Random) -> None:
    if not message.DESCRIPTOR.fields:
        return
    field: Any = rng.choice(message.DESCRIPTOR.fields)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        getattr(message, field.name)[rng.choice(NAMES)] = rng.choice(NAMES)
    elif field.is_repeated:
        _twist_list(getattr(message, field.name), field, others, rng)
    elif field.message_type is not None:
        if rng.random() < 0.2:
            message.ClearField(field.name)
        else:
            getattr(message, field.name).SetInParent()
            _twist(getattr(message, field.name), others, rng)
    else:
        setattr(message, field.name, _value(field, rng))


def _twist_list(items: Any, field: FieldDescriptor, others: Sequence[Message], rng: random.Random) -> None:
    what = rng.randrange(5)
    if what == 0 and len(items):
        del items[rng.randrange(len(items)) :]
    elif what == 1 and len(items):
        items.extend(list(items)[: rng.choice((1, 3))] * rng.choice((1, 1, 1, 40)))
    elif what == 2:
        _borrow(items, field, others, rng)
    elif field.message_type is not None:
        _twist(items[rng.randrange(len(items))] if len(items) and rng.random() < 0.7 else items.add(), others, rng)
    elif len(items) and rng.random() < 0.7:
        items[rng.randrange(len(items))] = _value(field, rng)
    else:
        items.append(_value(field, rng))


def _borrow(items: Any, field: FieldDescriptor, others: Sequence[Message], rng: random.Random) -> None:
    other = rng.choice(others)
    if other.DESCRIPTOR is field.containing_type:
        items.extend(list(getattr(other, field.name))[:50])


def _value(field: FieldDescriptor, rng: random.Random) -> Any:
    if field.enum_type is not None:
        return rng.choice((*field.enum_type.values_by_number, 99, -1))
    if field.cpp_type in _REALS:
        return rng.choice(REAL) if rng.random() < 0.7 else rng.expovariate(0.01)
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return rng.random() < 0.5
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return rng.randbytes(8) if field.type == FieldDescriptor.TYPE_BYTES else rng.choice(NAMES)
    bits = 31 if field.cpp_type in (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_UINT32) else 63
    least = 0 if field.cpp_type in (FieldDescriptor.CPPTYPE_UINT32, FieldDescriptor.CPPTYPE_UINT64) else -(2**bits)
    number = rng.choice(WHOLE) if rng.random() < 0.7 else rng.randrange(0, 50)
    return min(max(number, least), 2**bits - 1)
