"""The record of an app master's state: whatever is appended and wherever it is cut, its last whole entry is found."""

import copy
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eunomia_appmaster.app.master_folders import CHANGES_FILE
from eunomia_appmaster.master import record as records
from eunomia_appmaster.master.files import KeptState, StateError, read_state, rest_of
from eunomia_appmaster.master.job_index import JobIndex
from eunomia_appmaster.master.jobs import Gang, Job, JobState
from eunomia_appmaster.master.record import StateRecord
from eunomia_appmaster.node.json_changes import changed, difference
from eunomia_appmaster.node.kept_files import complete, keep_older, sealed
from eunomia_appmaster.node.system import MachineSystem
from strength import examples

STATES = tuple(JobState)
SMALL = settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def plain(state: KeptState | None) -> Any:
    """What matters of a state, as values."""
    if state is None:
        return None
    return state.tuner, [job.to_json() for job in state.jobs], state.notices, state.growth


class QuickDisk(MachineSystem):
    """The machine without the waits for a disk: only a cut of power would show the difference."""

    def replace_file(self, path: Path, text: str, *, older: bool = False) -> None:
        made = path.with_name(f"{path.name}.tmp")
        made.write_text(text)
        if older:
            keep_older(path)
        made.replace(path)
        if older:
            complete(path, text)

    def append_line(self, path: Path, line: str, *, sync: bool = False) -> None:
        super().append_line(path, line)


class App:
    """Jobs and a tuner's state that a test changes, and all that the record was given."""

    def __init__(self, path: Path, jobs: int, **more: Any) -> None:
        self.path = path
        made = [Job(number=number, parameters={"lr": 0.1}, seed=number) for number in range(1, jobs + 1)]
        self.jobs = JobIndex(made)
        self.tuner: dict[str, Any] = {"over": [], "scores": {}, "brackets": [{"level": 0}, {"level": 1}]}
        self.record = StateRecord(path, self.jobs, **({"system": QuickDisk()} | more))
        self.written: list[Any] = []

    def do(self, change: tuple[int, int, float]) -> None:
        """Change a job and the tuner's state, and write it."""
        kind, number, drawn = change
        number = 1 + number % (len(self.jobs) or 1)
        if kind == 0 or not self.jobs:
            self.jobs.add(Job(number=len(self.jobs) + 1, parameters={}, seed=0))
        elif kind == 1:
            job = self.jobs[number]
            job.incarnation += 1
            job.gang = Gang(
                incarnation=job.incarnation, gpus=(number,), containers=("c",), stop_at=None, began_at=1.0, from_step=0
            )
            job.sizes[job.incarnation] = (1, 0)
        elif kind == 2:
            self.jobs[number].step += 1
            self.jobs[number].metric = drawn
            if (gang := self.jobs[number].gang) is not None:
                gang.running = True
        elif kind == 3:
            self.jobs[number].gang = None
            self.jobs[number].state = STATES[number % len(STATES)]
            self.tuner["over"] = sorted({*self.tuner["over"], number})
        else:
            self.tuner["scores"][str(number)] = None if math.isnan(drawn) else drawn
            self.tuner["brackets"][number % 2]["level"] += 1
        self.write()

    def write(self) -> None:
        self.record.write(rest_of(self.tuner, KeptState(None, []).growth, ("a notice",)))
        self.written.append(copy.deepcopy(plain(self.state())))

    def state(self) -> KeptState:
        return KeptState(self.tuner, list(self.jobs.values()), notices=("a notice",))


CHANGES = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 5), st.sampled_from([0.5, 1.0, math.nan])), min_size=1, max_size=25
)


@SMALL
@given(jobs=st.integers(0, 4), changes=CHANGES, log_bytes=st.sampled_from([0, 900, 64 * 1024]))
def test_the_last_state_written_is_read_however_often_the_log_is_compacted(
    tmp_path_factory: pytest.TempPathFactory, jobs: int, changes: list[tuple[int, int, float]], log_bytes: int
) -> None:
    path = tmp_path_factory.mktemp("app") / "master.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "LEAST_LOG_BYTES", log_bytes)
        app = App(path, jobs)
        for change in changes:
            app.do(change)
            assert plain(read_state(path)) == app.written[-1]


@SMALL
@given(changes=CHANGES, data=st.data())
def test_a_log_cut_at_any_byte_gives_the_last_complete_entry(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int, float]], data: st.DataObject
) -> None:
    app = App(tmp_path_factory.mktemp("app") / "master.json", 3)
    app.write()
    log = app.path.with_name(CHANGES_FILE)
    after = {1: app.written[-1]}
    """By lines of the log: the state."""
    for change in changes:
        app.do(change)
        after[len(log.read_bytes().splitlines())] = app.written[-1]
    content = log.read_bytes()
    at = data.draw(st.integers(0, len(content)))
    log.write_bytes(content[:at])
    begun, last = content[:at].count(b"\n"), content[:at].rpartition(b"\n")[2]
    whole = begun + (bool(last) and content[at : at + 1] == b"\n")
    state = read_state(app.path)
    assert state is not None
    expected = after[max(1, whole)]
    torn = whole == 0 or (bool(last) and whole == begun)
    left_out = [job.incarnation - then["incarnation"] for job, then in zip(state.jobs, expected[1], strict=True)]
    assert left_out == [torn and not job.state.over for job in state.jobs]  # one may have been started
    for job, then in zip(state.jobs, expected[1], strict=True):
        job.incarnation = then["incarnation"]
    assert plain(state) == expected


