"""Every file of a real state folder damaged: what reads it goes on and says so, or refuses with the remedy."""

import os
import random
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from tests.appmaster import serving_lab, state_folder
from tests.appmaster.serving_lab import activity, client, eventually, live, supervisor, tiny_app, went_on
from tests.appmaster.state_folder import APP, DAMAGES, Kind, Snapshot, damage, files_of, flipped, kind_of, read_all

from eunomia.errors import EunomiaError
from eunomia_appmaster.app.submission import Submission
from eunomia_appmaster.launcher.container import Container

_floors = serving_lab.floors
WRITTEN_ONCE = ("app.toml", "submission.json", "secret", "launcher.json", "worker.json")
DRAWS = 60
"""Starts of everything in the slow test."""
UNSEEN = {Kind.LEFT_OUT: ("removed",), Kind.LOG: ("cut", "empty", "removed")}
"""Damages after which a file is as if less had been written."""
_PLACES: dict[str, Path] = {}


@pytest.fixture
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Snapshot]:
    """The folder of one run for all tests of this module, put back before each."""
    if "folder" not in _PLACES:
        folder = tmp_path_factory.mktemp("run")
        state_folder.made(folder)
        _PLACES["folder"] = folder
    folder = _PLACES["folder"]
    made = Snapshot(folder / "state", folder / "copy")
    made.restore()
    yield made


def test_the_table_lists_every_file_of_the_state_folder(snapshot: Snapshot) -> None:
    files = files_of(snapshot.copy)
    assert [file for file in files if kind_of(file) is None] == []
    kinds = {kind_of(file) for file in files}
    assert kinds == set(Kind)
    kept = [file for file in files if kind_of(file) is Kind.KEPT and not file.endswith(("worker.json", "app.toml"))]
    assert [file for file in kept if f"{file}.old" not in files] == []


def test_each_damage_to_each_file_is_reported_and_no_damaged_content_is_read(snapshot: Snapshot) -> None:
    good = read_all(snapshot.state)
    assert (good.errors, good.said) == ({}, "")
    silent = []
    for file, how in state_folder.each(snapshot):
        kind, name = kind_of(file), Path(file).name
        seen = read_all(snapshot.state)
        if kind in (Kind.FREE, Kind.COPY):
            assert not seen.errors, (file, how)
            changed = {key for key, value in good.values.items() if seen.values.get(key, value) != value}
            assert changed <= ({f"container {name}"} if "/live/" in file else set()), (file, how)
            continue
        if kind is not Kind.AGAIN:
            assert not seen.errors, (file, how)
        if seen.values != good.values:
            about = str(Path(file).parent.parent) if kind is Kind.CHECKPOINT else name
            if about not in seen.said and how not in UNSEEN.get(kind, ()):
                silent.append((file, how))
        if name in WRITTEN_ONCE:  # the copy of any other may be one write older
            assert seen.values == good.values, (file, how)
        if kind is Kind.KEPT:
            again = read_all(snapshot.state)
            assert (again.errors, again.values) == ({}, seen.values), (file, how)
    assert silent == [], silent


@pytest.mark.parametrize(
    ("file", "remedy"),
    [
        ("launcher/epochs.json", "restore it from a backup, or restart the machine, so that no worker is left, and "),
        (f"apps/{APP}/master/a1-g1/master.json", "restore it from a backup, or submit the app's file again"),
        (f"apps/{APP}/submission.json", "restore it from a backup, or submit the app's file again"),
    ],
)
def test_if_both_copies_are_damaged_the_error_names_a_remedy_that_works(
    snapshot: Snapshot, file: str, remedy: str
) -> None:
    good = read_all(snapshot.state)
    for name in (file, f"{file}.old"):
        damage(snapshot.state / name, flipped)
    seen = read_all(snapshot.state)
    (error,) = seen.errors.values()
    assert remedy in str(error)
    assert str(snapshot.state / file) in str(error)
    shutil.copy(snapshot.copy / file, snapshot.state / file)
    assert read_all(snapshot.state).values == good.values
    if "delete it" in str(error):  # the other remedy
        for name in (file, f"{file}.old"):
            (snapshot.state / name).unlink(missing_ok=True)
        assert not read_all(snapshot.state).errors


SPARED = (Kind.JOURNAL, Kind.COPY, Kind.CHECKPOINT)


@pytest.mark.parametrize(
    "how",
    ["a byte flipped", "removed", *(pytest.param(how, marks=pytest.mark.slow) for how in ("cut", "empty"))],
)
def test_all_processes_start_on_a_state_folder_whose_files_are_all_damaged(
    snapshot: Snapshot, run: Callable[..., str], how: str
) -> None:
    for file in files_of(snapshot.state):
        if kind_of(file) not in SPARED:
            damage(snapshot.state / file, DAMAGES[how])
    with supervisor(snapshot.state.parent) as made, client(made) as arbiter:
        eventually(lambda: arbiter.app(APP).standing.notices, "its app master's notice")
        said = run("apps", "--state-dir", str(made.state_dir))
        assert f"{APP}: master.json is {'gone' if how == 'removed' else 'damaged'}" in said
        assert "the search goes on from its older copy" in run("explain", APP, "--state-dir", str(made.state_dir))
        assert (arbiter.app(APP).attempt, arbiter.app(APP).part) > (1, 1)
        assert arbiter.wait(APP, timeout="120s").state == "finished"
        assert run("journal", "check", str(made.state_dir))


