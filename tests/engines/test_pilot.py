"""A pilot takes a name on its host, joins as new after an end in order, and leaves nothing then."""

import os
import shutil
from pathlib import Path

import pytest

from eunomia.errors import InputError
from eunomia_engines.head.files import head_address
from eunomia_engines.pilots.names import check_gpus, lock_name, private_folder, take_name
from eunomia_engines.pilots.records import PILOTS, Pilot, drop_ends, drop_pilot, pilots, write_pilot
from eunomia_engines.requests import mark_of
from eunomia_engines.slurm.pilot import clear, launch
from eunomia_engines.slurm.request import FOLDER, Request

HOST = {"SLURM_JOB_ID": "12", "SLURMD_NODENAME": "gpu1"}


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state folder with a request for two CPU slots a node, whose head serves."""
    made = tmp_path / "state"
    (made / FOLDER / PILOTS).mkdir(parents=True)
    (made / "apps").mkdir()
    (tmp_path / "local").mkdir()
    given = {"least": 1, "most": 1, "seconds": 600.0, "cpu_slots": 2, "python": "python"}
    Request(**given, node_dir=tmp_path / "local").save(made)
    (made / FOLDER / "head.json").write_text('{"address": "head:7720"}')
    return made


def test_the_first_node_of_a_host_has_its_name_and_the_second_a_number(tmp_path: Path) -> None:
    first, lock = take_name(tmp_path, "gpu1")
    second, other = take_name(tmp_path, "gpu1")
    assert (first, second) == ("gpu1", "gpu1.2")
    os.close(lock)
    assert take_name(tmp_path, "gpu1")[0] == "gpu1"
    os.close(other)


def test_a_name_whose_lock_was_removed_meanwhile_is_locked_by_its_new_file(tmp_path: Path) -> None:
    first = lock_name(tmp_path, "gpu1")
    assert first is not None
    (tmp_path / "gpu1.lock").unlink()
    second = lock_name(tmp_path, "gpu1")
    assert second is not None and os.fstat(second).st_ino == (tmp_path / "gpu1.lock").stat().st_ino
    assert lock_name(tmp_path, "gpu1") is None
    os.close(first)
    os.close(second)


def test_a_pilot_starts_the_launcher_of_a_node_named_by_its_host(state: Path) -> None:
    command, env = launch(state, HOST)
    assert command[command.index("--node") + 1] == "gpu1"
    assert command[command.index("--arbiter") + 1] == "head:7720"
    assert command[command.index("--slots") + 1] == "2" and "--cpu-only" in command
    assert command[command.index("--join") + 1] == str(state / FOLDER / "join.token")
    assert env["SLURM_JOB_ID"] == "12"
    (pilot,) = pilots(state / FOLDER).values()
    assert (pilot.job, pilot.node, pilot.host, pilot.ended) == ("12", "gpu1", "gpu1", None)


@pytest.mark.parametrize(("code", "kept"), [("0", False), ("137", True), (None, True)])
def test_a_node_joins_as_new_only_after_an_end_in_order(state: Path, code: str | None, kept: bool) -> None:
    write_pilot(state / FOLDER, Pilot(job="11", node="gpu1", host="gpu1", began_at=1.0))
    if code is not None:
        (state / FOLDER / PILOTS / "11.end").write_text(code)
    folder = private_folder(Request.load(state).node_dir, mark_of(state)) / "gpu1"
    folder.mkdir()
    (folder / "joined.json").write_text("{}")
    launch(state, HOST)
    assert (folder / "joined.json").exists() == kept


@pytest.mark.parametrize("env", [{}, {"SLURM_JOB_ID": "12"}, {"SLURM_JOB_ID": "x", "SLURMD_NODENAME": "gpu1"}])
def test_a_pilot_outside_a_job_of_slurm_is_refused(state: Path, env: dict[str, str]) -> None:
    with pytest.raises(InputError, match="must run in a batch job of Slurm"):
        launch(state, env)
    assert pilots(state / FOLDER) == {}


def test_a_pilot_without_a_head_is_refused(state: Path) -> None:
    (state / FOLDER / "head.json").unlink()
    with pytest.raises(InputError, match="the head must have written its address"):
        head_address(state / FOLDER)


def test_a_node_without_the_gpus_that_were_asked_for_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(InputError, match="a node of --gres gpu:4 must have NVIDIA GPUs that NVML finds"):
        check_gpus(" of --gres gpu:4")


def test_a_folder_of_a_node_that_is_open_to_others_or_a_link_is_refused(tmp_path: Path) -> None:
    made = private_folder(tmp_path, "0123abcd")
    made.chmod(0o755)
    with pytest.raises(InputError, match="open to no other"):
        private_folder(tmp_path, "0123abcd")
    made.rmdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    made.symlink_to(tmp_path / "elsewhere")
    with pytest.raises((InputError, FileExistsError)):
        private_folder(tmp_path, "0123abcd")


def test_the_folder_of_a_node_that_ended_in_order_is_removed(state: Path) -> None:
    command, _ = launch(state, HOST)
    base = private_folder(Request.load(state).node_dir, mark_of(state))
    (base / "gpu1").mkdir()
    clear(state, HOST)
    assert (base / "gpu1").exists(), "its launcher still holds the name"
    for entry in Path("/proc/self/fd").iterdir():  # as the end of the launcher would
        if entry.exists() and str(entry.resolve()) == str(base / "gpu1.lock"):
            os.close(int(entry.name))
            break
    clear(state, HOST)
    assert not base.exists()
    assert command


def test_records_that_are_damaged_are_left_out_and_those_of_a_job_can_be_dropped(state: Path) -> None:
    write_pilot(state / FOLDER, Pilot(job="11", node="gpu1", host="gpu1", began_at=1.0))
    (state / FOLDER / PILOTS / "13.json").write_text('{"job": ')
    (state / FOLDER / PILOTS / "11.end").write_text("0\n")
    assert {job: pilot.ended for job, pilot in pilots(state / FOLDER).items()} == {"11": 0}
    drop_pilot(state / FOLDER, "11")
    assert pilots(state / FOLDER) == {}
    assert (state / FOLDER / PILOTS / "11.end").exists(), "Slurm may list the job for a while"
    drop_ends(state / FOLDER, {"12"})
    assert not (state / FOLDER / PILOTS / "11.end").exists()
    shutil.rmtree(state)
