"""No writer touches what another wrote, however two or three of one job are interleaved, and wherever they end."""

import hashlib
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eunomia.errors import InputError
from eunomia_appmaster.app.checkpoints import CheckpointError, CheckpointStore
from eunomia_appmaster.app.fences import Fence, fences_in, make_own
from eunomia_appmaster.app.job_checkpoints import JobCheckpoints, name_of
from strength import examples

_spec = importlib.util.spec_from_file_location("interleaving", Path(__file__).parent / "interleaving.py")
assert _spec is not None
assert _spec.loader is not None
interleaving = sys.modules.setdefault("interleaving", importlib.util.module_from_spec(_spec))
_spec.loader.exec_module(interleaving)

KEEP = 2


def writer(folder: Path, attempt: int, incarnation: int, **more: Any) -> JobCheckpoints:
    store = JobCheckpoints(folder, **more)
    store.begin(attempt, incarnation)
    return store


def save(store: JobCheckpoints, step: int) -> None:
    assert store.fence is not None
    text = f"{store.fence.name} {step}"
    store.save(step, lambda path: path.write_text(text) and None, incarnation=store.fence.incarnation)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_writer_that_was_cut_off_deletes_no_checkpoint_of_its_successor(tmp_path: Path) -> None:
    first = writer(tmp_path, 1, 1)
    save(first, 90)
    save(first, 100)
    second = writer(tmp_path, 1, 2)
    save(second, 110)
    before = files(tmp_path / "a1-i2-g1")
    assert len(before) == 4, "its own, and the one that it began from"
    for step in range(120, 190, 10):
        with pytest.raises(CheckpointError, match=r"must be the newest of its job.*a1-i2-g1 is newer"):
            save(first, step)
    assert files(tmp_path / "a1-i2-g1") == before
    assert (found := JobCheckpoints(tmp_path).latest()) is not None
    assert (found.step, found.path.read_text()) == (110, "a1-i2-g1 110")


def test_an_old_and_a_new_writer_may_both_write_until_the_new_has_enough_checkpoints(tmp_path: Path) -> None:
    first = writer(tmp_path, 1, 1)
    save(first, 100)
    second = JobCheckpoints(tmp_path, keep=3)
    assert (began := second.begin(2, 1)) is not None
    assert (began.step, name_of(began)) == (100, "a2-i1-g1/000100")
    for step in range(120, 190, 10):
        save(first, step)
    assert first.steps() == [100, 170, 180]
    assert (found := JobCheckpoints(tmp_path).latest()) is not None
    assert found.path == began.path, "the state resumed from is the newest writer's"
    assert found.path.read_text() == "a1-i1-g1 100"
    save(second, 110)
    assert fences_in(tmp_path) == [Fence(2, 1), Fence(1, 1)]
    save(second, 115)
    assert fences_in(tmp_path) == [Fence(2, 1)], "three good ones of its own: the older folder goes"
    assert JobCheckpoints(tmp_path).steps() == [100, 110, 115]


def test_if_the_newest_writer_has_no_good_checkpoint_the_previous_one_counts(tmp_path: Path) -> None:
    save(writer(tmp_path, 1, 1), 10)
    empty = JobCheckpoints(tmp_path)
    empty.begin(3, 1, adopt=False)
    store = JobCheckpoints(tmp_path)
    assert (found := store.latest()) is not None
    assert (found.step, store.faults) == (10, [])
    save(empty, 4)
    found = store.latest()
    assert found is not None
    assert found.step == 4, "though an older writer went further"
    found.path.write_text("damaged")
    again = JobCheckpoints(tmp_path)
    found = again.latest()
    assert found is not None
    assert (found.step, len(again.faults)) == (10, 1)
    assert (tmp_path / "a3-i1-g1" / "000004.pt").exists(), "a reader renames nothing"


def test_checkpoints_of_an_earlier_version_are_read_and_later_deleted(tmp_path: Path) -> None:
    earlier = CheckpointStore(tmp_path)
    for step in (10, 20):
        earlier.save(step, lambda path: path.write_text("earlier") and None, incarnation=7)
    (tmp_path / "last.pt").write_text("of the script itself")
    (tmp_path / "3.json").write_text("{}")
    assert (found := JobCheckpoints(tmp_path).latest()) is not None
    assert (found.step, name_of(found)) == (20, "")
    alone = JobCheckpoints(tmp_path)
    assert (began := alone.begin(None, None)) is not None
    assert (began.step, alone.fence) == (20, Fence(0, 8))
    assert earlier.steps() == [3, 10, 20]
    save(alone, 30)
    assert set(files(tmp_path)) == {
        "last.pt",
        "3.json",
        *(f"a0-i8-g1/0000{step}.{kind}" for step in (20, 30) for kind in ("pt", "json")),
    }


