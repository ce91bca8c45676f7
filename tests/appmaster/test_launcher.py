"""Containers of a running launcher: start, finish, suspend, kill, fences and tokens."""

import dataclasses
import importlib.util
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eunomia_appmaster.protocol.tokens import container_token
from eunomia_appmaster.runtimes import (
    ContainerState,
    Exit,
    LacksError,
    LeaseOverError,
    LocalRuntime,
    RefusedError,
    SlotBusyError,
    WatchPosition,
)

_spec = importlib.util.spec_from_file_location("launcher_lab", Path(__file__).parent / "launcher_lab.py")
lab_module = sys.modules.setdefault("launcher_lab", importlib.util.module_from_spec(_spec))
_spec.loader.exec_module(lab_module)
eventually, alive, SECRET, NODE = lab_module.eventually, lab_module.alive, lab_module.SECRET, lab_module.NODE

SLEEPS = "import time\nprint('up', flush=True)\ntime.sleep(600)\n"
IGNORES = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = os.fork()
if child == 0 and os.fork() == 0:
    os.setsid()
    child = -1
print(os.getpid(), flush=True)
time.sleep(600)
"""
HELPER = """
import json, os, socket, sys
folder = os.open(os.environ["EUNOMIA_CONTAINER_DIR"], os.O_RDONLY)
orders = socket.socket(socket.AF_UNIX)
orders.connect(f"/proc/self/fd/{folder}/orders.sock")
lines = orders.makefile("rw")
def tell(**message):
    lines.write(json.dumps(message) + "\\n")
    lines.flush()
tell(hello={"pid": os.getpid(), "rank": int(os.environ["RANK"])})
tell(progress={"step": 96, "seconds_per_step": 0.5})
tell(saved={"step": 96})
tell(announce={"batch_size": 256})
for line in lines:
    order = json.loads(line)
    print(json.dumps(order), flush=True)
    if order["order"] == "suspend":
        tell(suspended={"step": 97})
        sys.exit(75)
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with lab_module.lab(tmp_path_factory.mktemp("launcher")) as lab:
        yield lab


