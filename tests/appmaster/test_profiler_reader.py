"""The reader of event files, held against TensorBoard's own unsampled reader, point for point."""

import math
import os
import struct
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import crc32c as their_crc32c
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c
from tensorboard.util import tensor_util

from eunomia.errors import InputError
from eunomia_appmaster.profiler import Finding, FindingKind, LogFolder, Series
from eunomia_appmaster.profiler.crc32c import crc32c, crc32c_columns
from eunomia_appmaster.profiler.writers import number_writers
from strength import examples

NAME = "events.out.tfevents.1800000000.host.77.0"
Point = tuple[str, int, float, float]


def frame(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked_crc32c(length)) + data + struct.pack("<I", masked_crc32c(data))


def scalar(tag: str, step: int, value: float, wall_time: float | None = None) -> bytes:
    summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
    wall_time = 1.8e9 + step if wall_time is None else wall_time
    return frame(Event(wall_time=wall_time, step=step, summary=summary).SerializeToString())


def records(count: int = 20, tag: str = "loss") -> list[bytes]:
    version = frame(Event(wall_time=1.8e9, file_version="brain.Event:2").SerializeToString())
    return [version] + [scalar(tag, step, 1 / (step + 1)) for step in range(count)]


def theirs(path: Path) -> list[Point]:
    """All scalars of a file as TensorBoard reads them."""
    points = []
    for event in EventFileLoader(str(path)).Load():
        for value in event.summary.value:
            if value.metadata.plugin_data.plugin_name == "scalars":
                number = float(tensor_util.make_ndarray(value.tensor).item())
                points.append((value.tag, event.step, event.wall_time, number))
    return points


def ours(points: dict[str, Series]) -> list[Point]:
    return [
        (tag, *point)
        for tag, series in points.items()
        for point in zip(series.step.tolist(), series.wall_time.tolist(), series.value.tolist(), strict=True)
    ]


def same(mine: list[Point], other: list[Point]) -> bool:
    """Equal as sets of points in the order of each tag, NaN equal to NaN."""

    def by_tag(points: list[Point]) -> list[str]:
        return [repr(point) for point in sorted(points, key=lambda point: point[0])]

    return by_tag(mine) == by_tag(other)


def kinds(findings: tuple[Finding, ...]) -> list[FindingKind]:
    return [finding.kind for finding in findings]


# -- the checksum


@given(st.binary(max_size=2000))
def test_crc32c_equals_that_of_tensorboard(data: bytes) -> None:
    assert crc32c(data) == their_crc32c(data)


@given(st.integers(0, 700), st.integers(1, 5), st.randoms())
def test_crc32c_of_columns_equals_that_of_each_value(length: int, count: int, random) -> None:
    strings = [random.randbytes(length) for _ in range(count)]
    columns = np.frombuffer(b"".join(strings), dtype=np.uint8).reshape(count, length).T
    assert crc32c_columns(columns).tolist() == [crc32c(string) for string in strings]


def test_crc32c_gives_the_known_answer() -> None:
    assert crc32c(b"123456789") == 0xE3069283  # RFC 3720, B.4 and the CRC catalogue's check value


# -- against TensorBoard


def test_every_point_of_the_torch_writer_is_read(tmp_path: Path) -> None:
    from torch.utils.tensorboard import SummaryWriter

    random = np.random.default_rng(1)
    with SummaryWriter(str(tmp_path)) as writer:
        for step in range(3000):
            writer.add_scalar("train/loss", random.normal(), step)
            writer.add_scalar("ünïcode tag", random.normal() * 1e30, step * 100_003)
            if step % 10 == 0:
                writer.add_scalar("new style", random.normal(), step, new_style=True)
                writer.add_scalar("double", random.normal(), step, new_style=True, double_precision=True)
                writer.add_scalar("without step", random.normal(), walltime=step + 0.5)
            if step % 500 == 0:
                writer.add_histogram("weights", random.normal(size=1000), step)
                writer.add_text("note", "x" * step, step)
                writer.add_hparams({"lr": 0.1}, {"final": 1.0}, run_name=".", global_step=step)
        for i in range(300):  # many tags of one length
            writer.add_scalar(f"layer{i:03d}", i, 7)
    logs = LogFolder(tmp_path)
    poll = logs.poll()
    assert poll.findings == ()
    expected = [point for path in sorted(tmp_path.glob("*tfevents*")) for point in theirs(path)]
    assert len(expected) > 7000
    assert same(ours(poll.points), expected)
    assert logs.tags() == sorted({point[0] for point in expected})
    assert logs.series("train/loss").step.tolist() == list(range(3000))
    assert LogFolder(tmp_path).poll().points.keys() == poll.points.keys()
    assert logs.poll().points == {}