def test_a_second_writer_of_an_incarnation_gets_the_next_generation(tmp_path: Path) -> None:
    first, second = writer(tmp_path, 2, 5), writer(tmp_path, 2, 5)
    assert (first.fence, second.fence) == (Fence(2, 5, 1), Fence(2, 5, 2))
    save(first, 10)
    save(second, 8)
    assert (found := JobCheckpoints(tmp_path).latest()) is not None
    assert found.path.read_text() == "a2-i5-g2 8"
    assert make_own(tmp_path / "master", 3).name == "a3-g1"
    assert [Fence.parse(name) for name in ("a3-g1", "a3-i0", "5", "a1-i2-g3.old")] == [Fence(3), None, None, None]
    assert Fence(1, 9, 9) < Fence(2, 1, 1) < Fence(2, 1, 2) < Fence(2, 2, 1)


def test_a_run_without_an_app_master_is_newer_than_all_runs_of_app_masters(tmp_path: Path) -> None:
    save(writer(tmp_path, 4, 2), 10)
    alone = JobCheckpoints(tmp_path)
    alone.begin(None, None)
    assert alone.fence == Fence(4, 3)


def test_a_checkpoint_missing_from_the_listing_is_found_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(writer(tmp_path, 1, 1), 10)
    save(writer(tmp_path, 1, 2), 20)
    monkeypatch.setattr("eunomia_appmaster.app.job_checkpoints.fences_in", lambda folder: [Fence(1, 1)])
    monkeypatch.setattr(Path, "glob", lambda self, pattern: iter(()))
    assert JobCheckpoints(tmp_path).latest() is None
    assert (found := JobCheckpoints(tmp_path, named=["a1-i2-g1/000020"]).latest()) is not None
    assert found.step == 20
    with pytest.raises(InputError, match="must be named as a2-i5-g1/000110"):
        JobCheckpoints(tmp_path, named=["../../000020"])


def test_without_hard_links_the_checkpoint_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(writer(tmp_path, 1, 1), 10)

    def refused(self: Path, target: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "hardlink_to", refused)
    began = JobCheckpoints(tmp_path).begin(1, 2)
    assert began is not None
    assert (began.path.read_text(), began.path.stat().st_nlink) == ("a1-i1-g1 10", 1)


def test_bad_arguments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at least 1"):
        JobCheckpoints(tmp_path, keep=0)
    with pytest.raises(CheckpointError, match=r"begin\(\) must be called"):
        JobCheckpoints(tmp_path).save(1, lambda path: None, incarnation=1)
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InputError, match=r"must be writable, but got .*(File exists|Not a directory)"):
        JobCheckpoints(tmp_path / "file").begin(1, 1)


# -- any interleaving


def good_in(folder: Path) -> list[tuple[int, int]]:
    """Good checkpoints in a folder, by a reader of the test's own: incarnation and step, ascending."""
    found = []
    for record in folder.glob("*.json"):
        try:
            values = json.loads(record.read_text())
            data = record.with_suffix(".pt").read_bytes()
        except (OSError, ValueError):
            continue
        if hashlib.sha256(data).hexdigest() == values["sha256"]:
            found.append((values["incarnation"], values["step"]))
    return sorted(found)


class Referee:
    """Checks each change before it is made: by whom, of what, and with which right."""

    def __init__(self, folder: Path, stores: dict[int, JobCheckpoints]) -> None:
        self.folder = folder
        self.stores = stores
        self.changes = 0

    def look(self, operation: Any) -> None:
        self.changes += 1
        fence = self.stores[operation.writer].fence
        for path in operation.paths[1:] if operation.what == "os.link" else operation.paths:
            within = path.relative_to(self.folder).parts
            other = Fence.parse(within[0]) if within else None
            if operation.what == "os.mkdir":
                continue  # one that exists is refused by the system
            assert within, f"{operation} changes the folder itself"
            if other is None:
                self.may_delete(operation, fence)
            elif other != fence:
                assert fence is not None, f"{operation} of {other}, before it has begun"
                assert other < fence, f"{operation} of a newer writer's folder, by {fence}"
                self.may_delete(operation, fence)

    def may_delete(self, operation: Any, fence: Fence | None) -> None:
        assert operation.what in ("os.remove", "os.rmdir"), f"{operation} by {fence}"
        assert fence is not None
        assert len(good_in(self.folder / fence.name)) >= KEEP, f"{operation}: {fence} has too few good ones of its own"


