"""Jobs that change their size live: a real launcher and app master, workers that speak the words of live changes."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from tests.appmaster.master_lab import MasterLab, eventually, master_lab

from eunomia_appmaster.master.conductor import SILENT_SECONDS
from eunomia_appmaster.protocol import launcher_pb2 as pb
from eunomia_appmaster.runtimes import ContainerState

FILE = """
[app]
name = "live"
[job]
command = "python live_script.py {options}"
slots = {{ min = {least}, max = 3 }}
max_iterations = 1000000
elastic = "live"
"""


HASTY = Path(__file__).with_name("hasty_master.py")


def _submit(lab: MasterLab, options: str = "", more: str = "", master: Path | None = None, least: int = 1) -> Path:
    (lab.folder / "live_script.py").write_bytes((Path(__file__).parent / "live_script.py").read_bytes())
    return lab.submit("live", FILE.format(options=options, least=least) + more, master=master)


def _given_back(lab: MasterLab) -> list[int]:
    return [gpu for report in lab.arbiter.reports("release") for gpu in report.gpus]


def _confirmed(lab: MasterLab) -> int:
    return max((report.epoch for report in lab.arbiter.reports("resized")), default=0)


def _traces(app_dir: Path) -> dict[str, list[str]]:
    """Lines of each worker's trace, by container."""
    files = sorted((app_dir / "1").glob("trace.*"))
    return {path.name.removeprefix("trace."): path.read_text().splitlines() for path in files}


def _entered(app_dir: Path, container: str, words: str) -> None:
    eventually(lambda: f"entered {words}" in _traces(app_dir).get(container, []), f"{container} enters {words}")


def _starts(lab: MasterLab) -> int:
    return len(lab.activity("live", "start"))


def _sizes(lab: MasterLab) -> list[int]:
    return [len(line["slots"]) for line in lab.activity("live", "resized")]


def _live(lab: MasterLab, container: str) -> Any:
    return lab.status(container, "live").live


def test_a_job_grows_and_shrinks_without_a_new_incarnation(tmp_path: Path) -> None:
    with master_lab(tmp_path) as lab:
        app_dir = _submit(lab)
        lab.arbiter.grant("live", 1, 0, job="live/1")
        eventually(lambda: lab.activity("live", "running"), "first step")
        lab.arbiter.grant("live", 1, 0, 1, job="live/1")
        _entered(app_dir, "live.1.1.1", "1 live.1.1.0 live.1.1.1")
        eventually(lambda: _sizes(lab) == [2], "resized")
        lab.arbiter.revoke("live", 1, 0)
        eventually(lambda: "leaving 2" in _traces(app_dir)["live.1.1.0"], "the old rank 0 leaves")
        _entered(app_dir, "live.1.1.1", "2 live.1.1.1")
        eventually(lambda: _sizes(lab) == [2, 1], "resized")
        lab.arbiter.free(0)
        assert _starts(lab) == 1
        assert not lab.status("live.1.1.0", "live").killed


def test_a_job_grows_to_its_maximum_and_gives_back_the_other_slots_of_its_lease(tmp_path: Path) -> None:
    with master_lab(tmp_path, slots=4) as lab:
        app_dir = _submit(lab)
        lab.arbiter.grant("live", 1, 0, job="live/1")
        eventually(lambda: lab.activity("live", "running"), "first step")
        lab.arbiter.grant("live", 1, 0, 1, 2, 3, job="live/1")
        eventually(lambda: _given_back(lab) == [3], "what is too much is given back")
        _entered(app_dir, "live.1.1.0", "1 live.1.1.0 live.1.1.1 live.1.1.2")
        why = "a lease of live/1 must have 1 to 3 slots, but got 4 (lease 1); 1 given back"
        eventually(lambda: [one for one in lab.arbiter.reports("standing") if why in one.notices], "a notice")
        assert list(lab.arbiter.reports("standing")[-1].notices).count(why) == 1
        assert _starts(lab) == 1


@pytest.mark.slow
def test_a_lease_that_shrinks_below_a_jobs_least_suspends_it_and_is_given_back(tmp_path: Path) -> None:
    with master_lab(tmp_path) as lab:
        _submit(lab, least=2)
        lab.arbiter.grant("live", 1, 0, 1, job="live/1")
        eventually(lambda: lab.activity("live", "running"), "first step")
        lab.arbiter.revoke("live", 1, 1)
        eventually(lambda: _given_back(lab) == [0], "the rest is given back")
        lab.arbiter.free(0, 1)
        why = "a lease of live/1 must have 2 to 3 slots, but got 1 (lease 1); 1 given back"
        eventually(lambda: [one for one in lab.arbiter.reports("standing") if why in one.notices], "a notice")
        assert _starts(lab) == 1
        lab.arbiter.grant("live", 2, 1, 2, job="live/1")
        eventually(lambda: _starts(lab) == 2, "it goes on at a size that it can have")