TENSORS = [
    TensorProto(dtype=1, float_val=[0.25]),
    TensorProto(dtype=1, float_val=[-7.5], tensor_shape=TensorShapeProto()),
    TensorProto(dtype=1, float_val=[0.5], tensor_shape=TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)])),
    TensorProto(dtype=1, tensor_content=struct.pack("<f", 1.5)),
    TensorProto(dtype=2, double_val=[0.1]),
    TensorProto(dtype=2, tensor_content=struct.pack("<d", 0.1)),
    TensorProto(dtype=3, int_val=[-3]),
    TensorProto(dtype=9, int64_val=[-(2**40)]),
    TensorProto(dtype=9, tensor_content=struct.pack("<q", 5)),
    TensorProto(dtype=19, half_val=[0x3E00]),
]


@pytest.mark.parametrize("count", [1, 100])
@pytest.mark.parametrize("tensor", TENSORS, ids=range(len(TENSORS)))
def test_a_tensor_of_one_number_is_read_as_a_scalar(tmp_path: Path, tensor: TensorProto, count: int) -> None:
    metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="scalars"))
    value = Summary.Value(tag="tf2", tensor=tensor, metadata=metadata)
    events = [Event(wall_time=1 + i, step=i * 3, summary=Summary(value=[value])) for i in range(count)]
    (tmp_path / NAME).write_bytes(b"".join(frame(event.SerializeToString()) for event in events))
    poll = LogFolder(tmp_path).poll()
    assert same(ours(poll.points), theirs(tmp_path / NAME))
    assert len(poll.points["tf2"]) == count


def test_summaries_other_than_scalars_are_left_out(tmp_path: Path) -> None:
    other = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
    one = TensorProto(dtype=1, float_val=[1.0])
    values = [
        Summary.Value(tag="plugin", tensor=one, metadata=other),
        Summary.Value(tag="string", tensor=TensorProto(dtype=7, string_val=[b"x"])),
        Summary.Value(tag="two", tensor=TensorProto(dtype=1, float_val=[1.0, 2.0])),
        Summary.Value(
            tag="shape", tensor=TensorProto(dtype=1, tensor_shape=TensorShapeProto(dim=[TensorShapeProto.Dim(size=9)]))
        ),
        Summary.Value(tag="node", simple_value=3.0, node_name="n"),
    ]
    event = Event(wall_time=1, step=2, summary=Summary(value=values), source_metadata={"writer": "w"})
    (tmp_path / NAME).write_bytes(frame(event.SerializeToString()) * 40)
    poll = LogFolder(tmp_path).poll()
    assert poll.points.keys() == {"node"}
    assert (len(poll.points["node"]), poll.findings) == (40, ())


@given(
    events=st.lists(
        st.tuples(
            st.lists(
                st.tuples(st.sampled_from(["a", "b", "loss", "x" * 200]), st.floats(width=32)), min_size=1, max_size=3
            ),
            st.integers(-(2**63), 2**63 - 1) | st.integers(0, 300),
            st.floats(0, 1e10),
        ),
        max_size=12,
    ),
    repeat=st.sampled_from([1, 40]),
)
def test_any_scalars_are_read_to_the_same_values_as_by_tensorboard(tmp_path_factory, events, repeat: int) -> None:
    folder = tmp_path_factory.mktemp("logs")
    data = b"".join(
        frame(
            Event(
                wall_time=wall_time,
                step=step,
                summary=Summary(value=[Summary.Value(tag=tag, simple_value=value) for tag, value in values]),
            ).SerializeToString()
        )
        for values, step, wall_time in events
    )
    (folder / NAME).write_bytes(data * repeat)
    assert same(ours(LogFolder(folder).poll().points), theirs(folder / NAME))