@pytest.fixture(autouse=True)
def _empty_slots(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test has an app named after it, and leaves its slots free."""
    yield
    lab = request.getfixturevalue("lab")
    for app, runtime in lab.runtimes.items():
        left = [status for status in runtime.watch(WatchPosition(), wait_seconds=0).statuses if not status.completed]
        runtime.stop([status.container_id for status in left], deadline_seconds=0, reason="test over")
        for status in left:
            lab.completed(status.container_id, app)


@pytest.mark.parametrize(
    ("script", "how"),
    [
        ("print('done')", Exit(code=0)),
        ("import sys; sys.exit(3)", Exit(code=3)),
        ("raise SystemExit(75)", Exit(code=75)),
        ("import os; os.kill(os.getpid(), 11)", Exit(signal=11)),
        ("1 / 0", Exit(code=1)),
    ],
)
def test_the_exit_of_a_worker_is_reported(lab: Any, script: str, how: Exit, request: Any) -> None:
    app = f"ends-{abs(hash(script)) % 10**8}"
    lab.runtime(app).start(lab.gang(0, script=script, app=app, epoch=time.time_ns()))
    status = lab.completed(f"{app}-1.r1.0", app)
    assert status.exit == how
    assert status.finished == (how == Exit(code=0))
    assert status.suspended == (how == Exit(code=75))
    assert status.started_at <= status.ended_at
    assert not alive(status.pid)


def test_a_worker_gets_its_rank_folders_and_slot_through_the_environment(lab: Any) -> None:
    script = "import os, json; os.write(1, (json.dumps(dict(os.environ, CWD=os.getcwd())) + '\\n').encode())"
    gang = lab.gang(0, 2, script=script, app="env", epoch=time.time_ns(), env={"COLOUR": "red", "OMP_NUM_THREADS": "2"})
    lab.runtime("env").start(gang)
    for slot in (0, 2):
        lab.completed(f"env-1.r1.{slot}", "env")
    seen = sorted((json.loads(line) for line in lab.stdout("env").splitlines()), key=lambda env: env["RANK"])
    assert [env["LOCAL_RANK"] for env in seen] == ["0", "1"]
    assert {env["WORLD_SIZE"] for env in seen} == {"2"}
    assert len({env["MASTER_PORT"] for env in seen}) == 1
    own = seen[1]
    assert own["EUNOMIA_JOB"] == "env/1"
    assert own["EUNOMIA_RUN_DIR"] == str(lab.run_folder("env"))
    assert own["EUNOMIA_CONTAINER_DIR"] == str(lab.run_folder("env") / "containers" / "env-1.r1.2")
    assert (own["COLOUR"], own["OMP_NUM_THREADS"], own["MKL_NUM_THREADS"]) == ("red", "2", "1")
    assert own["CUDA_VISIBLE_DEVICES"] == ""
    assert own["CWD"] == str(lab.folder)
    assert "PYTHONPATH" not in own  # only a short list of the launcher's own is passed on


def test_a_command_that_does_not_exist_is_refused_before_anything_starts(lab: Any) -> None:
    gang = lab.gang(0, script="", app="none", epoch=time.time_ns(), command=("no-such-command",))
    with pytest.raises(LacksError, match="the program of a command must exist, but got 'no-such-command'"):
        lab.runtime("none").start(gang)
    assert not (lab.run_folder("none") / "containers" / "none-1.r1.0").exists()


def test_a_worker_receives_orders_and_the_launcher_receives_its_reports(lab: Any) -> None:
    runtime = lab.runtime("helper")
    runtime.start(lab.gang(1, script=HELPER, app="helper", epoch=time.time_ns()))
    name = "helper-1.r1.1"
    seen = eventually(lambda: (status := lab.status(name, "helper")).announced and status)
    assert (seen.step, seen.seconds_per_step, seen.saved_step, seen.hello) == (96, 0.5, 96, True)
    assert seen.announced == {"batch_size": 256}
    assert runtime.order_stop_at([name], 192) == (name,)
    assert runtime.order_checkpoint([name]) == (name,)
    runtime.stop([name], deadline_seconds=20, reason="lease over")
    status = lab.completed(name, "helper")
    assert (status.exit, status.suspended_step, status.killed) == (Exit(code=75), 97, False)
    assert status.suspended
    assert status.stop_reason == "lease over"
    orders = [json.loads(line) for line in lab.stdout("helper").splitlines()]
    assert orders == [
        {"order": "stop_at", "step": 192},
        {"order": "checkpoint"},
        {"order": "suspend", "deadline_seconds": 20.0},
    ]


def test_a_script_without_the_helper_gets_sigterm(lab: Any) -> None:
    script = (
        "import signal, sys, time\nsignal.signal(15, lambda *_: sys.exit(0))\nprint(1, flush=True)\ntime.sleep(600)"
    )
    lab.runtime("plain").start(lab.gang(0, script=script, app="plain", epoch=time.time_ns()))
    eventually(lambda: lab.stdout("plain"))
    assert lab.runtime("plain").order_checkpoint(["plain-1.r1.0"]) == ()
    lab.runtime("plain").stop(["plain-1.r1.0"], deadline_seconds=20, reason="over")
    status = lab.completed("plain-1.r1.0", "plain")
    assert (status.exit, status.killed) == (Exit(code=0), False)


def test_a_worker_that_ignores_orders_is_killed_with_all_children(lab: Any) -> None:
    lab.runtime("deaf").start(lab.gang(0, script=IGNORES, app="deaf", epoch=time.time_ns()))
    pids = eventually(lambda: len(lines := lab.stdout("deaf").split()) == 3 and [int(line) for line in lines])
    lab.runtime("deaf").stop(["deaf-1.r1.0"], deadline_seconds=600, reason="over")
    lab.runtime("deaf").stop(["deaf-1.r1.0"], deadline_seconds=0.3, reason="now")  # the earlier deadline counts
    lab.runtime("deaf").stop(["deaf-1.r1.0"], deadline_seconds=600, reason="later")
    status = lab.completed("deaf-1.r1.0", "deaf")
    assert (status.exit, status.killed, status.stop_reason) == (Exit(signal=9), True, "over")
    assert not status.suspended
    assert [pid for pid in pids if alive(pid)] == []


def test_processes_that_a_worker_leaves_behind_are_killed(lab: Any) -> None:
    script = "import subprocess\nprint(subprocess.Popen(['sleep', '600'], start_new_session=True).pid, flush=True)"
    lab.runtime("leaves").start(lab.gang(0, script=script, app="leaves", epoch=time.time_ns()))
    status = lab.completed("leaves-1.r1.0", "leaves")
    assert (status.exit, status.killed) == (Exit(code=0), False)
    assert not alive(int(lab.stdout("leaves")))


def test_an_older_epoch_is_refused(lab: Any) -> None:
    epoch = time.time_ns()
    lab.runtime("new").start(lab.gang(2, script="", app="new", epoch=epoch))
    lab.completed("new-1.r1.2", "new")
    with pytest.raises(LeaseOverError, match=f"slot 2 must be at least {epoch}.*but got {epoch - 1}"):
        lab.runtime("old").start(lab.gang(2, script="", app="old", epoch=epoch - 1))
    lab.runtime("new").start(lab.gang(2, script="", app="new", epoch=epoch, incarnation=2))  # a lease that goes on
    assert lab.completed("new-1.r2.2", "new").finished


def test_no_worker_starts_on_a_slot_before_the_previous_one_has_ended(lab: Any) -> None:
    epoch = time.time_ns()
    runtime = lab.runtime("busy")
    runtime.start(lab.gang(0, script=IGNORES, app="busy", epoch=epoch))
    eventually(lambda: lab.stdout("busy"))
    runtime.stop(["busy-1.r1.0"], deadline_seconds=600, reason="over")
    second = lab.gang(0, 1, script="", app="busy", epoch=epoch, job=2)
    with pytest.raises(SlotBusyError, match="slot 0 must be free"):
        runtime.start(second)
    runtime.stop(["busy-1.r1.0"], deadline_seconds=0.5, reason="now")
    first_end = runtime.start(second, wait_seconds=20) and lab.status("busy-1.r1.0", "busy").ended_at
    assert first_end is not None  # completed before the second began
    assert lab.completed("busy-2.r1.1", "busy").started_at >= first_end


def test_a_gang_of_a_newer_epoch_replaces_the_older_one(lab: Any) -> None:
    epoch = time.time_ns()
    lab.runtime("before").start(lab.gang(0, script=SLEEPS, app="before", epoch=epoch))
    eventually(lambda: lab.stdout("before"))
    lab.runtime("after").start(lab.gang(0, script="", app="after", epoch=epoch + 1), wait_seconds=20)
    before = lab.completed("before-1.r1.0", "before")
    assert before.killed
    assert before.ended_at <= lab.completed("after-1.r1.0", "after").started_at


def test_a_token_of_another_app_is_refused(lab: Any) -> None:
    epoch = time.time_ns()
    stolen = container_token(SECRET, "owner", NODE, 0, epoch)
    gang = lab.gang(0, script="", app="thief", epoch=epoch)
    gang = dataclasses.replace(gang, containers=(dataclasses.replace(gang.containers[0], token=stolen),))
    with pytest.raises(RefusedError, match="must be signed for app thief, node box7, slot 0"):
        lab.runtime("thief").start(gang)
    lab.runtime("owner").start(lab.gang(0, script=SLEEPS, app="owner", epoch=epoch))
    with pytest.raises(RefusedError, match="must be one of app thief"):
        lab.runtime("thief").stop(["owner-1.r1.0"], deadline_seconds=0, reason="")
    impostor = LocalRuntime("owner", "ab", lab.state / "launcher" / "launcher.json")
    with pytest.raises(RefusedError, match="node token"):
        impostor.watch(WatchPosition(), wait_seconds=0)
    impostor.close()
    assert lab.runtime("thief").watch(WatchPosition(), wait_seconds=0).statuses == ()


@pytest.mark.parametrize("folder", ["/elsewhere", "{own}/../other/1", "relative", "{own}"])
def test_a_run_folder_outside_the_apps_folder_is_refused(lab: Any, folder: str) -> None:
    run_folder = Path(folder.format(own=lab.run_folder("own").parent))
    with pytest.raises(RefusedError, match="run folder must stand in"):
        lab.runtime("own").start(lab.gang(0, script="", app="own", epoch=time.time_ns(), run_folder=run_folder))


def test_a_run_folder_that_cannot_be_created_is_reported(lab: Any) -> None:
    own = lab.run_folder("file").parent
    own.mkdir(parents=True)
    (own / "1").write_text("in the way")
    with pytest.raises(RefusedError, match="folders of a container must be writable"):
        lab.runtime("file").start(lab.gang(0, script="", app="file", epoch=time.time_ns()))
    assert lab.runtime("file").watch(WatchPosition(), wait_seconds=0).statuses == ()


def test_a_gang_starts_all_its_workers_or_none(lab: Any) -> None:
    gang = lab.gang(0, 1, script="", app="half", epoch=time.time_ns())
    bad = dataclasses.replace(gang.containers[1], slot=17)
    with pytest.raises(RefusedError, match="slot must be one of 3"):
        lab.runtime("half").start(dataclasses.replace(gang, containers=(gang.containers[0], bad)))
    assert lab.runtime("half").watch(WatchPosition(), wait_seconds=0).statuses == ()


def test_a_repeated_start_starts_no_second_process(lab: Any) -> None:
    gang = lab.gang(0, script="print('once', flush=True)", app="twice", epoch=time.time_ns())
    lab.runtime("twice").start(gang)
    lab.completed("twice-1.r1.0", "twice")
    (status,) = lab.runtime("twice").start(gang)
    assert status.state is ContainerState.COMPLETED
    assert lab.stdout("twice") == "once\n"


def test_a_watch_waits_for_changes_and_returns_only_those(lab: Any) -> None:
    runtime = lab.runtime("watch")
    watch = runtime.watch(WatchPosition(), wait_seconds=0)
    assert watch.statuses == ()
    runtime.start(lab.gang(0, script=SLEEPS, app="watch", epoch=time.time_ns()))
    while not any(status.state is ContainerState.RUNNING for status in watch.statuses):
        watch = runtime.watch(watch.position, wait_seconds=20)
    assert runtime.watch(watch.position, wait_seconds=0.05).statuses == ()


def test_a_stop_order_sent_before_the_worker_is_running_is_obeyed(lab: Any) -> None:
    runtime = lab.runtime("early")
    runtime.start(lab.gang(0, script=SLEEPS, app="early", epoch=time.time_ns()))
    runtime.stop(["early-1.r1.0"], deadline_seconds=20, reason="changed its mind")
    status = lab.completed("early-1.r1.0", "early")
    assert status.suspended
    assert status.exit in (Exit(code=75), Exit(signal=15))


def test_files_of_the_launcher_are_readable_by_their_owner_only(lab: Any) -> None:
    assert (lab.state / "launcher").stat().st_mode & 0o077 == 0
    assert (lab.state / "launcher" / "secret").stat().st_mode & 0o077 == 0


def test_a_second_launcher_is_refused(lab: Any) -> None:
    import subprocess

    env = {**os.environ, "PYTHONPATH": f"{lab_module.ROOT / 'core'}:{lab_module.ROOT / 'appmaster'}"}
    command = [
        sys.executable,
        "-m",
        "eunomia_appmaster.launcher",
        "--state",
        str(lab.state),
        "--arbiter",
        "127.0.0.1:1",
    ]
    second = subprocess.run([*command, "--token-file", "/dev/null"], env=env, capture_output=True, text=True)
    assert second.returncode == 2
    assert (
        "a node's folder must have one launcher (end the other one: kill -HUP keeps its workers), "
        f"but got a second one while process {lab.launcher.pid} holds it" in second.stderr
    )
