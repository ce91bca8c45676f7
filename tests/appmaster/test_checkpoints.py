"""Checkpoints are atomic, verified, and never lose the last good one."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eunomia.errors import InputError
from eunomia_appmaster.app.checkpoints import CheckpointError, CheckpointStore
from eunomia_appmaster.node.kept_files import opened, sealed


def writes(content: bytes):
    return lambda path: path.write_bytes(content)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def record_of(path: Path) -> dict[str, object]:
    return opened(path.read_bytes())[0]


def test_a_save_writes_data_and_a_record(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "checkpoints")
    saved = store.save(96, writes(b"state"), incarnation=2)
    assert saved.path.read_bytes() == b"state"
    assert names(store.folder) == {"000096.pt", "000096.json"}
    record = json.loads((store.folder / "000096.json").read_text())
    assert record.keys() == {"step", "sha256", "bytes", "incarnation", "saved_at", "sum"}
    assert (record["step"], record["bytes"], record["incarnation"]) == (96, 5, 2)
    assert CheckpointStore(store.folder).latest() == saved


def test_an_absent_or_empty_folder_has_no_checkpoint(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "absent")
    assert store.latest() is None
    assert store.steps() == []
    assert CheckpointStore(tmp_path).latest() is None


def test_the_newest_checkpoints_are_kept_and_other_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "last.pt").write_bytes(b"the user's")
    store = CheckpointStore(tmp_path, keep=2)
    for step in (10, 20, 30, 1_000_000):
        store.save(step, writes(b"%d" % step), incarnation=1)
    assert store.steps() == [30, 1_000_000]
    assert names(tmp_path) == {"last.pt", "000030.pt", "000030.json", "1000000.pt", "1000000.json"}


@pytest.mark.parametrize(
    ("damage", "rule"),
    [
        (lambda data, record: data.write_bytes(b"stat_"), "SHA-256"),
        (lambda data, record: data.write_bytes(b"sta"), "size"),
        (lambda data, record: data.unlink(), "readable"),
        (lambda data, record: record.write_text("{"), "JSON"),
        (lambda data, record: record.write_text("{}"), "must hold step"),
        (lambda data, record: record.write_text(record.read_text().replace("20", "21", 1)), "as it was written"),
        (
            lambda data, record: record.write_text(sealed(opened(record.read_bytes())[0] | {"step": 21})),
            "named after its step",
        ),
    ],
)
def test_a_corrupt_checkpoint_is_set_aside_and_the_last_good_one_returned(tmp_path: Path, damage, rule) -> None:
    store = CheckpointStore(tmp_path)
    good = store.save(10, writes(b"state"), incarnation=1)
    bad = store.save(20, writes(b"state"), incarnation=1)
    damage(bad.path, bad.path.with_suffix(".json"))
    reader = CheckpointStore(tmp_path)
    assert reader.latest() == good
    (fault,) = reader.faults
    assert rule in fault.rule
    assert fault.value is not None
    assert fault.place is not None and "000020" in fault.place
    assert "000020.json.corrupt" in names(tmp_path)
    assert reader.steps() == [10]
    assert reader.latest() == good
    assert len(reader.faults) == 1


def test_a_changed_record_is_refused_after_its_checkpoint_was_verified(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    record = store.save(10, writes(b"state"), incarnation=1).path.with_suffix(".json")
    assert store.latest() is not None
    values, _ = opened(record.read_bytes())
    record.write_text(sealed(values | {"sha256": "0" * 64}))
    assert store.latest() is None


def test_a_second_corrupt_checkpoint_is_set_aside_without_deleting_the_first(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    for _ in range(2):
        store.save(20, writes(b"state"), incarnation=1).path.write_bytes(b"_tate")
        assert CheckpointStore(tmp_path).latest() is None
    assert {"000020.pt.corrupt", "000020.pt.2.corrupt"} <= names(tmp_path)


def test_corrupt_checkpoints_do_not_count_towards_the_number_kept(tmp_path: Path) -> None:
    CheckpointStore(tmp_path).save(10, writes(b"good"), incarnation=1)
    CheckpointStore(tmp_path).save(20, writes(b"bad"), incarnation=1).path.write_bytes(b"BAD")
    store = CheckpointStore(tmp_path)
    store.save(30, writes(b"good"), incarnation=2)
    assert store.steps() == [10, 30]
    assert [fault.place for fault in store.faults] == [str(tmp_path / "000020.pt")]


def test_an_incarnation_resumed_from_an_earlier_step_replaces_later_steps(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    store.save(96, writes(b"a"), incarnation=1)
    store.save(128, writes(b"b"), incarnation=1)
    saved = store.save(100, writes(b"c"), incarnation=2)
    assert store.latest() == saved
    assert store.steps() == [100, 128]


def test_a_failed_write_leaves_the_earlier_checkpoint(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    good = store.save(10, writes(b"good"), incarnation=1)

    def half(path: Path) -> None:
        path.write_bytes(b"hal")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        store.save(20, half, incarnation=1)
    with pytest.raises(CheckpointError, match="must leave a file"):
        store.save(20, lambda path: None, incarnation=1)
    assert names(tmp_path) == {"000010.pt", "000010.json"}
    assert store.latest() == good


def test_leftover_files_are_removed_by_the_next_save(tmp_path: Path) -> None:
    (tmp_path / ".000020.pt.99.ab.tmp").write_bytes(b"half")
    (tmp_path / ".000020.json.99.ab.tmp").write_text("{")
    CheckpointStore(tmp_path).latest()
    assert len(names(tmp_path)) == 2, "a reader must not touch what a writer may be writing"
    CheckpointStore(tmp_path).save(30, writes(b"x"), incarnation=1)
    assert names(tmp_path) == {"000030.pt", "000030.json"}


@pytest.mark.parametrize("step", [10, 20])
def test_a_save_interrupted_between_its_two_renames_leaves_a_valid_checkpoint(tmp_path: Path, step: int) -> None:
    # The same step saved again: new data stand beside the old record until the second rename.
    store = CheckpointStore(tmp_path)
    store.save(20, writes(b"old"), incarnation=1)
    store.save(30, writes(b"new"), incarnation=2)
    (tmp_path / "000030.pt").replace(tmp_path / "000020.pt")
    record = record_of(tmp_path / "000030.json") | {"step": 20}
    (tmp_path / "000030.json").unlink()
    (tmp_path / ".000020.json.1.a.tmp").write_text(sealed(record))
    reader = CheckpointStore(tmp_path)
    found = reader.latest()
    assert found is not None and (found.step, found.incarnation, reader.faults) == (20, 2, [])
    CheckpointStore(tmp_path).save(40, writes(b"next"), incarnation=3)
    assert names(tmp_path) == {"000020.pt", "000020.json", "000040.pt", "000040.json"}
    assert json.loads((tmp_path / "000020.json").read_text())["incarnation"] == 2


def test_the_last_good_checkpoint_survives_a_killed_writer(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from eunomia_appmaster.app.checkpoints import CheckpointStore\n"
        "store = CheckpointStore(Path(sys.argv[1]))\n"
        "for step in range(int(sys.argv[2]), 100000):\n"
        "    store.save(step, lambda path: path.write_bytes(b'%d' % step * 50000), incarnation=int(sys.argv[3]))\n"
        "    print(step, flush=True)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    first = 1
    for incarnation in (1, 2, 3):
        command = [sys.executable, "-c", script, str(tmp_path), str(first), str(incarnation)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as process:
            assert process.stdout is not None
            written = [int(process.stdout.readline()) for _ in range(5)][-1]
            process.send_signal(signal.SIGKILL)
        reader = CheckpointStore(tmp_path)
        found = reader.latest()
        assert found is not None and found.step >= written and found.incarnation == incarnation
        assert found.path.read_bytes() == b"%d" % found.step * 50000
        assert reader.faults == []
        first = found.step


@given(steps=st.lists(st.integers(0, 30), min_size=1, max_size=8), keep=st.integers(1, 4))
def test_the_latest_checkpoint_is_the_last_saved_whatever_its_step(
    tmp_path_factory, steps: list[int], keep: int
) -> None:
    store = CheckpointStore(tmp_path_factory.mktemp("checkpoints"), keep=keep)
    for incarnation, step in enumerate(steps, 1):
        saved = store.save(step, writes(b"%d" % incarnation), incarnation=incarnation)
        assert store.latest() == saved
    newest_first = list(dict.fromkeys(reversed(steps)))
    assert store.steps() == sorted(newest_first[:keep])


def test_bad_arguments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at least 1"):
        CheckpointStore(tmp_path, keep=0)
    with pytest.raises(InputError, match="negative"):
        CheckpointStore(tmp_path).save(-1, writes(b""), incarnation=1)