# -- growing files


@given(cuts=st.lists(st.integers(0, 1200), max_size=12))
def test_a_truncated_record_is_read_once_it_is_complete(tmp_path_factory, cuts: list[int]) -> None:
    folder = tmp_path_factory.mktemp("logs")
    data = b"".join(records())
    logs, found = LogFolder(folder), []
    for end in sorted({*(min(cut, len(data)) for cut in cuts), len(data)}):
        (folder / NAME).open("ab").close()
        with (folder / NAME).open("r+b") as file:
            file.write(data[:end])
        poll = logs.poll()
        assert poll.findings == ()
        found += ours(poll.points)
    assert found == theirs(folder / NAME)
    assert same(ours({"loss": logs.series("loss")}), found)


def test_each_record_of_a_growing_log_is_read_when_its_last_byte_arrives(tmp_path: Path) -> None:
    data, ends, done = b"".join(records(5)), [], 0
    for record in records(5):
        done += len(record)
        ends.append(done)
    logs = LogFolder(tmp_path)
    with (tmp_path / NAME).open("ab", buffering=0) as file:
        for written, byte in enumerate(data, 1):
            file.write(bytes([byte]))
            poll = logs.poll()
            assert poll.findings == ()
            assert sum(map(len, poll.points.values())) == (1 if written in ends[1:] else 0)


def test_zeros_at_the_end_of_a_file_are_read_again_later(tmp_path: Path) -> None:
    data = b"".join(records())
    (tmp_path / NAME).write_bytes(data[:500] + bytes(len(data) - 500))
    logs = LogFolder(tmp_path)
    logs.poll()
    (tmp_path / NAME).write_bytes(data)
    os.utime(tmp_path / NAME, (1, 1))
    logs.poll()
    assert logs.series("loss").step.tolist() == list(range(20))


def test_absent_and_empty_folders_have_no_points_and_a_file_is_refused(tmp_path: Path) -> None:
    logs = LogFolder(tmp_path / "logs")
    assert logs.poll().points == {}
    assert (logs.tags(), len(logs.series("loss")), logs.writers()) == ([], 0, [])
    (tmp_path / "logs").mkdir()
    assert logs.poll().findings == ()
    (tmp_path / "logs" / NAME).touch()
    (tmp_path / "logs" / "notes.txt").write_text("no events")
    (tmp_path / "logs" / "sub.tfevents").mkdir()
    (tmp_path / "logs" / "loop.tfevents").symlink_to("loop.tfevents")
    assert (logs.poll().points, logs.poll().findings) == ({}, ())
    (tmp_path / "logs" / NAME).write_bytes(b"".join(records()))
    assert len(logs.poll().points["loss"]) == 20
    with pytest.raises(InputError, match="must be a folder"):
        LogFolder(tmp_path / "logs" / NAME).poll()


def test_replaced_and_shrunk_files_are_reported_and_deleted_ones_keep_their_points(tmp_path: Path) -> None:
    path = tmp_path / NAME
    path.write_bytes(b"".join(records(20)))
    logs = LogFolder(tmp_path)
    logs.poll()
    path.write_bytes(b"".join(records(5)))
    poll = logs.poll()
    assert kinds(poll.findings) == [FindingKind.FILE_SHRANK]
    assert logs.series("loss").step.tolist() == list(range(5))
    (tmp_path / "new").write_bytes(b"".join(records(30, "acc")))
    (tmp_path / "new").replace(path)
    poll = logs.poll()
    assert kinds(poll.findings) == [FindingKind.FILE_REPLACED]
    assert (logs.tags(), len(poll.points["acc"])) == (["acc"], 30)
    path.write_bytes(scalar("other", 1, 2.0) * 100)  # the same inode, longer, other content
    assert kinds(logs.poll().findings) == [FindingKind.FILE_REPLACED]
    assert logs.tags() == ["other"]
    path.unlink()
    assert kinds(logs.poll().findings) == [FindingKind.FILE_GONE]
    assert logs.poll().findings == ()
    assert len(logs.series("other")) == 1, "measured is measured"


