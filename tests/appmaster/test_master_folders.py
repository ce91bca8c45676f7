"""App masters of two attempts that live at once: neither touches what the other wrote, and the later one counts."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eunomia.errors import EunomiaError
from eunomia_appmaster.app.fences import Fence
from eunomia_appmaster.app.master_folders import STATE_FILE, OwnFolder, activity_files, trials_file
from eunomia_appmaster.app.trials_file import read_trials_file
from eunomia_appmaster.master.files import KeptState, StateError, TrialsFile, read_newest_state, read_state, rest_of
from eunomia_appmaster.master.job_index import JobIndex
from eunomia_appmaster.master.jobs import Job, JobState
from eunomia_appmaster.master.record import StateRecord
from strength import examples

_spec = importlib.util.spec_from_file_location("interleaving", Path(__file__).parent / "interleaving.py")
assert _spec is not None
assert _spec.loader is not None
interleaving = sys.modules.setdefault("interleaving", importlib.util.module_from_spec(_spec))
_spec.loader.exec_module(interleaving)


class Attempt:
    """What one attempt of an app master does with its files."""

    def __init__(self, app_dir: Path, attempt: int) -> None:
        self.own = OwnFolder(app_dir, attempt)
        kept = read_newest_state(app_dir)
        found = [Job(number=1, parameters={}, seed=0, state=JobState.WAITING)] if kept is None else kept.jobs
        self.jobs = JobIndex(found)
        self.record = StateRecord(self.own.path / STATE_FILE, self.jobs, 0 if kept is None else kept.number)
        self.trials = TrialsFile(self.own.path / "trials.csv", "ana", self.jobs)

    def reach(self, step: int) -> None:
        self.jobs[1].step = step
        self.record.write(rest_of({}, KeptState(None, []).growth, ()))
        self.trials.write()


def step_of(app_dir: Path) -> int:
    state = read_newest_state(app_dir)
    assert state is not None
    return state.jobs[0].step


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_an_attempt_that_was_cut_off_changes_no_file_of_the_next_attempt(tmp_path: Path) -> None:
    first = Attempt(tmp_path, 1)
    first.reach(5)
    second = Attempt(tmp_path, 2)
    assert second.jobs[1].step == 5
    first.reach(90)
    assert step_of(tmp_path) == 90, "the second has written nothing yet"
    second.reach(6)
    first.reach(95)
    assert step_of(tmp_path) == 6
    assert [row["iterations"] for row in read_trials_file(tmp_path)] == ["6"]
    second.own.remove_older()
    before = files(tmp_path)
    with pytest.raises(OSError, match="No such file"):
        first.reach(100)
    assert files(tmp_path) == before
    assert step_of(tmp_path) == 6


def test_an_attempt_with_a_lower_number_than_a_recorded_one_is_refused(tmp_path: Path) -> None:
    Attempt(tmp_path, 7).reach(1)
    before = files(tmp_path)
    with pytest.raises(EunomiaError, match=r"must be the newest of its app, but got attempt 3, after 7"):
        OwnFolder(tmp_path, 3)
    assert files(tmp_path) == before
    assert [path.name for path in (tmp_path / "master").iterdir()] == ["a7-g1"]


def test_files_of_an_earlier_version_are_read_and_replaced(tmp_path: Path) -> None:
    jobs = JobIndex([Job(number=1, parameters={}, seed=0, step=4)])
    StateRecord(tmp_path / STATE_FILE, jobs).write(rest_of({}, KeptState(None, []).growth, ()))
    TrialsFile(tmp_path / "trials.csv", "ana", jobs).write()
    (tmp_path / "activity.jsonl").write_text("{}\n")
    assert trials_file(tmp_path) == tmp_path / "trials.csv"
    later = Attempt(tmp_path, 3)
    assert later.jobs[1].step == 4
    later.reach(5)
    later.own.remove_older()
    assert {name.partition("/")[0] for name in files(tmp_path)} == {"master", "activity.jsonl"}, "its events stay"
    later.own.activity.write_text("{}\n")
    assert activity_files(tmp_path) == [tmp_path / "activity.jsonl", tmp_path / "activity" / "a3-g1.jsonl"]
    assert trials_file(tmp_path).parent.name == "a3-g1"


def test_if_both_copies_of_the_newest_state_are_damaged_the_previous_attempt_is_used(
    tmp_path: Path,
) -> None:
    Attempt(tmp_path, 1).reach(5)
    Attempt(tmp_path, 2).reach(6)
    for path in (tmp_path / "master" / "a2-g1").glob("master.json*"):
        path.write_text("{")
    state = read_newest_state(tmp_path)
    assert state is not None
    assert (state.jobs[0].step, state.jobs[0].incarnation) == (5, 1), "one may have been started since"
    assert "the search goes on from what the attempt before had written" in state.notices[-1]
    for path in (tmp_path / "master" / "a1-g1").glob("master.json*"):
        path.write_text("{")
    with pytest.raises(StateError, match="a2-g1"):
        read_newest_state(tmp_path)


@settings(max_examples=examples(20), deadline=None)
@given(
    lives=st.lists(st.integers(0, 3), min_size=2, max_size=3),
    choices=st.lists(st.integers(0, 2), max_size=300),
    crashes=st.dictionaries(st.integers(0, 2), st.integers(0, 100), max_size=2),
)
def test_under_no_interleaving_an_attempt_changes_files_of_another(
    tmp_path_factory: pytest.TempPathFactory, lives: list[int], choices: list[int], crashes: dict[int, int]
) -> None:
    folder = tmp_path_factory.mktemp("app")
    own = {number: f"a{number + 1}-g1" for number in range(len(lives))}

    def look(operation: Any) -> None:
        mine = own[operation.writer]
        for path in operation.paths:
            parts = path.relative_to(folder).parts
            if operation.what == "os.mkdir" or mine in parts or f"{mine}.jsonl" in parts:
                continue
            assert operation.what in ("os.remove", "os.rmdir"), operation
            other = Fence.parse(parts[1]) if parts[0] == "master" else None
            assert parts[0] != "master" or (other is not None and other.attempt < operation.writer + 1), operation
            assert read_state(folder / "master" / mine / STATE_FILE) is not None, f"{operation}, with no state"

    written = dict.fromkeys(own, -1)

    def work(number: int) -> None:
        try:
            attempt = Attempt(folder, number + 1)
            for step in range(lives[number]):
                attempt.reach(10 * (number + 1) + step)
                written[number] = 10 * (number + 1) + step
                attempt.own.remove_older()
        except FileNotFoundError:
            pass  # a later attempt has taken over
        except EunomiaError as error:
            assert "must be the newest of its app" in error.rule

    scene = interleaving.Interleaving(folder, look)
    scene.run([lambda number=number: work(number) for number in own], choices, crashes)
    known = [number for number, name in own.items() if read_state(folder / "master" / name / STATE_FILE) is not None]
    if known:
        newest = max(known)
        assert step_of(folder) >= written[newest]
        assert step_of(folder) // 10 == newest + 1
    assert all(written[number] < 0 or number <= max(known, default=-1) for number in own)