@pytest.fixture
def app(tmp_path: Path) -> App:
    """An app with a state and a log of three entries."""
    made = App(tmp_path / "master.json", 2)
    made.write()
    for step in range(3):
        made.do((2, step, 0.5))
    return made


def test_a_damaged_entry_is_reported_and_unfinished_jobs_skip_an_incarnation(app: App) -> None:
    log = app.path.with_name(CHANGES_FILE)
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join([*lines[:2], lines[2].replace('"step": 1', '"step": 7'), *lines[3:]]))
    state = read_state(app.path)
    assert state is not None
    assert [job.step for job in state.jobs] == [1, 0]
    assert [job.incarnation for job in state.jobs] == [1, 1]
    assert state.notices[-1] == (
        f"{CHANGES_FILE} is damaged after entry 1: its sum is wrong; the search goes on from that entry"
    )


def test_a_missing_entry_is_reported(app: App) -> None:
    log = app.path.with_name(CHANGES_FILE)
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join([*lines[:2], *lines[3:]]))
    state = read_state(app.path)
    assert state is not None
    assert "is damaged after entry 1: entry 2 is missing" in state.notices[-1]


@pytest.mark.parametrize("how", [lambda path: path.unlink(), lambda path: path.write_text("{")])
def test_the_older_state_and_both_logs_restore_a_damaged_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: Callable[[Path], object]
) -> None:
    monkeypatch.setattr(records, "LEAST_LOG_BYTES", 2000)
    app = App(tmp_path / "master.json", 2)
    for step in range(40):
        app.do((2, step, 0.5))
    assert json.loads(app.path.read_text())["state"] > 2
    how(app.path)
    state = read_state(app.path)
    assert state is not None
    for job in state.jobs:
        job.incarnation -= 1
    assert "the search goes on from its older copy and all that changed since" in state.notices[-1]
    assert plain(state._replace(notices=("a notice",))) == app.written[-1]


def test_a_state_file_of_an_earlier_version_can_be_read_and_extended(tmp_path: Path) -> None:
    path = tmp_path / "master.json"
    job = Job(number=1, parameters={"lr": 0.1}, seed=3, step=7)
    path.write_text(sealed({"schema": 1, "tuner": {"at": 1}, "jobs": [job.to_json()], "more": {}, "notices": []}))
    state = read_state(path)
    assert state is not None
    assert (state.tuner, state.jobs, state.number) == ({"at": 1}, [job], 0)
    app = App(path, 0, number=state.number)
    app.jobs.add(state.jobs[0])
    app.write()
    app.do((2, 0, 0.5))
    assert plain(read_state(path)) == app.written[-1]
    assert json.loads(path.with_name("master.json.old").read_text())["schema"] == 1
    path.write_text(sealed({"schema": 9, "jobs": []}))
    with pytest.raises(StateError, match="schema 1 or 2"):
        read_state(path)


class FullDisk(QuickDisk):
    """A disk that refuses some of the writes, after a part of the line."""

    refuse = False

    def append_line(self, path: Path, line: str, *, sync: bool = False) -> None:
        if self.refuse:
            with path.open("a") as file:
                file.write(line[: len(line) // 2])
            raise OSError(28, "No space left on device")
        super().append_line(path, line, sync=sync)


def test_a_complete_state_is_written_after_a_failed_append(tmp_path: Path) -> None:
    disk = FullDisk()
    app = App(tmp_path / "master.json", 2, system=disk)
    app.write()
    disk.refuse = True
    with pytest.raises(OSError, match="No space left"):
        app.do((2, 0, 0.5))
    disk.refuse = False
    app.write()
    app.do((2, 1, 0.5))
    assert plain(read_state(app.path)) == app.written[-1]


def test_jobs_that_did_not_change_are_not_written_again(tmp_path: Path) -> None:
    app = App(tmp_path / "master.json", 5000)
    app.write()
    log = app.path.with_name(CHANGES_FILE)
    before = log.stat().st_size
    app.write()
    assert log.stat().st_size == before
    app.do((2, 3, 0.5))
    app.do((4, 3, 0.5))
    assert log.stat().st_size - before < 2000
    assert app.path.stat().st_size > 1_000_000


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2) | st.sampled_from([0.0, 1.0]) | st.sampled_from("ab"),
    lambda part: st.lists(part, max_size=4) | st.dictionaries(st.sampled_from(["a", "is", "in", "at"]), part),
    max_leaves=12,
)


@settings(max_examples=examples(300), deadline=None)
@given(VALUES, VALUES)
def test_a_difference_applied_to_the_old_value_gives_the_new_one(old: Any, new: Any) -> None:
    by = difference(old, new)
    made = copy.deepcopy(old) if by is None else changed(copy.deepcopy(old), json.loads(json.dumps(by)))
    assert json.dumps(made, sort_keys=True) == json.dumps(new, sort_keys=True)


def test_an_insertion_in_the_middle_of_a_long_list_is_one_short_difference() -> None:
    numbers = list(range(0, 20_000, 2))
    assert difference(numbers, sorted([*numbers, 7001])) == {"at": 3501, "drop": 0, "put": [7001]}
    with pytest.raises(ValueError, match="of the value before"):
        changed([1], {"at": 5, "drop": 1, "put": []})
