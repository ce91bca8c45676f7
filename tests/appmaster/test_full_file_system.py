"""A file system that a job has filled: decisions, ends and ``cancel`` go on from the journal's reserve.

The file system is a small one of its own, which takes root's rights to make.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.appmaster import serving_lab
from tests.appmaster.serving_lab import SCRIPT, client, eventually, supervisor

from eunomia import cli
from eunomia.errors import InputError
from eunomia_appmaster.journal_check import check_folder
from eunomia_appmaster.node.supervisor import left_running
from eunomia_appmaster.service.reserve import MIB, PART, RESERVE, Reserve

_floors = serving_lab.floors
DISK_MIB, RESERVE_MIB = 64, 8
FILLER = """
import os, sys, time
number = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
while True:
    try:
        os.write(number, b"x" * 65536)
    except OSError:
        open("full", "w").close()
        time.sleep(0.0005)
"""
"""Fills the disk and goes on to take whatever gets free."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a small file system."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(place)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"no file system of its own can be mounted: {mounted.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(place: Path) -> None:
    with (place / "rest").open("ab") as file:
        number = file.fileno()
        for size in (MIB, 4096, 1):
            try:
                while True:
                    os.write(number, b"x" * size)
            except OSError:
                continue


def free(place: Path) -> int:
    state = os.statvfs(place)
    return state.f_bavail * state.f_frsize


def takes(path: Path, most: int) -> int:
    """Append until the disk refuses it, or ``most`` bytes are written; return how many."""
    written = 0
    with path.open("ab", buffering=0) as file:
        try:
            while written < most:
                written += os.write(file.fileno(), b"z" * 4096)
        except OSError:
            pass
    return written


def test_space_released_from_the_reserve_is_used_by_the_log_at_once(disk: Path) -> None:
    journal, log = disk / "journal.sqlite", disk / "journal.sqlite-wal"
    log.touch()
    reserve = Reserve(journal, 4 * MIB)
    reserve.refill()
    assert reserve.is_whole and not reserve.words()
    fill(disk)
    for part in range(4):
        assert takes(log, 4096) == 0, "the disk is full"
        assert reserve.give(), part
        assert takes(disk / "stolen", PART) == 0, "a job that waits for room finds none"
        assert takes(log, PART) == PART
    assert not reserve.give()
    assert reserve.left == 0 and "0 of 4 MiB are in reserve" in reserve.words()
    (disk / "rest").unlink()
    reserve.refill()
    assert reserve.is_whole and not reserve.words()


def test_a_reserve_is_created_only_if_as_much_space_again_stays_free(disk: Path) -> None:
    reserve = Reserve(disk / "journal.sqlite", DISK_MIB * MIB * 3 // 4)
    reserve.refill()
    assert reserve.left == 0 and "no app is accepted" in reserve.words()
    smaller = Reserve(disk / "journal.sqlite", 16 * MIB)
    smaller.refill()
    assert smaller.is_whole
    Reserve(disk / "journal.sqlite", 2 * MIB).refill()
    assert (disk / RESERVE).stat().st_size == 2 * MIB
    none = Reserve(disk / "journal.sqlite", 0)
    none.refill()
    assert (disk / RESERVE).stat().st_size == 0 and not none.words() and not none.give()


def test_an_arbiter_that_starts_on_a_full_disk_frees_part_of_its_reserve(disk: Path) -> None:
    reserve = Reserve(disk / "journal.sqlite", 4 * MIB)
    reserve.refill()
    reserve.room_to_start()
    assert reserve.is_whole, "there is room"
    fill(disk)
    reserve.room_to_start()
    assert free(disk) >= PART


def app(folder: Path, name: str, command: str) -> Path:
    (folder / "train.py").write_text(SCRIPT)
    (folder / "filler.py").write_text(FILLER)
    file = folder / f"{name}.toml"
    file.write_text(f'[app]\nname = "{name}"\n[job]\ncommand = "{sys.executable} {command}"\nslots = 1\n')
    return file


@pytest.mark.slow
def test_a_job_that_fills_the_disk_is_cancelled_while_others_finish(
    disk: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    options = ("--not-durable", "--heartbeat-seconds", "0.3", "--reserve-mib", str(RESERVE_MIB))
    made = supervisor(disk, log_dir=tmp_path / "log", arbiter_options=(*options, "--metrics", "127.0.0.1:0"))
    with made, client(made) as arbiter:
        eventually(lambda: (made.state_dir / RESERVE).exists(), "a reserve")
        work = tmp_path / "work"
        work.mkdir()
        arbiter.submit(app(work, "good", "train.py"))
        eventually(lambda: arbiter.app("good").running == 1)
        arbiter.submit(app(work, "culprit", f"filler.py {disk / 'filled'}"))
        eventually((work / "full").exists, "a full disk")
        eventually(lambda: arbiter.health().warnings, "a word about it")
        (work / "end").touch()
        eventually(lambda: arbiter.app("good").state in ("finished", "failed"), "the end of another app")
        assert any("the state folder's disk is full" in warning for warning in arbiter.health().warnings)
        eventually(lambda: free(disk) < MIB, "a disk that the culprit has filled again")
        capfd.readouterr()
        assert cli.run(["apps", "--json", "--state-dir", str(made.state_dir)]) == 0
        assert json.loads(capfd.readouterr().out)["warnings"] == list(arbiter.list().warnings)
        with pytest.raises(InputError, match="a new app must find room on the disk"):
            arbiter.submit(app(work, "late", "train.py"))
        filled = (disk / "filled").stat().st_size
        arbiter.cancel("culprit")
        assert arbiter.app("culprit").state == "cancelled"
        eventually(lambda: all(slot.state == "free" for slot in arbiter.list(slots=True).slots), "free slots")
        assert (disk / "filled").stat().st_size >= filled, "nothing was removed"
        (disk / "filled").unlink()
        eventually(lambda: not arbiter.health().warnings, "the reserve is whole again")
        (work / "end").unlink()
        arbiter.submit(app(work, "after", "train.py"))
        eventually(lambda: arbiter.app("after").running == 1)
        (work / "end").touch()
        eventually(lambda: arbiter.app("after").state == "finished")
    assert not check_folder(made.state_dir).findings
    assert not left_running(made.state_dir), "ends that the full disk did not take are written later"
