"""A machine that comes back with fewer slots: what fits goes on, what is missing is said, and it is used again."""

import dataclasses
import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.appmaster import serving_lab
from tests.appmaster.serving_lab import SCRIPT, client, eventually, supervisor

from eunomia import cli
from eunomia.errors import InputError
from eunomia_appmaster.journal_check import check_folder
from eunomia_appmaster.launcher.numbering import numbered
from eunomia_appmaster.node import local_machine

_floors = serving_lab.floors


def app_file(folder: Path, name: str, slots: int) -> Path:
    (folder / "train.py").write_text(SCRIPT)
    file = folder / f"{name}.toml"
    file.write_text(f'[app]\nname = "{name}"\n[job]\ncommand = "{sys.executable} train.py"\nslots = {slots}\n')
    return file


def said(capfd: pytest.CaptureFixture[str], *words: str) -> str:
    capfd.readouterr()
    code = cli.run(words)
    out = capfd.readouterr()
    assert code == 0, out.err
    return out.out


def test_jobs_that_still_fit_run_while_a_slot_is_missing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    state = ("--state-dir", str(tmp_path / "state"))
    with supervisor(tmp_path, slots=4) as made, client(made) as arbiter:
        arbiter.submit(app_file(tmp_path, "wide", 4))
        eventually(lambda: arbiter.app("wide").slots == 4)
        assert not arbiter.health().missing_slots
    with supervisor(tmp_path, slots=3) as made, client(made) as arbiter:
        arbiter.submit(app_file(tmp_path, "narrow", 1))
        eventually(lambda: arbiter.app("narrow").slots == 1)
        (missing,) = arbiter.health().missing_slots
        assert (missing.slot, missing.gpu_type) == (3, "cpu")
        line = f"slot 3 of {missing.node} (cpu) is left out: the launcher was started with fewer slots than before"
        assert line in said(capfd, "apps", *state)
        facts = json.loads(said(capfd, "apps", "--json", *state))
        assert facts["missing_slots"] == [{"node": missing.node, "slot": 3, "gpu_type": "cpu"}]
        widest = said(capfd, "submit", str(app_file(tmp_path, "later", 4)), *state)
        assert "No job of it can start: it needs 4 slots, and 3 of 4 are there." in widest
        assert line in widest
        assert "No job" not in said(capfd, "submit", str(app_file(tmp_path, "fits", 3)), *state)
        answer = json.loads(said(capfd, "submit", "--json", str(app_file(tmp_path, "plain", 1)), *state))
        assert answer["missing_slots"] == facts["missing_slots"]
        for name in ("later", "fits", "plain"):
            arbiter.cancel(name)
        explained = said(capfd, "explain", "wide", *state)
        assert "no_size_fits" in explained
        assert "It needs at least 4 slots; the cluster has 3 in service of 4 (1 down)" in explained
        assert line in explained
        (tmp_path / "end").touch()
        eventually(lambda: arbiter.app("narrow").state == "finished")
        (tmp_path / "end").unlink()
    with supervisor(tmp_path, slots=4) as made, client(made) as arbiter:
        eventually(lambda: arbiter.app("wide").slots == 4)
        assert not arbiter.health().missing_slots
        (tmp_path / "end").touch()
        eventually(lambda: arbiter.app("wide").state == "finished")
        last = r"no live app; wide finished \d+ s ago \(eunomia explain wide\), 5 ended in all \(eunomia apps --all\)\n"
        assert re.fullmatch(last, said(capfd, "apps", *state))
        assert "wide" in said(capfd, "apps", "--all", *state)
    assert not check_folder(tmp_path / "state").findings


def test_a_launcher_restarted_with_fewer_slots_keeps_workers_on_the_remaining_slots(tmp_path: Path) -> None:
    with supervisor(tmp_path, slots=3) as made, client(made) as arbiter:
        apps = [arbiter.submit(app_file(tmp_path, f"ana{number}", 1)).name for number in range(3)]
        eventually(lambda: all(arbiter.app(name).slots == 1 for name in apps))
        assert made.launcher is not None
        command = made.launcher.command
        command[command.index("--slots") + 1] = "2"
        assert made.launcher.pid is not None
        os.kill(made.launcher.pid, signal.SIGKILL)
        eventually(lambda: [slot.slot for slot in arbiter.health().missing_slots] == [2])
        eventually(lambda: sum(arbiter.app(name).slots for name in apps) == 2)
        command[command.index("--slots") + 1] = "3"
        os.kill(made.launcher.pid, signal.SIGKILL)
        eventually(lambda: sum(arbiter.app(name).slots for name in apps) == 3, "the slot is used again")
        (tmp_path / "end").touch()
        eventually(lambda: all(arbiter.app(name).state == "finished" for name in apps))
    assert not check_folder(tmp_path / "state").findings


def machine(*uuids: str) -> local_machine.LocalMachine:
    empty: dict[str, Any] = {"gpu_type": "A100", "island": 0, "cpus": 1.0, "memory_gib": 1.0}
    slots = [local_machine.LocalSlot(index=index, uuid=uuid, **empty) for index, uuid in enumerate(uuids)]
    return local_machine.LocalMachine(host="box7", slots=tuple(slots), cpus=4.0, memory_gib=4.0)


def numbers(made: local_machine.LocalMachine) -> dict[str, int]:
    return {slot.uuid: slot.index for slot in made.slots}


def test_a_gpu_keeps_its_slot_number_when_another_is_removed(tmp_path: Path) -> None:
    kept = tmp_path / "gpus.json"
    assert numbers(numbered(machine("a", "b", "c", "d"), kept)) == {"a": 0, "b": 1, "c": 2, "d": 3}
    assert numbers(numbered(machine("a", "c", "d"), kept)) == {"a": 0, "c": 2, "d": 3}
    assert numbers(numbered(machine("d", "c", "b", "a"), kept)) == {"a": 0, "b": 1, "c": 2, "d": 3}
    assert numbers(numbered(machine("a", "new", "c", "d"), kept)) == {"a": 0, "new": 1, "c": 2, "d": 3}
    assert numbers(numbered(machine("a", "new", "c", "d", "b"), kept))["b"] == 4
    kept.write_text("{")
    assert numbers(numbered(machine("a", "new", "c", "d"), kept)) == {
        "a": 0,
        "new": 1,
        "c": 2,
        "d": 3,
    }  # its older copy
    for path in (kept, kept.with_name("gpus.json.old")):
        path.write_text("{")
    with pytest.raises(InputError):
        numbered(machine("a"), kept)


def test_numbers_of_cpu_slots_are_not_stored_in_the_gpu_file(tmp_path: Path) -> None:
    found = local_machine.detect(2, use_gpus=False)
    assert numbered(found, tmp_path / "gpus.json") == found
    assert not (tmp_path / "gpus.json").exists()
    assert dataclasses.replace(found).slot(2) is None


@pytest.mark.slow
def test_explain_says_that_a_gang_no_longer_fits_and_not_that_it_lost_an_auction(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    state = ("--state-dir", str(tmp_path / "state"))
    with supervisor(tmp_path, slots=2, policy="themis") as made, client(made) as arbiter:
        arbiter.submit(app_file(tmp_path, "wide", 2))
        eventually(lambda: arbiter.app("wide").slots == 2)
    with supervisor(tmp_path, slots=1, policy="themis") as made, client(made) as arbiter:
        arbiter.submit(app_file(tmp_path, "narrow", 1))
        eventually(lambda: arbiter.app("narrow").slots == 1)
        eventually(lambda: "no_size_fits" in said(capfd, "explain", "wide", *state))
