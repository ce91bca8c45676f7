"""What survives when launcher, shepherd or worker are killed, and what an adopting launcher makes of it."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from eunomia.errors import InputError
from eunomia_appmaster.launcher import processes, shepherd
from eunomia_appmaster.launcher.files import write_json
from eunomia_appmaster.launcher.node import Epochs
from eunomia_appmaster.node.supervisor import left_running
from eunomia_appmaster.runtimes import ContainerState, Exit, LeaseOverError, SlotBusyError, WatchPosition

_spec = importlib.util.spec_from_file_location("launcher_lab", Path(__file__).parent / "launcher_lab.py")
lab_module = sys.modules.setdefault("launcher_lab", importlib.util.module_from_spec(_spec))
_spec.loader.exec_module(lab_module)
eventually, alive = lab_module.eventually, lab_module.alive

WAITS_FOR_FILE = """
import os, sys, time
print(os.getpid(), flush=True)
while not os.path.exists("go"):
    time.sleep(0.02)
sys.exit(3)
"""
RECONNECTS = """
import json, os, socket, sys, time
def connect():
    folder = os.open(os.environ["EUNOMIA_CONTAINER_DIR"], os.O_RDONLY)
    orders = socket.socket(socket.AF_UNIX)
    orders.connect(f"/proc/self/fd/{folder}/orders.sock")
    lines = orders.makefile("rw")
    lines.write(json.dumps({"hello": {"pid": os.getpid(), "rank": 0}}) + "\\n")
    lines.flush()
    print("hello", flush=True)
    return lines
while True:
    try:
        for line in connect():
            print(line, end="", flush=True)
            if "suspend" in line:
                sys.exit(75)
    except OSError:
        pass
    time.sleep(0.05)
