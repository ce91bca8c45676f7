"""The journal checker: nothing in a good run, and each planted violation by its rule and place."""

import fcntl
import gzip
import importlib.util
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from eunomia.cli import run as eunomia
from eunomia.errors import InputError
from eunomia.journal.files import Keep, Retention
from eunomia.journal.journal import Journal
from eunomia_appmaster.journal_check import Rule, check_folder, reading

_spec = importlib.util.spec_from_file_location("journal_lab", Path(__file__).parent / "journal_lab.py")
lab = sys.modules.setdefault("journal_lab", importlib.util.module_from_spec(_spec))
_spec.loader.exec_module(lab)
ROOT = Path(__file__).parent.parent.parent

Doctor = Callable[[Any], None]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lab.scripted_run(tmp_path_factory.mktemp("run"))


@pytest.fixture
def doctored(good: Path, tmp_path: Path) -> Iterator[Any]:
    shutil.copytree(good, tmp_path / "copy")
    patient = lab.Doctored(tmp_path / "copy")
    yield patient
    patient.close()


def test_a_good_run_has_no_findings(good: Path) -> None:
    report = check_folder(good, over=True)
    assert report.findings == []
    assert (report.steps, report.orders, report.containers, report.checkpoints) == (32, 18, 16, 2)
    assert report.apps == {"finished": 3}


# --- violations, each planted in a copy of the good run


def give_a_held_slot_away(run: Any) -> None:
    number, decision, order = run.order("SUSPEND", 1)  # for the gang of four, which waits for all slots
    order["leaving"]["of"] = [0]  # slot 1 stays with its holder
    run.put(number, decision)


def run_two_workers_at_once(run: Any) -> None:
    run.container("long.1.1.1", "exit", ended_at=lab.BEGAN + 1000.0)


def run_after_the_release(run: Any) -> None:
    path = run.container("short.1.1.0", "exit")
    run.container("short.1.1.0", "exit", ended_at=json.loads(path.read_text())["ended_at"] + 1.25)


def run_a_gang_in_part(run: Any) -> None:
    shutil.rmtree(run.container("wide.1.1.3", "exit").parent)


def order_a_gang_in_part(run: Any) -> None:
    number, decision, order = run.order("START", 0)
    order["gpus"]["of"] = [0]
    order["cpus"]["of"], order["memory_gib"]["of"] = order["cpus"]["of"][:1], order["memory_gib"]["of"][:1]
    run.put(number, decision)


def lose_an_app(run: Any) -> None:
    number, events, decision = run.steps()[-2]
    assert events[0]["is"] == "AppFinished"
    run.write(number, [], decision)
    run.sql("DELETE FROM checkpoints")


def start_before_the_journal_knows(run: Any) -> None:
    path = run.container("wide.1.1.0", "worker")
    run.container("wide.1.1.0", "worker", started_at=json.loads(path.read_text())["started_at"] - 5.0)


def start_under_an_unknown_epoch(run: Any) -> None:
    run.container("long.2.2.0", "container", epoch=99)


def start_under_an_older_epoch(run: Any) -> None:
    run.container("long.2.2.0", "container", epoch=2)


def let_epochs_go_down(run: Any) -> None:
    number, decision, order = run.order("START", 8)
    order["epoch"] = 4
    run.put(number, decision)


def drop_a_step(run: Any) -> None:
    run.sql("DELETE FROM steps WHERE id = 9")


def drop_the_last_step(run: Any) -> None:
    run.sql("DELETE FROM steps WHERE id = 32")
    run.sql("DELETE FROM checkpoints WHERE after_step = 32")


def turn_time_back(run: Any) -> None:
    number, events, decision = run.steps()[18]
    decision["now"] = 1.5
    run.write(number, events, decision)
    run.sql("UPDATE steps SET now = 1.5 WHERE id = ?", number)


def name_a_slot_too_many(run: Any) -> None:
    number, decision, order = run.order("START", 0)
    order["gpus"]["of"] = [0, 4]
    run.put(number, decision)


def order_on_a_lost_machine(run: Any) -> None:
    number, _, decision = run.steps()[3]
    run.write(number, [{"is": "MachineLost", "machine": "box"}], decision)


