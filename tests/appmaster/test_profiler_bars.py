"""What the profiler is held to at its limits: a million points, folders that move, clocks that jump."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.util import tensor_util
from tests.appmaster.test_profiler_rates import log
from tests.appmaster.test_profiler_reader import NAME, records, scalar

from eunomia.units import Locality
from eunomia_appmaster.profiler import FindingKind, LogFolder, measure_rates
from eunomia_appmaster.profiler.crc32c import crc32c_columns, masked_columns

HOUR = 3600.0


def framed(events: list[bytes]) -> bytes:
    """Event records, their checksums reckoned for all of one length at once."""
    frames = [b""] * len(events)
    by_length: dict[int, list[int]] = {}
    for index, event in enumerate(events):
        by_length.setdefault(len(event), []).append(index)
    for length, rows in by_length.items():
        columns = np.frombuffer(b"".join(events[row] for row in rows), np.uint8).reshape(-1, length).T
        header = np.frombuffer(length.to_bytes(8, "little"), np.uint8)
        head = header.tobytes() + masked_columns(crc32c_columns(header[:, None])).tobytes()
        for row, crc in zip(rows, masked_columns(crc32c_columns(np.ascontiguousarray(columns))), strict=True):
            frames[row] = head + events[row] + crc.tobytes()
    return b"".join(frames)


def event(tag: str, step: int) -> bytes:
    summary = Summary(value=[Summary.Value(tag=tag, simple_value=1.0 / (step + 1))])
    return Event(wall_time=1.8e9 + 0.01 * step, step=step, summary=summary).SerializeToString()


@pytest.mark.slow
@pytest.mark.timeout(1800)  # the library takes two minutes of a quiet core for as many
def test_a_million_points_equal_those_of_the_tensorboard_reader_without_sampling(tmp_path: Path) -> None:
    tags = [f"layer{number}" for number in range(7)]
    (tmp_path / NAME).write_bytes(framed([event(tags[step % 7], step) for step in range(1_000_000)]))
    logs = LogFolder(tmp_path)
    assert logs.poll().findings == ()
    theirs: dict[str, list[tuple[int, float, float]]] = {}
    for read in EventFileLoader(str(tmp_path / NAME)).Load():
        for value in read.summary.value:
            number = float(tensor_util.make_ndarray(value.tensor).item())
            theirs.setdefault(value.tag, []).append((read.step, read.wall_time, number))
    assert sum(map(len, theirs.values())) == 1_000_000
    for tag, points in theirs.items():
        series = logs.series(tag)
        columns = np.array(points).T
        for mine, other in zip((series.step, series.wall_time, series.value), columns, strict=True):
            np.testing.assert_array_equal(mine, other)


def test_a_moved_folder_is_reported_and_read_at_its_new_path(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    (here / NAME).write_bytes(b"".join(records(20)))
    logs = LogFolder(here)
    logs.poll()
    here.rename(there)
    (finding,) = logs.poll().findings
    assert (finding.kind, finding.path) == (FindingKind.FILE_GONE, here / NAME)
    assert len(logs.series("loss")) == 20, "what was measured stays"
    with (there / NAME).open("ab") as file:
        file.write(scalar("loss", 20, 0.5))
    here.symlink_to(there)
    poll = logs.poll()
    assert poll.findings == ()
    assert logs.series("loss").step.tolist() == list(range(21))


def test_a_log_folder_replaced_by_its_copy_keeps_all_points(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / NAME).write_bytes(b"".join(records(20)))
    logs = LogFolder(tmp_path / "a")
    logs.poll()
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    shutil.rmtree(tmp_path / "a")
    (tmp_path / "b").rename(tmp_path / "a")
    logs.poll()
    assert logs.series("loss").step.tolist() == list(range(20))


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
def test_a_clock_that_jumps_by_an_hour_changes_no_rate(tmp_path: Path, jump: float) -> None:
    seconds = [0.5] * 100
    seconds[40] += jump
    log(tmp_path, 1, seconds)
    logs = LogFolder(tmp_path)
    logs.poll()
    (found,) = measure_rates(logs, {1: (1, Locality.MACHINE)})
    assert found.seconds_per_iteration == pytest.approx(0.5)
    assert logs.series("loss").step.tolist() == list(range(100))
