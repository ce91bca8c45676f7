"""Files with a sum and an older copy: each damage is noticed, and the copy is taken and said."""

import json
from pathlib import Path
from typing import Any

import pytest
import structlog
from tests.appmaster.state_records import write_whole

from eunomia.errors import InputError
from eunomia_appmaster.launcher.files import read_kept_json, write_json
from eunomia_appmaster.launcher.node import Epochs
from eunomia_appmaster.master.files import KeptState, StateError, read_state
from eunomia_appmaster.master.jobs import Job, JobState
from eunomia_appmaster.node.kept_files import read_kept

OLD: dict[str, Any] = {"0": {"highest": 7, "closed": 5}}
NEW: dict[str, Any] = {"0": {"highest": 9, "closed": 7}, "1": {"highest": 8, "closed": 0}}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file that was written twice."""
    made = tmp_path / "epochs.json"
    write_json(made, OLD)
    write_json(made, NEW)
    return made


def test_the_newer_file_is_read_while_it_is_valid(path: Path) -> None:
    kept = read_kept(path, remedy="none")
    assert (kept.content, kept.damage) == (NEW, "")
    path.with_name("epochs.json.old").unlink()
    assert read_kept(path, remedy="none").content == NEW
    assert read_kept(path.with_name("other.json"), remedy="none").content is None


def test_any_damaged_byte_and_any_truncation_is_reported(path: Path) -> None:
    good = path.read_bytes()
    damages = [good[:at] for at in range(len(good))]
    damages += [
        good[:at] + bytes([good[at] ^ flip]) + good[at + 1 :] for at in range(len(good)) for flip in (1, 4, 128)
    ]
    damages += [b"", b"[]", b"null", b"\x00" * len(good)]
    for damage in damages:
        path.write_bytes(damage)
        kept = read_kept(path, remedy="none")
        assert (kept.content, bool(kept.damage)) in ((OLD, True), (NEW, False)), damage
        if not kept.damage:
            assert json.loads(damage) == json.loads(good), damage


def test_the_launcher_reads_the_older_copy_of_a_damaged_file_and_logs_it(path: Path) -> None:
    path.write_text(path.read_text()[:20])
    with structlog.testing.capture_logs() as logs:
        assert read_kept_json(path) == OLD
    assert logs == [
        {
            "event": "launcher.older_copy",
            "log_level": "error",
            "why": logs[0]["why"],
            "taken": "epochs.json.old",
            "place": str(path),
        }
    ]
    assert "epochs.json is damaged: " in logs[0]["why"]
    assert path.with_name("epochs.json.damaged").exists()
    epochs = Epochs(path)
    assert (epochs[0].highest, epochs[1].highest) == (7, 0)
    epochs.saw(0, 12)
    assert Epochs(path)[0].highest == 12
    assert read_kept(path.with_name("epochs.json.old"), remedy="none").content == OLD


def test_the_older_copy_replaces_a_missing_file(path: Path) -> None:
    path.unlink()
    kept = read_kept(path, remedy="none")
    assert (kept.content, kept.damage) == (OLD, "epochs.json is gone")


def test_two_damaged_copies_are_refused_and_the_error_names_the_remedy(path: Path) -> None:
    for each in (path, path.with_name("epochs.json.old")):
        each.write_text("{")
    with pytest.raises(InputError, match="or restart the machine, so that no worker is left, and delete it"):
        Epochs(path)
    path.write_text('{"one": {"highest": 1}}')
    with pytest.raises(InputError, match="epochs must be numbers by slot; restore it from a backup"):
        Epochs(path)


def test_a_file_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    path = tmp_path / "epochs.json"
    path.write_text(json.dumps(OLD))
    epochs = Epochs(path)
    epochs.saw(0, 12)
    assert json.loads((tmp_path / "epochs.json.old").read_text()) == OLD
    assert Epochs(path)[0].highest == 12


def test_an_app_master_resumes_from_the_older_state_with_new_incarnations(tmp_path: Path) -> None:
    path = tmp_path / "master.json"
    runs = Job(number=1, parameters={}, seed=0, incarnation=2, state=JobState.RUNNING)
    over = Job(number=2, parameters={}, seed=0, incarnation=3, state=JobState.FINISHED)
    write_whole(path, KeptState({"at": 1}, [runs, over]))
    write_whole(path, KeptState({"at": 2}, [runs, over]))
    path.write_bytes(path.read_bytes().replace(b'"at": 2', b'"at": 3'))
    with structlog.testing.capture_logs() as logs:
        state = read_state(path)
    assert state is not None
    assert (state[0], [job.incarnation for job in state[1]]) == ({"at": 1}, [3, 3])
    assert [(line["event"], line["why"]) for line in logs] == [
        ("master.older_copy", "master.json is damaged: its sum is wrong")
    ]
    assert state.notices == (
        "master.json is damaged: its sum is wrong; the search goes on from its older copy, which is one write older",
    )
    for each in tmp_path.glob("master.json*"):
        each.write_text("{")
    with pytest.raises(StateError, match="restore it from a backup, or submit the app"):
        read_state(path)