LIVES = st.tuples(st.integers(1, 3), st.lists(st.integers(1, 40), min_size=0, max_size=4))
"""Incarnation, and the steps that are saved after its start, as differences."""


DRAWN = {
    "lives": st.lists(LIVES, min_size=2, max_size=3, unique_by=lambda life: life[0]),
    "attempts": st.lists(st.integers(1, 2), min_size=3, max_size=3),
    "earlier": st.booleans(),
    "choices": st.lists(st.integers(0, 2), max_size=400),
    "crashes": st.dictionaries(st.integers(0, 2), st.integers(0, 150), max_size=2),
}


FOUND = (
    # Of another attempt's higher incarnation: the linked checkpoint must be older than the writer's own.
    {"lives": [(2, [1]), (1, [1])], "attempts": [1, 2, 1], "choices": []},
    # A newer writer deletes the folder in which an older one is about to link a checkpoint.
    *({"lives": [(2, [1, 1]), (1, [])], "attempts": [1, 1, 1], "choices": [1] * turns} for turns in range(3, 12)),
    # A newer writer deletes a folder while another lists it.
    *(
        {"lives": [(1, [1]), (3, [1]), (2, [])], "attempts": [1, 1, 1], "choices": [2] * turns}
        for turns in range(3, 12)
    ),
)
"""Orders in which earlier versions of the code have failed."""


@pytest.mark.parametrize("drawn", FOUND)
def test_interleavings_of_writers_that_failed_in_earlier_versions_now_pass(
    tmp_path: Path, drawn: dict[str, Any]
) -> None:
    interleave(tmp_path, earlier=False, crashes={}, **drawn)


@settings(max_examples=examples(20), deadline=None)
@given(**DRAWN)
def test_under_no_interleaving_or_crash_a_writer_changes_files_of_another(
    tmp_path_factory: pytest.TempPathFactory, **drawn: Any
) -> None:
    interleave(tmp_path_factory.mktemp("job"), **drawn)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@settings(max_examples=examples(400), deadline=None)
@given(**DRAWN)
def test_under_no_long_interleaving_or_crash_a_writer_changes_files_of_another(
    tmp_path_factory: pytest.TempPathFactory, **drawn: Any
) -> None:
    interleave(tmp_path_factory.mktemp("job"), **drawn)


def interleave(
    folder: Path,
    lives: list[tuple[int, list[int]]],
    attempts: list[int],
    earlier: bool,
    choices: list[int],
    crashes: dict[int, int],
) -> None:
    """Run the writers, check each change that they make, and what is left."""
    if earlier:
        for step in (5, 6):
            CheckpointStore(folder).save(step, lambda path: path.write_text("earlier") and None, incarnation=1)
    stores = {number: JobCheckpoints(folder, keep=KEEP) for number in range(len(lives))}
    fences = [(attempts[number], incarnation) for number, (incarnation, _) in enumerate(lives)]
    saved: dict[int, list[int]] = {number: [] for number in stores}

    def work(number: int) -> None:
        store = stores[number]
        try:
            began = store.begin(*fences[number])
            step = 0 if began is None else began.step
            for more in lives[number][1]:
                step += more
                save(store, step)
                saved[number].append(step)
        except CheckpointError as error:
            assert "must be the newest of its job" in error.rule

    referee = Referee(folder, stores)
    scene = interleaving.Interleaving(folder, referee.look)
    scene.run([lambda number=number: work(number) for number in stores], choices, crashes)
    assert referee.changes or crashes

    left = {fence: good_in(folder / fence.name) for fence in fences_in(folder)}
    newest = next((fence for fence, good in left.items() if good), None)
    reader = JobCheckpoints(folder)
    found = reader.latest()
    if newest is None:
        assert not any(saved.values())
        assert (found is not None) == earlier
        return
    assert found is not None
    assert Fence.parse(found.path.parent.name) == newest
    assert (found.incarnation, found.step) == left[newest][-1]
    of_newest = next(number for number, store in stores.items() if store.fence == newest)
    assert found.step == (saved[of_newest] or [found.step])[-1] or of_newest in crashes
    for number, store in stores.items():
        if saved[number] and (store.fence or newest) > newest:
            raise AssertionError(f"{store.fence} has saved {saved[number]}, which is gone")
    last = JobCheckpoints(folder)
    assert (again := last.begin(9, 9)) is not None
    assert again.sha256 == found.sha256
