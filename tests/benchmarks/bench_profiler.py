"""CPU time of reading event files: own reader against TensorBoard's.

Run: PYTHONPATH=core:appmaster python tests/benchmarks/bench_profiler.py
"""

import tempfile
import time
from pathlib import Path

import numpy as np

from eunomia_appmaster.profiler import LogFolder
from eunomia_appmaster.profiler.crc32c import crc32c_columns, masked_columns

SCALARS = 1_000_000
COMPARED = 50_000  # TensorBoard's reader takes a minute for the whole


def write_events(path: Path, tags: list[bytes], count: int) -> None:
    """Write ``count`` scalars as torch's SummaryWriter encodes them, the tags taking turns."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary

    by_length: dict[int, list[int]] = {}
    events = []
    for i in range(count):
        value = Summary.Value(tag=tags[i % len(tags)].decode(), simple_value=1.0 / (i + 1))
        events.append(Event(wall_time=1.8e9 + i * 0.01, step=i, summary=Summary(value=[value])).SerializeToString())
        by_length.setdefault(len(events[-1]), []).append(i)
    frames = [b""] * count
    for length, rows in by_length.items():
        data = np.frombuffer(b"".join(events[i] for i in rows), dtype=np.uint8).reshape(-1, length)
        crcs = masked_columns(crc32c_columns(np.ascontiguousarray(data.T)))
        header = np.frombuffer(length.to_bytes(8, "little"), dtype=np.uint8)
        head = header.tobytes() + masked_columns(crc32c_columns(header[:, None])).tobytes()
        for i, crc in zip(rows, crcs, strict=True):
            frames[i] = head + events[i] + crc.tobytes()
    path.write_bytes(b"".join(frames))


def cpu(function) -> float:
    start = time.process_time()
    function()
    return time.process_time() - start


def bench_million(folder: Path, tags: list[bytes], words: str) -> None:
    path = folder / "events.out.tfevents.1800000000.host.1.0.r1"
    write_events(path, tags, SCALARS)
    logs = LogFolder(folder)
    seconds = cpu(logs.poll)
    assert sum(len(logs.series(tag)) for tag in logs.tags()) == SCALARS
    size = path.stat().st_size / 1e6
    print(f"{words}: {SCALARS} scalars, {size:.1f} MB: {seconds:.2f} s CPU, every CRC checked")


def bench_against_tensorboard(folder: Path) -> None:
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    path = folder / "events.out.tfevents.1800000000.host.1.0.r1"
    write_events(path, [b"train/loss"], COMPARED)
    own = min(cpu(LogFolder(folder).poll) for _ in range(5))
    theirs = cpu(lambda: sum(1 for _ in EventFileLoader(str(path)).Load()))
    print(f"{COMPARED} scalars: own {own:.3f} s CPU, EventFileLoader {theirs:.3f} s, ratio {theirs / own:.0f}")


def bench_idle(folder: Path) -> None:
    for i in range(1000):
        write_events(folder / f"events.out.tfevents.{1800000000 + i}.host.1.0", [b"loss"], 3)
    logs = LogFolder(folder)
    logs.poll()
    print(f"1000 idle files in one folder: {min(cpu(logs.poll) for _ in range(10)) * 1e3:.1f} ms CPU a poll")
    folders = []
    for i in range(1000):
        (folder / str(i)).mkdir()
        write_events(folder / str(i) / "events.out.tfevents.1800000000.host.1.0.r1", [b"loss"], 3)
        folders.append(LogFolder(folder / str(i)))
    for one in folders:
        one.poll()
    idle = min(cpu(lambda: [one.poll() for one in folders]) for _ in range(10))
    print(f"1000 idle folders of one file: {idle * 1e3:.1f} ms CPU a poll of all")


def main() -> None:
    many = [f"layer{i:03d}/gradient_norm".encode() for i in range(200)]
    for bench in (
        lambda folder: bench_million(folder, [b"train/loss"], "one tag"),
        lambda folder: bench_million(folder, many, "200 tags"),
        bench_against_tensorboard,
        bench_idle,
    ):
        with tempfile.TemporaryDirectory() as folder:
            bench(Path(folder))


if __name__ == "__main__":
    main()