def test_an_unreadable_file_is_reported_once_and_tried_again(tmp_path: Path) -> None:
    (tmp_path / NAME).symlink_to("/proc/self/mem")  # a file whose first byte even root cannot read
    logs = LogFolder(tmp_path)
    assert kinds(logs.poll().findings) == [FindingKind.FILE_UNREADABLE]
    assert logs.poll().findings == ()
    (tmp_path / NAME).unlink()
    (tmp_path / NAME).write_bytes(b"".join(records()))
    assert len(logs.poll().points["loss"]) == 20


def test_an_unreadable_folder_is_reported_once(tmp_path: Path) -> None:
    (tmp_path / "logs").symlink_to("logs")  # a loop: even root cannot follow it
    logs = LogFolder(tmp_path / "logs")
    assert kinds(logs.poll().findings) == [FindingKind.FILE_UNREADABLE]
    assert logs.poll().findings == ()


# -- corruption


def offsets(parts: list[bytes]) -> list[int]:
    return np.cumsum([0, *map(len, parts)]).tolist()


@pytest.mark.parametrize("count", [12, 200], ids=["few", "many"])
@pytest.mark.parametrize(
    ("damage", "lost"),
    [
        (lambda record: record[:20] + b"\xff" + record[21:], 1),  # data
        (lambda record: record[:-1] + bytes([record[-1] ^ 1]), 1),  # CRC of data
        (lambda record: b"\x01" + record[1:], 1),  # length
        (lambda record: record[:8] + b"????" + record[12:], 1),  # CRC of length
        (lambda record: record[:6] + b"\xff" + record[7:], 1),  # a huge length
        (lambda record: record[:20], 1),  # bytes lost
        (lambda record: record[:-3], 1),
        (lambda record: b"", 0),  # a whole record lost: nothing to see
        (lambda record: b"garbage" + record, 0),
        (lambda record: record + bytes(50), 0),
        (lambda record: os.urandom(3000), 1),
    ],
)
def test_a_corrupt_record_in_the_middle_is_reported(tmp_path: Path, count: int, damage, lost: int) -> None:
    parts = records(count)
    parts[8] = damage(parts[8])
    (tmp_path / NAME).write_bytes(b"".join(parts))
    poll = LogFolder(tmp_path).poll()
    expected = [step for step in range(count) if step != 7 or not (lost or not parts[8])]
    assert poll.points["loss"].step.tolist() == expected
    if parts[8]:
        (finding,) = poll.findings
        where = offsets(parts)[9] - 50 if parts[8].endswith(bytes(50)) else offsets(parts)[8]
        assert (finding.kind, finding.path, finding.offset) == (FindingKind.CORRUPT_RECORD, tmp_path / NAME, where)
        assert str(where) in finding.place and "CRC" in str(finding)
    else:
        assert poll.findings == ()