def release_twice(run: Any) -> None:
    number, events, _ = run.steps()[6]
    run.write(number + 1, [*events, *run.steps()[7][1]], run.steps()[7][2])


def take_more_than_there_is(run: Any) -> None:
    number, decision, order = run.order("START", 1)
    order["cpus"]["of"] = [5.0, 5.0]
    run.put(number, decision)


def renew_a_lease_that_is_not_there(run: Any) -> None:
    number, events, decision = run.steps()[3]
    decision["renewals"] = {"tuple": [{"is": "Renewal", "lease": 77, "ends_at": 9.0, "protected_until": 0.0}]}
    run.write(number, events, decision)


def change_a_saved_state(run: Any) -> None:
    (data,) = run._database.execute("SELECT state FROM checkpoints WHERE after_step = 14").fetchone()
    state = json.loads(zlib.decompress(data))
    state["tables"]["holdings"]["columns"]["lease"][2] = 3
    run.sql("UPDATE checkpoints SET state = ? WHERE after_step = 14", zlib.compress(json.dumps(state).encode()))
    run.sum_checkpoint(14)


def cut_a_saved_state(run: Any) -> None:
    run.sql("UPDATE checkpoints SET state = substr(state, 1, 100) WHERE after_step = 14")


def change_a_row(run: Any) -> None:
    run.sql("UPDATE steps SET events = '[]' WHERE id = 3")


def cut_a_row(run: Any) -> None:
    run.sql("UPDATE steps SET decision = substr(decision, 1, 20) WHERE id = 4")
    run.sum_step(4)


def tell_the_launcher_first(run: Any) -> None:
    (run.folder / "launcher").mkdir()
    (run.folder / "launcher" / "epochs.json").write_text(json.dumps({"2": {"highest": 30, "closed": 22}}))


@pytest.mark.parametrize(
    ("plant", "rule", "place"),
    [
        (give_a_held_slot_away, Rule.HELD_TWICE, "step 11"),
        (run_two_workers_at_once, Rule.RAN_TWICE, "apps/wide/1/containers/wide.1.1.1/container.json"),
        (run_after_the_release, Rule.RAN_UNHELD, "step 12; apps/short/1/containers/short.1.1.0/container.json"),
        (run_a_gang_in_part, Rule.GANG_IN_PART, "apps/wide/1/containers/wide.1.1.0/container.json"),
        (order_a_gang_in_part, Rule.GANG_IN_PART, "step 2"),
        (lose_an_app, Rule.APP_LOST, "step 1"),
        (start_before_the_journal_knows, Rule.UNJOURNALED_ORDER, "step 11; apps/wide/1/containers/wide.1.1.0/"),
        (start_under_an_unknown_epoch, Rule.UNJOURNALED_ORDER, "apps/long/2/containers/long.2.2.0/container.json"),
        (start_under_an_older_epoch, Rule.OLD_EPOCH, "apps/long/2/containers/long.2.2.0/container.json"),
        (let_epochs_go_down, Rule.EPOCH_DOWN, "step 23"),
        (drop_a_step, Rule.STEPS, "step 10"),
        (drop_the_last_step, Rule.STEPS, "step 32"),
        (turn_time_back, Rule.TIME_BACK, "step 19"),
        (name_a_slot_too_many, Rule.NO_SUCH_SLOT, "step 2"),
        (order_on_a_lost_machine, Rule.NO_SUCH_SLOT, "step 6"),
        (release_twice, Rule.RELEASED_TWICE, "step 8"),
        (take_more_than_there_is, Rule.TOO_MUCH, "step 2"),
        (renew_a_lease_that_is_not_there, Rule.NO_SUCH_LEASE, "step 4"),
        (change_a_saved_state, Rule.CHECKPOINT_DIFFERS, "checkpoint after step 14"),
        (cut_a_saved_state, Rule.UNREADABLE, "checkpoint after step 14"),
        (change_a_row, Rule.UNREADABLE, "step 3"),
        (cut_a_row, Rule.UNREADABLE, "step 4"),
        (tell_the_launcher_first, Rule.UNJOURNALED_ORDER, "launcher/epochs.json"),
    ],
    ids=lambda value: value.__name__ if callable(value) else None,
)
def test_the_check_of_a_state_folder_finds_a_violation_of_each_rule(
    doctored: Any, plant: Doctor, rule: Rule, place: str
) -> None:
    plant(doctored)
    report = check_folder(doctored.folder, over=True)
    found = [finding for finding in report.findings if finding.rule is rule]
    assert any(finding.place.startswith(place) for finding in found), [str(finding) for finding in report.findings]


