"""Reading whole columns of events gives exactly what reading one by one gives, on damaged events too."""

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary

from eunomia_appmaster.profiler.events import Batch, BatchBuilder, Tags
from strength import examples

COUNT = 40


def event(tag: str, step: int, value: float) -> bytes:
    return Event(
        wall_time=1.5, step=step, summary=Summary(value=[Summary.Value(tag=tag, simple_value=value)])
    ).SerializeToString()


def read(strings: list[bytes], *, together: bool) -> tuple[Batch, list[str]]:
    tags = Tags()
    builder = BatchBuilder(tags)
    if together:
        columns = np.frombuffer(b"".join(strings), dtype=np.uint8).reshape(len(strings), -1).T
        builder.add_group(np.arange(len(strings)), np.ascontiguousarray(columns))
    else:
        for record, string in enumerate(strings):
            builder.add(record, string)
    batch = builder.build()
    return batch, [tags.names[number] for number in batch.tag]


@given(
    step=st.integers(0, 2**63 - 1),
    damages=st.lists(st.tuples(st.integers(0, COUNT - 1), st.integers(0, 100), st.integers(0, 255)), max_size=30),
)
@example(step=200, damages=[(5, 10, 0x05)])  # a varint that ends early
@example(step=200, damages=[(5, 11, 0x80)])  # and one that goes on
@settings(max_examples=examples(150))
def test_reading_columns_equals_reading_points_one_by_one(step: int, damages: list[tuple[int, int, int]]) -> None:
    strings = [bytearray(event("loss", step, i / 7)) for i in range(COUNT)]
    for i, at, byte in damages:
        strings[i][at % len(strings[i])] = byte
    together, tags = read([bytes(string) for string in strings], together=True)
    single, single_tags = read([bytes(string) for string in strings], together=False)
    assert tags == single_tags
    assert (together.purges, together.malformed) == (single.purges, single.malformed)
    for name in ("record", "step", "wall_time", "value"):
        np.testing.assert_array_equal(getattr(together, name), getattr(single, name))