@pytest.mark.slow
def test_a_lease_that_grows_before_a_slow_script_has_begun_waits_for_it(tmp_path: Path) -> None:
    with master_lab(tmp_path) as lab:
        app_dir = _submit(lab, "--late")
        lab.arbiter.grant("live", 1, 0, job="live/1")
        eventually(lambda: "live.1.1.0" in _traces(app_dir), "a worker")
        time.sleep(SILENT_SECONDS + 1.0)
        lab.arbiter.grant("live", 1, 0, 1, job="live/1")
        _entered(app_dir, "live.1.1.1", "1 live.1.1.0 live.1.1.1")
        assert _starts(lab) == 1


@pytest.mark.slow
def test_a_first_gang_that_breaks_before_its_first_step_starts_again(tmp_path: Path) -> None:
    with master_lab(tmp_path) as lab:
        app_dir = _submit(lab, "--apart")
        lab.arbiter.grant("live", 1, 0, 1, job="live/1")
        eventually(lambda: "live.1.2.1" in _traces(app_dir), "another incarnation")
        eventually(lambda: lab.activity("live", "running"), "first step")
        assert lab.activity("live", "failed") == []


@pytest.mark.slow
def test_a_lease_that_shrinks_before_the_first_step_costs_no_restart(tmp_path: Path) -> None:
    with master_lab(tmp_path) as lab:
        app_dir = _submit(lab, "--waits")
        lab.arbiter.grant("live", 1, 0, 1, 2, job="live/1")
        eventually(lambda: len(_traces(app_dir)) == 3, "its workers")
        eventually(lambda: lab.status("live.1.1.0", "live").hello, "its helper")
        time.sleep(1.0)  # the app master hears of it
        lab.arbiter.revoke("live", 1, 2)
        eventually(lambda: _traces(app_dir).get("live.1.1.0", [])[1:] == [EARLY], "a change before its first step")
        lab.arbiter.free(2)
        (lab.folder / "quick").touch()
        eventually(lambda: lab.activity("live", "running"), "first step")
        eventually(lambda: _sizes(lab) == [2], "resized")
        assert _starts(lab) == 1
        lab.arbiter.revoke("live", 1, 1)
        _entered(app_dir, "live.1.1.0", "2 live.1.1.0")


EARLY = "before its first step 1 live.1.1.0 live.1.1.1"


def test_a_measurement_on_fewer_slots_waits_for_the_first_step_on_all_of_them(tmp_path: Path) -> None:
    with master_lab(tmp_path) as lab:
        app_dir = _submit(lab, "--waits")
        lab.arbiter.grant("live", 1, 0, 1, job="live/1")
        eventually(lambda: _starts(lab) == 1, "a start")
        lab.arbiter.grant("live", 1, 0, job="live/1", probe=20)
        eventually(lambda: "live.1.1.0" in _traces(app_dir), "its workers")
        time.sleep(0.5)  # the app master knows both
        (lab.folder / "quick").touch()
        _entered(app_dir, "live.1.1.0", "1 live.1.1.0")
        eventually(lambda: _sizes(lab) == [1], "resized")
        assert _starts(lab) == 1
        assert not any("first step" in line for line in _traces(app_dir)["live.1.1.0"])


def test_a_job_that_ends_before_an_ordered_growth_is_finished(tmp_path: Path) -> None:
    with master_lab(tmp_path) as lab:
        _submit(lab, "--deaf --steps 300")
        lab.arbiter.grant("live", 1, 0, job="live/1")
        eventually(lambda: lab.activity("live", "running"), "first step")
        (lab.folder / "holds").touch()
        lab.arbiter.grant("live", 1, 0, 1, job="live/1")
        eventually(lambda: any("ready" in line["why"] for line in lab.activity("live", "change")), "an ordered change")
        (lab.folder / "holds").unlink()
        eventually(lambda: lab.activity("live", "finished"), "the job's end")
        eventually(lambda: lab.status("live.1.1.1", "live").killed, "its newcomer is ended")
        assert _starts(lab) == 1