def test_an_app_that_is_still_live_is_not_reported_as_lost(doctored: Any) -> None:
    lose_an_app(doctored)
    report = check_folder(doctored.folder)
    assert report.apps == {"finished": 2, "live": 1}
    assert not [finding for finding in report.findings if finding.rule is Rule.APP_LOST]


# --- how it reads


def test_archived_and_dropped_steps_are_checked(tmp_path: Path) -> None:
    for keep in (Keep.ARCHIVE, Keep.DROP):
        folder = tmp_path / keep.value
        folder.mkdir()
        lab.scripted_run(folder)
        with Journal.open(folder / "journal.sqlite", retention=Retention(keep=keep, segment_steps=5)) as journal:
            journal.checkpoint(next(journal.checkpoints()).state)
        report = check_folder(folder, over=True)
        assert report.findings == []
        assert report.steps == 32 if keep is Keep.ARCHIVE else report.steps < 32
    (segment, *_) = sorted((tmp_path / "archive" / "journal.archive").iterdir())
    segment.write_bytes(gzip.compress(b'{"id": 1}\n'))
    assert {each.rule for each in check_folder(tmp_path / "archive").findings} >= {Rule.UNREADABLE}


def test_processes_from_before_the_checkpoint_count_towards_what_their_machine_has(doctored: Any) -> None:
    """Four slots have 2 of 8 CPUs each; after the first checkpoint, the processes of one lease report 4."""
    doctored.sql("DELETE FROM steps WHERE id <= 14")
    number, events, decision = doctored.steps()[0]
    (data,) = doctored._database.execute("SELECT state FROM checkpoints WHERE after_step = 14").fetchone()
    held = json.loads(zlib.decompress(data))["tables"]["holdings"]["columns"]
    assert held["cpus_in_use"] == [2.0] * lab.SLOTS
    more = {"is": "Retuned", "lease": held["lease"][0], "epoch": held["epoch"][0], "gpus": [0], "cpus": [4.0]}
    doctored.write(number, [{**more, "memory_gib": [1.0]}, *events], decision)
    found = [finding.what for finding in check_folder(doctored.folder).findings if finding.rule is Rule.TOO_MUCH]
    assert found == ["10 CPUs are used of box, which has 8"]


def test_a_journal_that_an_arbiter_has_open_is_read_and_not_changed(doctored: Any) -> None:
    path = doctored.folder / "journal.sqlite"
    with Journal.open(path) as journal:
        report = check_folder(doctored.folder)
        assert report.running
        assert report.findings == []
        assert journal.last_step == report.last_step


def test_a_folder_without_write_permission_is_checked(doctored: Any) -> None:
    doctored.close()
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    doctored.folder.chmod(0o500)
    try:
        assert check_folder(doctored.folder).findings == []
    finally:
        doctored.folder.chmod(0o700)