@given(
    damages=st.lists(
        st.tuples(st.integers(0, 1900), st.binary(min_size=1, max_size=30), st.integers(0, 40)), max_size=3
    ),
    cuts=st.lists(st.integers(0, 2100), max_size=6),
)
@settings(max_examples=examples(100))
def test_any_damage_loses_only_the_damaged_records_however_often_logs_are_polled(
    tmp_path_factory, damages, cuts
) -> None:
    parts = records(48)
    data, origin = b"".join(parts), list(range(sum(map(len, parts))))
    for at, instead, dropped in damages:
        data = data[:at] + instead + data[at + dropped :]
        origin = origin[:at] + [-1] * len(instead) + origin[at + dropped :]
    bounds = offsets(parts)
    places = {byte: place for place, byte in enumerate(origin)}
    intact = {
        i - 1
        for i in range(1, len(parts))
        if bounds[i] in places
        and origin[(at := places[bounds[i]]) : at + len(parts[i])] == list(range(bounds[i], bounds[i + 1]))
    }
    folder = tmp_path_factory.mktemp("logs")
    logs, found, seen = LogFolder(folder), [], set()
    for end in sorted({*(min(cut, len(data)) for cut in cuts), len(data)}):
        with (folder / NAME).open("ab") as file:
            file.write(data[file.tell() : end])
        poll = logs.poll()
        found += ours(poll.points)
        seen |= {finding.offset for finding in poll.findings}
    steps = [step for _, step, _, _ in found]
    assert intact <= set(steps)
    assert seen or len(steps) >= 47, "damage goes unseen only where it takes out a whole record exactly"
    again = LogFolder(folder)
    assert ours(again.poll().points) == found
    values = dict(zip(steps, (value for _, _, _, value in found), strict=True))
    assert all(value == np.float32(1 / (step + 1)) for step, value in values.items())


def test_a_corrupt_section_is_reported_once_and_points_after_it_are_read(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"\xff" * 100_000)
    logs = LogFolder(tmp_path)
    (finding,) = logs.poll().findings
    assert (finding.kind, finding.offset) == (FindingKind.CORRUPT_RECORD, 0)
    with (tmp_path / NAME).open("ab") as file:
        file.write(b"".join(records(3)))
    poll = logs.poll()
    assert poll.findings == (), "the stretch was reported already"
    assert len(poll.points["loss"]) == 3
    with (tmp_path / NAME).open("ab") as file:
        file.write(b"".join(records(3)[2:])[:-2] + b"??")
    poll = logs.poll()
    assert kinds(poll.findings) == [FindingKind.STEPS_BACKWARDS, FindingKind.CORRUPT_RECORD]
    assert logs.poll().findings == ()


@pytest.mark.parametrize("count", [1, 100])
def test_a_record_that_is_no_event_is_reported(tmp_path: Path, count: int) -> None:
    (tmp_path / NAME).write_bytes(frame(b"\x2a\xff") * count + scalar("loss", 1, 2.0))
    poll = LogFolder(tmp_path).poll()
    assert kinds(poll.findings) == [FindingKind.MALFORMED_EVENT] * count
    assert len(poll.points["loss"]) == 1


# -- values and steps


def test_values_that_are_not_finite_are_kept_and_reported(tmp_path: Path) -> None:
    values = [1.0, math.nan, math.inf, -math.inf, 2.0]
    data = b"".join(scalar("loss", step, value) for step, value in enumerate(values))
    (tmp_path / NAME).write_bytes(data)
    logs = LogFolder(tmp_path)
    (finding,) = logs.poll().findings
    assert (finding.kind, finding.tag) == (FindingKind.NOT_FINITE, "loss")
    assert finding.value == "nan at step 1 and 2 more"
    assert finding.offset == len(scalar("loss", 0, 1.0))
    np.testing.assert_array_equal(logs.series("loss").value, np.array(values))


@pytest.mark.parametrize("split", [False, True])
def test_steps_that_go_back_are_reported_and_the_last_value_wins(tmp_path: Path, split: bool) -> None:
    first = b"".join(scalar("loss", step, 1.0) for step in (0, 1, 2, 3))
    second = b"".join(scalar("loss", step, 2.0) for step in (2, 3, 4))
    logs = LogFolder(tmp_path)
    if split:
        (tmp_path / NAME).write_bytes(first)
        assert logs.poll().findings == ()
    (tmp_path / NAME).write_bytes(first + second)
    (finding,) = logs.poll().findings
    assert (finding.kind, finding.value) == (FindingKind.STEPS_BACKWARDS, "step 2 after step 3")
    series = logs.series("loss")
    assert series.step.tolist() == [0, 1, 2, 3, 4]
    assert series.value.tolist() == [1.0, 1.0, 2.0, 2.0, 2.0]
    assert logs.as_written("loss", writer=1).step.tolist() == [0, 1, 2, 3, 2, 3, 4]