"""
DEAF = "import signal, time\nsignal.signal(15, signal.SIG_IGN)\nprint('up', flush=True)\ntime.sleep(600)\n"


def test_a_killed_launcher_is_replaced_by_one_that_adopts_its_processes(tmp_path: Path) -> None:
    with lab_module.lab(tmp_path, slots=4) as lab:
        ana, epoch = lab.runtime("ana"), 7
        for slot, script in enumerate([WAITS_FOR_FILE, RECONNECTS, DEAF, "raise SystemExit(4)"]):
            ana.start(lab.gang(slot, script=script, job=slot, epoch=epoch))
        eventually(lambda: lab.stdout(job=0) and lab.stdout(job=1) and lab.stdout(job=2))
        lab.completed("ana-3.r1.3")
        before = lab.status("ana-1.r1.1")
        ana.order_stop_at(["ana-1.r1.1"], 192)
        ana.stop(["ana-2.r1.2"], deadline_seconds=1.5, reason="over")
        lab.kill()
        (tmp_path / "go").touch()  # the first worker ends while no launcher is there
        eventually(lambda: not alive(int(lab.stdout(job=0))))
        assert alive(before.pid)
        lab.start()

        registered = {status.container_id for status in lab.arbiter.registrations[-1].containers}
        assert registered == {"ana-0.r1.0", "ana-1.r1.1", "ana-2.r1.2", "ana-3.r1.3"}
        assert lab.completed("ana-0.r1.0").exit == Exit(code=3)
        assert lab.completed("ana-3.r1.3").exit == Exit(code=4)
        overdue = lab.completed("ana-2.r1.2")  # the deadline was kept
        assert (overdue.exit, overdue.killed) == (Exit(signal=9), True)
        now = lab.status("ana-1.r1.1")
        assert (now.pid, now.state) == (before.pid, ContainerState.RUNNING)
        with pytest.raises(SlotBusyError):
            ana.start(lab.gang(1, script="", job=9, epoch=epoch))
        with pytest.raises(LeaseOverError):
            ana.start(lab.gang(3, script="", job=9, epoch=epoch - 1))
        eventually(lambda: lab.stdout(job=1).count("hello") == 2, "reconnection")
        ana.stop(["ana-1.r1.1"], deadline_seconds=20, reason="over")
        assert lab.completed("ana-1.r1.1").exit == Exit(code=75)
        orders = [json.loads(line) for line in lab.stdout(job=1).splitlines() if line.startswith("{")]
        assert [order["order"] for order in orders] == ["stop_at", "stop_at", "suspend"]  # the rung is sent again


def test_an_app_master_that_watches_containers_finds_the_restarted_launcher(tmp_path: Path) -> None:
    with lab_module.lab(tmp_path) as lab:
        position = lab.runtime().watch(WatchPosition(), wait_seconds=0).position
        lab.runtime().start(lab.gang(0, script=WAITS_FOR_FILE))
        eventually(lab.stdout)
        lab.kill()
        lab.start()
        watch = lab.runtime().watch(position, wait_seconds=0)  # positions of the former launcher count for nothing
        assert [status.container_id for status in watch.statuses] == ["ana-1.r1.0"]
        (tmp_path / "go").touch()
        assert lab.completed("ana-1.r1.0").exit == Exit(code=3)


def test_a_container_ends_with_its_killed_shepherd(tmp_path: Path) -> None:
    script = "import os, time\nif os.fork() == 0:\n    os.setsid()\nprint(os.getpid(), flush=True)\ntime.sleep(600)"
    with lab_module.lab(tmp_path) as lab:
        lab.runtime().start(lab.gang(0, script=script))
        pids = eventually(lambda: len(lines := lab.stdout().split()) == 2 and [int(line) for line in lines])
        folder = lab.run_folder() / "containers" / "ana-1.r1.0"
        os.kill(json.loads((folder / "worker.json").read_text())["shepherd_pid"], signal.SIGKILL)
        status = lab.completed("ana-1.r1.0")
        assert status.exit == Exit()
        assert "exit code is unknown" in status.diagnostics
        assert not status.finished
        assert not status.suspended
        assert [pid for pid in pids if alive(pid)] == []


def test_a_killed_worker_is_reported_with_its_signal(tmp_path: Path) -> None:
    with lab_module.lab(tmp_path) as lab:
        lab.runtime().start(lab.gang(0, script=DEAF))
        pid = eventually(lambda: lab.stdout() and lab.status("ana-1.r1.0").pid)
        os.kill(pid, signal.SIGKILL)
        status = lab.completed("ana-1.r1.0")
        assert (status.exit, status.killed) == (Exit(signal=9), False)


def test_another_process_with_the_same_pid_is_not_taken_for_the_worker(tmp_path: Path) -> None:
    with lab_module.lab(tmp_path) as lab:
        lab.runtime().start(lab.gang(0, script=DEAF))
        worker = eventually(lambda: lab.stdout() and lab.status("ana-1.r1.0").pid)
        lab.kill()
        folder = lab.run_folder() / "containers" / "ana-1.r1.0"
        record = json.loads((folder / "worker.json").read_text())
        for pid in (record["shepherd_pid"], worker):
            os.kill(pid, signal.SIGKILL)
        with subprocess.Popen(["sleep", "600"], start_new_session=True) as stranger:
            write_json(folder / "worker.json", {**record, "pid": stranger.pid, "shepherd_pid": stranger.pid})
            lab.start()
            assert lab.completed("ana-1.r1.0").exit == Exit()
            assert stranger.poll() is None
            stranger.kill()


def test_a_shepherd_does_not_start_a_worker_that_the_launcher_gave_up(tmp_path: Path) -> None:
    start = {"argv": ["touch", "began"], "cwd": str(tmp_path), "env": dict(os.environ)}
    write_json(tmp_path / "start.json", {**start, "stdout": "/dev/null", "stderr": "/dev/null", "forked": False})
    (tmp_path / "claim").symlink_to("launcher")
    read, write = os.pipe()
    command = [sys.executable, "-I", "-S", shepherd.__file__, str(tmp_path), str(write)]
    assert subprocess.run(command, pass_fds=[write]).returncode == 1
    os.close(write)
    assert os.read(read, 100) == b""
    os.close(read)
    assert not (tmp_path / "began").exists()
    assert not (tmp_path / "worker.json").exists()


def test_a_container_that_never_started_is_given_up(tmp_path: Path) -> None:
    with lab_module.lab(tmp_path) as lab:
        lab.runtime().start(lab.gang(0, script=DEAF))
        pid = eventually(lambda: lab.stdout() and lab.status("ana-1.r1.0").pid)
        lab.kill()
        folder = lab.run_folder() / "containers" / "ana-1.r1.0"
        shepherd_pid = json.loads((folder / "worker.json").read_text())["shepherd_pid"]
        for victim in (shepherd_pid, pid):
            os.kill(victim, signal.SIGKILL)
        for name in ("worker.json", "claim"):  # as if the launcher had died a moment earlier
            (folder / name).unlink()
        record = json.loads((folder / "container.json").read_text())
        del record["sum"]
        write_json(folder / "container.json", {**record, "pid": None, "shepherd_pid": None})
        lab.start()
        status = lab.completed("ana-1.r1.0")
        assert status.suspended  # nothing ran, nothing is lost
        assert "before its worker was started" in status.diagnostics


@pytest.mark.parametrize("torn", ["", '{"container_id": "ana', "\x00\x00", "[]"])
def test_files_that_a_power_cut_left_incomplete_are_set_aside(tmp_path: Path, torn: str) -> None:
    with lab_module.lab(tmp_path) as lab:
        lab.runtime().start(lab.gang(0, script=DEAF))
        pid = eventually(lambda: lab.stdout() and lab.status("ana-1.r1.0").pid)
        lab.kill()
        launchers, folder = tmp_path / "state" / "launcher", lab.run_folder() / "containers" / "ana-1.r1.0"
        for path in (launchers / "launcher.json", launchers / "secret", folder / "container.json"):
            for each in (path, path.with_name(f"{path.name}.old")):
                assert each.exists()
                each.write_text(torn)
        lab.start()
        assert lab.arbiter.registrations[-1].containers == []
        eventually(lambda: not alive(pid))  # a record is lost with the power only; all the same nothing is left behind
        assert (folder / "container.json.damaged").read_text() == torn
        assert lab.output().count("launcher.damaged_file") == 3
        lab.runtime().start(lab.gang(0, script="raise SystemExit(0)", job=2, epoch=2))
        assert lab.completed("ana-2.r1.0").finished


@pytest.mark.parametrize(
    ("records", "left"),
    [
        ([], False),
        (['{"state": "COMPLETED"}'], False),
        (['{"state": "COMPLETED"}', '{"state": "RUNNING"}'], True),
        (['{"state": "COMPLETED"}', '{"sta'], True),
    ],
)
def test_remaining_containers_are_reported_and_no_file_is_set_aside(
    tmp_path: Path, records: list[str], left: bool
) -> None:
    assert not left_running(tmp_path)
    for number, record in enumerate(records):
        path = tmp_path / "launcher" / "live" / str(number) / "container.json"
        path.parent.mkdir(parents=True)
        path.write_text(record)
    assert left_running(tmp_path) is left
    assert len(list(tmp_path.glob("launcher/live/*/container.json"))) == len(records)


def test_a_launcher_does_not_start_with_an_incomplete_epochs_file(tmp_path: Path) -> None:
    (tmp_path / "epochs.json").write_text('{"0": {"highest": 7')
    with pytest.raises(
        InputError, match=r"must be as it was written, or have a good older copy; restore it"
    ) as refused:
        Epochs(tmp_path / "epochs.json")
    assert "epochs.json" in str(refused.value)
    assert (tmp_path / "epochs.json").exists()


@pytest.mark.parametrize(("number", "survives"), [(signal.SIGTERM, False), (signal.SIGHUP, True)])
def test_sigterm_ends_launcher_and_containers_and_sighup_only_the_launcher(
    tmp_path: Path, number: int, survives: bool
) -> None:
    with lab_module.lab(tmp_path) as lab:
        lab.runtime().start(lab.gang(0, script=DEAF))
        pid = eventually(lambda: lab.stdout() and lab.status("ana-1.r1.0").pid)
        lab.launcher.send_signal(number)
        assert lab.launcher.wait(20) == 0
        assert alive(pid) is survives


def test_a_process_is_identified_by_its_pid_and_start_time() -> None:
    own = processes.identify(os.getpid())
    assert own is not None
    assert own.alive
    stranger = processes.ProcessId(own.pid, own.start_time - 1)
    assert not stranger.alive
    assert not stranger.signal(signal.SIGKILL)
    with subprocess.Popen(["true"]) as child:
        eventually(lambda: processes.identify(child.pid) is None)  # a zombie is gone
        assert not processes.ProcessId(child.pid, 0).signal(signal.SIGTERM)


def test_processes_of_a_container_are_found_by_mark_session_and_descent() -> None:
    env = {**os.environ, processes.MARK: "marked-1"}
    by_mark = subprocess.Popen(["sleep", "60"], env=env, start_new_session=True)
    other = subprocess.Popen(["sleep", "60"], env={**os.environ, processes.MARK: "marked-11"}, start_new_session=True)
    leads = subprocess.Popen(["sh", "-c", "sleep 60 & sleep 60"], start_new_session=True)
    worker = processes.identify(leads.pid)
    eventually(lambda: len(processes.members("marked-1", worker, None)) == 4)
    found = {member.pid for member in processes.members("marked-1", worker, None)}
    assert {by_mark.pid, leads.pid} < found
    assert other.pid not in found
    processes.kill(processes.members("marked-1", worker, None))
    other.kill()
    for child in (by_mark, other, leads):
        child.wait()
    eventually(lambda: processes.members("marked-1", worker, None) == [])


def test_a_launcher_works_in_a_folder_with_a_long_path(tmp_path: Path) -> None:
    deep: Any = tmp_path / ("long" * 30)
    deep.mkdir()
    with lab_module.lab(deep) as lab:
        lab.runtime().start(lab.gang(0, script=RECONNECTS))
        eventually(lambda: lab.status("ana-1.r1.0").hello)


def test_what_ended_with_its_machine_ended_when_the_launcher_there_was_last_at_work(tmp_path: Path) -> None:
    with lab_module.lab(tmp_path) as lab:
        lab.runtime().start(lab.gang(0, script=WAITS_FOR_FILE))
        pid = eventually(lambda: lab.stdout() and lab.status("ana-1.r1.0").pid)
        record = json.loads((lab.run_folder() / "containers" / "ana-1.r1.0" / "worker.json").read_text())
        assert lab.launcher is not None
        for process in (lab.launcher.pid, record["shepherd_pid"], pid):
            os.kill(process, signal.SIGKILL)
        lab.launcher.wait()
        off_at = time.time()
        time.sleep(2.0)
        lab.start()
        status = lab.completed("ana-1.r1.0")
        assert status.exit == Exit() and "exit code is unknown" in status.diagnostics
        assert record["started_at"] <= status.ended_at <= off_at