def test_archived_steps_are_read_even_if_sqlite_refuses_the_reader_at_first(
    doctored: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a writer begins or ends, SQLite may refuse a reader: what is read then must not be a part."""
    looking_at, refusals = reading._looking_at, 3

    def refuses(uri: str, path: Path) -> sqlite3.Connection:
        nonlocal refusals
        refusals -= 1
        if refusals >= 0 and "immutable" not in uri:
            raise sqlite3.OperationalError("unable to open database file")
        return looking_at(uri, path)

    monkeypatch.setattr(reading, "_looking_at", refuses)
    monkeypatch.setattr(reading, "PAUSE_SECONDS", 0.0)
    doctored.sql("PRAGMA journal_mode=WAL")
    doctored.sql("PRAGMA wal_autocheckpoint=0")
    release_twice(doctored)  # stands beside the journal alone
    assert reading._is_written_beside(doctored.folder / "journal.sqlite")
    found = [finding.rule for finding in check_folder(doctored.folder).findings]
    assert found
    refusals = 1000
    with pytest.raises(InputError, match="a journal must be readable"):
        check_folder(doctored.folder)
    refusals = 0
    assert [finding.rule for finding in check_folder(doctored.folder).findings] == found


def test_a_worker_that_ends_during_the_check_is_no_finding(doctored: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder,) = doctored.folder.glob("apps/*/*/containers/long.1.1.1")
    ended, record = (folder / "exit.json").read_text(), (folder / "container.json").read_text()
    (folder / "exit.json").unlink()
    (folder / "container.json").write_text(json.dumps({**json.loads(record), "state": "RUNNING"}))
    assert check_folder(doctored.folder).findings  # no launcher wrote down how it ended

    def check_pages(_: object) -> None:
        (folder / "exit.json").write_text(ended)

    monkeypatch.setattr(reading.Rows, "check_pages", check_pages)  # after the files, before the rows
    assert check_folder(doctored.folder).findings == []


def test_a_check_of_the_journal_lock_does_not_prevent_an_arbiter_from_taking_it(
    doctored: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (doctored.folder / "journal.sqlite.lock").open("rb") as asked:
        fcntl.flock(asked, fcntl.LOCK_SH)
        monkeypatch.setattr("eunomia.journal.files.time.sleep", lambda _: fcntl.flock(asked, fcntl.LOCK_UN))
        with Journal.open(doctored.folder / "journal.sqlite"):
            fcntl.flock(asked, fcntl.LOCK_UN)


def test_a_file_that_is_no_journal_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a journal must exist to be checked, but got no such file"):
        check_folder(tmp_path)
    (tmp_path / "journal.sqlite").write_bytes(b"no database at all" * 100)
    with pytest.raises(InputError, match="a journal must be an SQLite file"):
        check_folder(tmp_path)


def test_damaged_pages_are_reported(doctored: Any) -> None:
    doctored.sql("PRAGMA wal_checkpoint(TRUNCATE)")
    doctored.close()
    path = doctored.folder / "journal.sqlite"
    data = bytearray(path.read_bytes())
    middle = len(data) // 2 // 4096 * 4096
    data[middle : middle + 4096] = bytes(range(256)) * 16
    path.write_bytes(bytes(data))
    assert Rule.UNREADABLE in {finding.rule for finding in check_folder(doctored.folder).findings}


def test_the_command_prints_the_findings(good: Path, doctored: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert eunomia(["journal", "check", str(good), "--over"]) == 0
    out = capsys.readouterr().out
    assert out.endswith("nothing found\n")
    assert "32 steps (1 to 32), 18 orders, 2 checkpoints, 16 workers' containers; apps: 3 finished" in out
    drop_a_step(doctored)
    assert eunomia(["journal", "check", str(doctored.folder), "--json"]) == 1
    facts = json.loads(capsys.readouterr().out)
    assert facts["schema"] == "eunomia/journal-check@1"
    assert facts["findings"][0]["rule"] == "steps"
    assert eunomia(["journal", "check", str(good / "nowhere")]) == 2


def test_the_check_shares_no_code_with_the_arbiter() -> None:
    code = (
        "import sys; import eunomia_appmaster.journal_check; "
        "print(*sorted(name for name in sys.modules if name.partition('.')[0].startswith('eunomia')))"
    )
    paths = os.pathsep.join(str(ROOT / name) for name in ("core", "appmaster"))
    listed = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = {name for name in listed.stdout.split() if not name.startswith("eunomia_appmaster")}
    sources = (ROOT / "appmaster" / "eunomia_appmaster" / "journal_check").glob("*.py")
    imported = {
        line.split()[1]
        for path in sources
        for line in path.read_text().splitlines()
        if line.startswith(("from eunomia", "import eunomia"))
    }
    shared = {name for name in imported if not name.startswith("eunomia_appmaster.journal_check")}
    assert shared == {"eunomia.errors", "eunomia.contract.decisions"}  # the kinds of orders are data
    assert not loaded & {
        "eunomia.journal.journal",
        "eunomia.contract.codec",
        "eunomia.contract.events",
        "eunomia.round.arbiter",
        "eunomia.store.state",
    }