# -- several writers


def resume(folder: Path, *, purge: bool) -> None:
    from tensorboard.summary.writer import event_file_writer
    from torch.utils.tensorboard import SummaryWriter

    for k, (start, end) in enumerate([(0, 100), (60, 120), (110, 150)], 1):
        purge_step = start if purge and k > 1 else None
        # TensorBoard reads files by name: the numbers of writers in one process must have equally many digits.
        with (
            mock.patch.object(event_file_writer, "_global_uid", event_file_writer.AtomicCounter(1000 + k)),
            SummaryWriter(str(folder), purge_step=purge_step, filename_suffix=f".r{k}") as writer,
        ):
            for step in range(start, end):
                writer.add_scalar("loss", 1000 * k + step, step)
                if step % 25 == 0:
                    writer.add_scalar("eval", 1000 * k + step, step)


@pytest.mark.parametrize("purge", [True, False])
def test_the_newer_writer_wins_after_a_resume(tmp_path: Path, purge: bool) -> None:
    from tensorboard.backend.event_processing.event_accumulator import STORE_EVERYTHING_SIZE_GUIDANCE, EventAccumulator

    resume(tmp_path, purge=purge)
    logs = LogFolder(tmp_path)
    assert logs.poll().findings == ()
    series = logs.series("loss")
    assert logs.writers() == [1, 2, 3]
    assert series.step.tolist() == list(range(150))
    assert series.writer.tolist() == [1] * 60 + [2] * 50 + [3] * 40
    assert series.value.tolist() == [1000 * k + step for step, k in zip(series.step, series.writer, strict=True)]
    if purge:
        accumulator = EventAccumulator(str(tmp_path), size_guidance=STORE_EVERYTHING_SIZE_GUIDANCE)
        accumulator.Reload()
        for tag in ("loss", "eval"):
            expected = [(event.step, event.value) for event in accumulator.Scalars(tag)]
            mine = logs.series(tag)
            assert list(zip(mine.step.tolist(), mine.value.tolist(), strict=True)) == expected
    assert logs.as_written("loss", writer=1).step.tolist() == list(range(100))


def test_a_purge_step_removes_later_points_also_of_tags_that_are_not_logged_again(tmp_path: Path) -> None:
    old = b"".join(scalar("eval", step, 1.0) for step in range(10))
    start = Event(wall_time=5, step=4, session_log=SessionLog(status=SessionLog.START))
    (tmp_path / f"{NAME}.r1").write_bytes(old)
    logs = LogFolder(tmp_path)
    logs.poll()
    assert len(logs.series("eval")) == 10
    (tmp_path / f"{NAME}.r2").write_bytes(frame(start.SerializeToString()) + scalar("loss", 4, 0.0))
    logs.poll()
    assert logs.series("eval").step.tolist() == [0, 1, 2, 3]


def test_tags_that_count_steps_differently_do_not_remove_points_of_each_other(tmp_path: Path) -> None:
    # Epochs beside steps: the newer writer's first epoch says nothing about the steps of another tag.
    (tmp_path / f"{NAME}.r1").write_bytes(
        b"".join(scalar("loss", step, 1.0) for step in range(100)) + scalar("epoch/acc", 0, 0.5)
    )
    (tmp_path / f"{NAME}.r2").write_bytes(scalar("epoch/acc", 1, 0.6) + scalar("loss", 100, 1.0))
    logs = LogFolder(tmp_path)
    logs.poll()
    assert len(logs.series("loss")) == 101
    assert logs.series("epoch/acc").writer.tolist() == [1, 2]