def test_a_gang_whose_app_master_is_stopped_suspends_at_once_when_all_its_slots_are_revoked(tmp_path: Path) -> None:
    with master_lab(tmp_path) as lab:
        app_dir = _submit(lab)
        lab.arbiter.grant("live", 1, 0, 1, job="live/1")
        eventually(lambda: lab.activity("live", "running"), "first step")
        os.kill(lab.arbiter.masters["live"].pid, signal.SIGSTOP)  # it orders nothing
        lab.arbiter.revoke("live", 1, 0, 1, seconds=1000.0)
        time.sleep(1.5)
        assert not any("suspended" in " ".join(lines) for lines in _traces(app_dir).values())
        lab.arbiter.order(stop_app_masters=[pb.AppMasterStop(app="live", deadline_seconds=1.0)])
        eventually(lambda: all("suspended" in " ".join(lines) for lines in _traces(app_dir).values()), "it suspends")


def test_a_job_of_one_slot_moves_to_another_one_without_a_restart(tmp_path: Path) -> None:
    with master_lab(tmp_path) as lab:
        app_dir = _submit(lab)
        lab.arbiter.grant("live", 1, 0, job="live/1")
        eventually(lambda: lab.activity("live", "running"), "first step")
        lab.arbiter.grant("live", 1, 1, job="live/1")
        lab.arbiter.revoke("live", 1, 0, seconds=1000.0)
        _entered(app_dir, "live.1.1.1", "2 live.1.1.1")
        assert _starts(lab) == 1


@pytest.mark.slow
def test_a_newer_lease_replaces_a_change_whose_newcomer_is_not_ready(tmp_path: Path) -> None:
    with master_lab(tmp_path) as lab:
        app_dir = _submit(lab, "--slow")
        lab.arbiter.grant("live", 1, 0, job="live/1")
        eventually(lambda: lab.activity("live", "running"), "first step")
        lab.arbiter.grant("live", 1, 0, 1, job="live/1")
        eventually(lambda: "live.1.1.1" in _traces(app_dir), "a newcomer")
        lab.arbiter.revoke("live", 1, 1)
        lab.arbiter.free(1)
        assert lab.status("live.1.1.0", "live").state is ContainerState.RUNNING
        assert _traces(app_dir)["live.1.1.0"] == ["began 0 live.1.1.0"]


@pytest.mark.slow
def test_a_newcomer_that_does_not_fit_is_given_up_and_the_job_never_hears_of_it(tmp_path: Path) -> None:
    with master_lab(tmp_path) as lab:
        app_dir = _submit(lab, "--unfit")
        lab.arbiter.grant("live", 1, 0, job="live/1")
        eventually(lambda: lab.activity("live", "running"), "first step")
        lab.arbiter.grant("live", 1, 0, 1, job="live/1")
        eventually(lambda: "live.1.1.1" in _traces(app_dir), "a newcomer")
        eventually(lambda: lab.status("live.1.1.1", "live").completed, "the newcomer's end")
        before = lab.status("live.1.1.0", "live").step
        eventually(lambda: lab.status("live.1.1.0", "live").step > before + 100, "steps go on")
        assert set(_traces(app_dir)) == {"live.1.1.0", "live.1.1.1"}
        assert _traces(app_dir)["live.1.1.0"] == ["began 0 live.1.1.0"]
        eventually(lambda: _given_back(lab) == [1], "the slot is given back")
        (said,) = lab.activity("live", "left_out")
        assert said["why"].startswith("the newcomer on slot 1 does not join: ")
        assert said["slots"] == [0]
        assert _starts(lab) == 1


@pytest.mark.slow
def test_a_newcomer_that_never_gets_ready_is_given_up_and_its_slot_given_back(tmp_path: Path) -> None:
    with master_lab(tmp_path) as lab:
        app_dir = _submit(lab, "--slow", master=HASTY)
        lab.arbiter.grant("live", 1, 0, job="live/1")
        eventually(lambda: lab.activity("live", "running"), "first step")
        lab.arbiter.grant("live", 1, 0, 1, job="live/1")
        eventually(lambda: "live.1.1.1" in _traces(app_dir), "a newcomer")
        eventually(lambda: _given_back(lab) == [1], "the slot is given back")
        assert lab.status("live.1.1.1", "live").completed, "before its slot is given back"
        (said,) = lab.activity("live", "left_out")
        assert said["why"] == "the newcomer on slot 1 does not join: it was not ready in time"
        assert _traces(app_dir)["live.1.1.0"] == ["began 0 live.1.1.0"]
        assert _starts(lab) == 1
        lab.arbiter.revoke("live", 1, 1)
        eventually(lambda: _confirmed(lab) == lab.arbiter.leases[1].epoch, "the job runs on the rest of its lease")