@pytest.mark.slow
def test_all_processes_start_after_random_damage_to_random_files(snapshot: Snapshot) -> None:
    seed = random.randrange(2**31)
    print(f"seed {seed}")
    luck = random.Random(seed)
    files = [file for file in files_of(snapshot.copy) if kind_of(file) is not Kind.JOURNAL]
    for _ in range(DRAWS):
        several = [file for file in files if kind_of(file) is not Kind.COPY]  # never both copies of a file
        chosen = [luck.choice(files)] if luck.random() < 0.6 else luck.sample(several, 4)
        drawn = {file: luck.choice(list(DAMAGES)) for file in chosen}
        snapshot.restore()
        for file, how in drawn.items():
            whole = how != "a byte flipped"
            damage(snapshot.state / file, DAMAGES[how] if whole else lambda content: flipped(content, luck.random()))
        with supervisor(snapshot.state.parent) as made, client(made) as arbiter:
            assert arbiter.wait(APP, timeout="120s").state == "finished", drawn


@pytest.mark.slow
def test_a_job_without_a_good_checkpoint_restarts_and_every_screen_shows_it(
    snapshot: Snapshot, run: Callable[..., str]
) -> None:
    damaged = sorted(snapshot.state.glob(f"apps/{APP}/*/checkpoints/*/*.pt"))
    job = damaged[0].parent.parent.parent.name
    for path in damaged[0].parent.parent.glob("*/*.pt"):
        damage(path, flipped)
    state = ("--state-dir", str(snapshot.state))
    with supervisor(snapshot.state.parent) as made, client(made) as arbiter:
        eventually(lambda: arbiter.app(APP).standing.notices, "a notice")
        for said in (run("apps", *state), run("apps", "--json", *state), run("explain", f"{APP}/{job}", *state)):
            assert f"{APP}/{job}: its checkpoint of step " in said
            assert "it starts again from the beginning" in said
        assert arbiter.wait(APP, timeout="120s").state == "finished"
        assert "it starts again from the beginning" in run("apps", "--all", *state)
        (line,) = [line for line in activity(made, APP) if line["event"] == "lost_checkpoints"]
        assert (line["job"], line["step"]) == (f"{APP}/{job}", 0)
    rows = state_folder.read_trials_file(snapshot.state / "apps" / APP)
    assert "it starts again from the beginning" in next(row["why"] for row in rows if row["job"] == f"{APP}/{job}")
    run("report", str(snapshot.state), "--out", str(snapshot.state.parent / "report"))
    events = (snapshot.state.parent / "report" / "report.html").read_text()
    assert "lost its newest checkpoints" in events


def test_lost_links_of_running_containers_are_recreated_by_a_new_launcher(tmp_path: Path) -> None:
    with supervisor(tmp_path) as made, client(made) as arbiter:
        arbiter.submit(tiny_app(tmp_path, APP, iterations=400, seconds=0.01, more=" --plain"))
        eventually(lambda: went_on(made, APP), "steps")
        before = live(made, masters=False) + live(made, masters=True)
        assert made.launcher is not None
        first = made.launcher.pid
        made.launcher._signal(signal.SIGSTOP)  # it does not see what is done to its files
        for link in (made.state_dir / "launcher" / "live").iterdir():
            link.unlink()
        for record in (made.state_dir / "launcher" / "app_masters").iterdir():
            record.unlink()
        made.launcher._signal(signal.SIGKILL)
        eventually(lambda: made.launcher is not None and made.launcher.pid not in (None, first), "another launcher")
        eventually(lambda: live(made, masters=False) + live(made, masters=True) == before, "the links")
        (_, pid), *_ = live(made, masters=True)
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: arbiter.app(APP).part == 2, "the next start")
        assert arbiter.wait(APP, timeout="120s").state == "finished"
        events = [line["event"] for line in activity(made, APP)]
        assert (events.count("start"), "failed" in events) == (1, False)


def test_start_numbers_are_not_reused_after_records_are_lost(tmp_path: Path) -> None:
    with supervisor(tmp_path) as made, client(made) as arbiter:
        arbiter.submit(tiny_app(tmp_path, APP, iterations=1000, seconds=0.01, more=" --plain"))
        eventually(lambda: went_on(made, APP), "steps")
        assert made.launcher is not None
        (_, pid), *_ = live(made, masters=True)
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: arbiter.app(APP).part == 2, "the second start")
        (_, pid), *_ = live(made, masters=True)
        for number in (made.launcher.pid or 0, pid):
            os.kill(number, signal.SIGSTOP)
        for record in (made.state_dir / "launcher" / "app_masters").iterdir():
            record.unlink()
        for number in (pid, made.launcher.pid or 0):
            os.kill(number, signal.SIGKILL)
        eventually(lambda: arbiter.app(APP).part == 3, "the third start")  # an app that has ended has none
        assert arbiter.wait(APP, timeout="120s").state == "finished"


def test_the_error_for_a_lost_submission_names_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(
        EunomiaError, match="restore it from a backup, or submit the app's file again, but got no such file"
    ):
        Submission.read(tmp_path)


def test_a_container_without_its_record_is_named_in_the_log(tmp_path: Path) -> None:
    (tmp_path / "ana.2.1.0").mkdir()
    assert Container.load(tmp_path / "none") is None
    (tmp_path / "ana.2.1.0" / "worker.json").write_text("{}")
    with capture_logs() as said:
        assert Container.load(tmp_path / "ana.2.1.0") is None
    assert [(line["event"], line["container"]) for line in said] == [("container.without_record", "ana.2.1.0")]