def test_without_suffixes_time_stamps_order_the_writers(tmp_path: Path) -> None:
    for seconds, value in ((30, 3.0), (10, 1.0), (20, 2.0)):
        name = f"events.out.tfevents.18000000{seconds}.host.{seconds}.0"
        (tmp_path / name).write_bytes(b"".join(scalar("loss", step, value) for step in range(seconds, 40)))
    logs = LogFolder(tmp_path)
    poll = logs.poll()
    assert logs.series("loss").value.tolist() == [1.0] * 10 + [2.0] * 10 + [3.0] * 10
    assert logs.series("loss").writer.tolist() == [1] * 10 + [2] * 10 + [3] * 10
    assert poll.points["loss"].writer.tolist() == [1] * 30 + [2] * 20 + [3] * 10


def test_all_writers_of_an_attempt_are_older_than_those_of_the_next_attempt() -> None:
    names = [f"events.out.tfevents.{10 + at}.box.{at}.0{suffix}" for at, suffix in enumerate(
        [".a1.r4", ".a1.r5", ".a2.r6", ".a1.r6", ".a1.r7", ".a2.r7", ""]
    )]  # fmt: skip
    assert [number_writers(names)[name] for name in names] == [4, 5, 6, 5, 5, 7, 7]
    earlier = ["events.out.tfevents.1.box.1.0.r1", "events.out.tfevents.2.box.2.0.r2", names[2]]
    assert list(number_writers(earlier).values()) == [1, 2, 6], "those of a version without attempts come first"


def test_points_of_the_next_attempt_replace_later_points_of_a_cut_off_writer(tmp_path: Path) -> None:
    from torch.utils.tensorboard import SummaryWriter

    for suffix, first, value in ((".a1.r1", 0, 1.0), (".a2.r2", 10, 2.0), (".a1.r2", 5, 3.0)):
        with SummaryWriter(str(tmp_path), filename_suffix=suffix) as writer:
            for step in range(first, first + 20):
                writer.add_scalar("loss", value, step)
    logs = LogFolder(tmp_path)
    logs.poll()
    assert logs.series("loss").value.tolist() == [1.0] * 5 + [3.0] * 5 + [2.0] * 20


def test_the_own_writer_of_a_script_belongs_to_its_incarnation(tmp_path: Path) -> None:
    def put(name: str, tag: str, steps: range) -> None:
        (tmp_path / f"events.out.tfevents.{name}").write_bytes(b"".join(scalar(tag, step, 1.0) for step in steps))

    put("1800000010.host.5.0.r1", "eunomia/step_seconds", range(50))
    put("1800000008.host.5.1", "loss", range(50))  # the same process, though opened earlier
    put("1800000099.host.9.0.r2", "eunomia/step_seconds", range(40, 90))
    put("1800000120.other.1.0", "loss", range(40, 90))  # another process, after r2 began
    logs = LogFolder(tmp_path)
    logs.poll()
    for tag in ("loss", "eunomia/step_seconds"):
        assert logs.series(tag).step.tolist() == list(range(90))
        assert logs.series(tag).writer.tolist() == [1] * 40 + [2] * 50


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 12), st.booleans()), min_size=1, max_size=5))
def test_a_merged_series_equals_the_rule_applied_point_by_point(tmp_path_factory, runs) -> None:
    folder = tmp_path_factory.mktemp("logs")
    expected: dict[int, int] = {}
    for k, (start, count, purges) in enumerate(runs, 1):
        session = Event(wall_time=1, step=start, session_log=SessionLog(status=SessionLog.START))
        data = frame(session.SerializeToString()) if purges else b""
        (folder / f"{NAME}.r{k}").write_bytes(data + b"".join(scalar("t", start + i, k) for i in range(count)))
        if purges or count:
            expected = {step: writer for step, writer in expected.items() if step < start}
        expected |= {start + i: k for i in range(count)}
    logs = LogFolder(folder)
    logs.poll()
    series = logs.series("t")
    assert dict(zip(series.step.tolist(), series.writer.tolist(), strict=True)) == expected
    assert (np.diff(series.step) > 0).all()
