"""Hypothesis strategies for protocol messages, made from their descriptors."""

from collections.abc import Sequence
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from chaos.fuzz.values import NAMES

_INTS = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}


def messages(kind: type[Message]) -> st.SearchStrategy[Message]:
    """Messages of a kind: any field absent or present with any value that its type can have."""
    descriptor: Any = kind.DESCRIPTOR
    return _fields(descriptor).map(lambda fields: kind(**fields))


def drawn(kinds: Sequence[type[Message]], count: int, number: int) -> list[Message]:
    """So many messages of these kinds.

    Args:
        kinds: of messages.
        count: at most; hypothesis may find fewer that differ.
        number: the seed.
    """
    found: list[Message] = []
    quick = settings(
        max_examples=max(1, count),
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )

    @seed(number)
    @quick
    @given(st.one_of([messages(kind) for kind in kinds]))
    def draw(message: Message) -> None:
        found.append(message)

    draw()
    return found[:count]


def _fields(kind: Descriptor) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional={field.name: _field(field) for field in kind.fields})


def _field(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return st.dictionaries(_TEXTS, _TEXTS, max_size=3)
    one = _single(field)
    return st.lists(one, max_size=3) if field.is_repeated else one


def _single(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    if field.message_type is not None:
        inner = field.message_type
        return st.deferred(lambda: _fields(inner))
    if field.enum_type is not None:
        return st.one_of(st.sampled_from(sorted(field.enum_type.values_by_number)), st.integers(-2, 99))
    if field.cpp_type in _INTS:
        least, most = _INTS[field.cpp_type]
        return st.one_of(st.integers(0, 9), st.integers(least, most))
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return st.booleans()
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return st.binary(max_size=20) if field.type == FieldDescriptor.TYPE_BYTES else _TEXTS
    return st.one_of(st.floats(0.0, 100.0), st.floats(width=64))


_TEXTS = st.one_of(st.sampled_from(NAMES), st.text(max_size=12).filter(lambda text: _is_utf8(text)))


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