@pytest.mark.slow
def test_a_slot_on_which_two_workers_failed_is_given_back(tmp_path: Path) -> None:
    with master_lab(tmp_path) as lab:
        app_dir = _submit(lab)
        lab.arbiter.grant("live", 1, 0, 1, job="live/1")
        eventually(lambda: lab.activity("live", "running"), "first step")
        for number, generation in ((1, 2), (2, 3)):
            os.kill(lab.status(f"live.1.1.{number}", "live").pid, signal.SIGKILL)
            if number == 1:
                _entered(app_dir, "live.1.1.2", f"{generation} live.1.1.0 live.1.1.2")
        eventually(lambda: _given_back(lab) == [1], "the slot is given back")
        _entered(app_dir, "live.1.1.0", "3 live.1.1.0")
        assert _starts(lab) == 1


@pytest.mark.slow
def test_a_job_goes_on_without_a_worker_that_dies_and_its_slot_gets_another(tmp_path: Path) -> None:
    with master_lab(tmp_path) as lab:
        app_dir = _submit(lab)
        lab.arbiter.grant("live", 1, 0, 1, 2, job="live/1")
        eventually(lambda: lab.activity("live", "running"), "first step")
        (lab.folder / "holds").touch()
        os.kill(lab.status("live.1.1.0", "live").pid, signal.SIGKILL)
        eventually(lambda: "live.1.1.3" in _traces(app_dir), "its slot gets another worker")
        time.sleep(1.0)  # the app master looks again while the others have not formed their generation
        (lab.folder / "holds").unlink()
        _entered(app_dir, "live.1.1.1", "1 live.1.1.1 live.1.1.2")
        _entered(app_dir, "live.1.1.1", "2 live.1.1.1 live.1.1.2 live.1.1.3")
        os.kill(lab.status("live.1.1.3", "live").pid, signal.SIGSTOP)
        _entered(app_dir, "live.1.1.1", "3 live.1.1.1 live.1.1.2")
        eventually(lambda: lab.status("live.1.1.3", "live").completed, "a stopped worker is killed")
        assert _starts(lab) == 1
        assert [line["why"].partition(",")[0] for line in lab.activity("live", "left_out")] == [
            "worker on slot 0 was ended by signal 9",
            "worker on slot 0 was stopped",
        ]


@pytest.mark.slow
def test_a_job_goes_on_without_a_worker_that_leaves_alone_or_hangs(tmp_path: Path) -> None:
    with master_lab(tmp_path) as lab:
        app_dir = _submit(lab, more='stall_after = "5s"')
        lab.arbiter.grant("live", 1, 0, 1, 2, job="live/1")
        eventually(lambda: lab.activity("live", "running"), "first step")
        (lab.folder / "leaves.live.1.1.2").touch()
        _entered(app_dir, "live.1.1.0", "1 live.1.1.0 live.1.1.1")
        _entered(app_dir, "live.1.1.0", "2 live.1.1.0 live.1.1.1 live.1.1.3")
        (lab.folder / "hangs.live.1.1.1").touch()
        _entered(app_dir, "live.1.1.0", "3 live.1.1.0 live.1.1.3")
        eventually(lambda: lab.status("live.1.1.1", "live").completed, "the hanging worker is killed")
        (left_out,) = lab.activity("live", "left_out")
        assert left_out["why"].startswith("worker 1 stalled: no progress for ")
        assert _starts(lab) == 1


@pytest.mark.slow
def test_an_app_master_and_a_launcher_that_are_killed_in_a_change_go_on_with_it(tmp_path: Path) -> None:
    with master_lab(tmp_path) as lab:
        app_dir = _submit(lab, "--slow")
        lab.arbiter.grant("live", 1, 0, job="live/1")
        eventually(lambda: lab.activity("live", "running"), "first step")
        lab.arbiter.grant("live", 1, 0, 1, job="live/1")
        eventually(lambda: "live.1.1.1" in _traces(app_dir), "a newcomer")
        os.kill(lab.arbiter.masters["live"].pid, signal.SIGKILL)
        lab.kill()
        lab.start()
        (lab.folder / "quick").touch()
        _entered(app_dir, "live.1.1.1", "1 live.1.1.0 live.1.1.1")
        eventually(lambda: _sizes(lab) == [2], "resized")
        assert _starts(lab) == 1
        lab.kill()
        lab.start()
        lab.arbiter.revoke("live", 1, 1)
        _entered(app_dir, "live.1.1.0", "2 live.1.1.0")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_job_whose_store_dies_or_is_stopped_changes_by_a_restart(tmp_path: Path, number: signal.Signals) -> None:
    with master_lab(tmp_path) as lab:
        app_dir = _submit(lab)
        lab.arbiter.grant("live", 1, 0, job="live/1")
        eventually(lambda: lab.activity("live", "running"), "first step")
        (store,) = (app_dir / "1" / "containers").glob("store:*")
        os.kill(json.loads((store / "worker.json").read_text())["pid"], number)
        eventually(lambda: _live(lab, "live.1.1.0").store_lost, "the store's end is reported")
        lab.arbiter.grant("live", 1, 0, 1, job="live/1")
        eventually(lambda: "live.1.2.1" in _traces(app_dir), "another incarnation")
        assert _starts(lab) == 2


@pytest.mark.slow
def test_a_script_that_cannot_change_live_changes_by_a_restart_and_says_so_once(tmp_path: Path) -> None:
    with master_lab(tmp_path) as lab:
        app_dir = _submit(lab, "--fixed")
        lab.arbiter.grant("live", 1, 0, job="live/1")
        eventually(lambda: lab.activity("live", "running"), "first step")
        lab.arbiter.grant("live", 1, 0, 1, job="live/1")
        eventually(lambda: _traces(app_dir).get("live.1.2.1") == ["began 0 live.1.2.0 live.1.2.1"], "a restart")
        why = "live/1: it changes its size by a restart, not live: the script has a process group of its own"
        eventually(lambda: [one for one in lab.arbiter.reports("standing") if why in one.notices], "a notice")
        assert list(lab.arbiter.reports("standing")[-1].notices).count(why) == 1


@pytest.mark.slow
def test_a_store_ends_with_its_job(tmp_path: Path) -> None:
    with master_lab(tmp_path) as lab:
        app_dir = _submit(lab, "--steps 100")
        lab.arbiter.grant("live", 1, 0, job="live/1")
        eventually(lambda: lab.arbiter.finished, "the app's end")
        (store,) = (app_dir / "1" / "containers").glob("store:*")
        eventually(lambda: (store / "exit.json").exists(), "the store's end")


@pytest.mark.slow
def test_slots_that_the_app_divides_widen_a_job_live_and_a_dead_workers_slot_is_given_back(tmp_path: Path) -> None:
    with master_lab(tmp_path) as lab:
        app_dir = _submit(lab)
        lab.arbiter.grant("live", 1, 0)
        eventually(lambda: lab.activity("live", "running"), "first step")
        lab.arbiter.grant("live", 2, 1)
        _entered(app_dir, "live.1.1.1", "1 live.1.1.0 live.1.1.1")
        eventually(lambda: _division(lab) == [0, 1], "the arbiter knows that it has both slots")
        lab.arbiter.revoke("live", 2, 1)
        _entered(app_dir, "live.1.1.0", "2 live.1.1.0")
        eventually(lambda: _division(lab) == [0], "the arbiter knows that it has one slot")
        lab.arbiter.free(1)
        lab.arbiter.grant("live", 3, 2)
        _entered(app_dir, "live.1.1.2", "3 live.1.1.0 live.1.1.2")
        os.kill(lab.status("live.1.1.2", "live").pid, signal.SIGKILL)
        _entered(app_dir, "live.1.1.0", "4 live.1.1.0")
        assert _starts(lab) == 1


def test_a_job_does_not_grow_onto_a_slot_whose_lease_ends_before_a_newcomer_could_join(tmp_path: Path) -> None:
    with master_lab(tmp_path) as lab:
        app_dir = _submit(lab)
        lab.arbiter.grant("live", 1, 0)
        eventually(lambda: lab.activity("live", "running"), "first step")
        lab.arbiter.grant("live", 2, 1, ends_at=6.1)  # a tenth of a second from now, by the arbiter's clock
        lab.arbiter.grant("live", 3, 2)
        _entered(app_dir, "live.1.1.1", "1 live.1.1.0 live.1.1.1")
        eventually(lambda: _division(lab) == [0, 2], "the arbiter knows that the job has two slots")


def _division(lab: MasterLab) -> list[int]:
    """The GPUs of the job, as the app master said last."""
    reports = lab.arbiter.reports("division")
    return list(reports[-1].jobs[0].gpus) if reports and reports[-1].jobs else []
