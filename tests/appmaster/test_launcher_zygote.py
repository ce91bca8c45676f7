"""Workers forked from a process that has torch imported behave as if they had been started."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eunomia_appmaster.launcher.zygote_client import ONE_THREAD, THREADS, can_fork, interpreter
from eunomia_appmaster.node.stack_signal import STACKS_FILE
from eunomia_appmaster.runtimes import Exit, WatchPosition

_spec = importlib.util.spec_from_file_location("launcher_lab", Path(__file__).parent / "launcher_lab.py")
lab_module = sys.modules.setdefault("launcher_lab", importlib.util.module_from_spec(_spec))
_spec.loader.exec_module(lab_module)
eventually, alive = lab_module.eventually, lab_module.alive

LOOKS_AROUND = """
import os, sys, json
at_start = [name for name in ("torch", "torch._dynamo", "colorsys") if name in sys.modules]
import atexit, random, signal, threading
import numpy, torch
def last_words():
    print(json.dumps(SEEN), flush=True)  # globals are still there at exit
def descriptors():
    for fd in range(3, 100):
        if os.path.lexists(f"/proc/self/fd/{fd}"):
            yield os.readlink(f"/proc/self/fd/{fd}")
SEEN = dict(
    at_start=at_start, argv=sys.argv, name=__name__, file=__file__, path=sys.path[0], cwd=os.getcwd(),
    rank=os.environ["RANK"], environ=sorted(os.environ), threads=threading.active_count(),
    tasks=len(os.listdir("/proc/self/task")), torch_threads=torch.get_num_threads(),
    draws=[random.random(), numpy.random.rand(), torch.rand(1).item()],
    sigterm=signal.getsignal(signal.SIGTERM) == signal.SIG_DFL,
    sigint=signal.getsignal(signal.SIGINT) is signal.default_int_handler, session=os.getsid(0) == os.getpid(),
    main=sys.modules["__main__"].__dict__ is globals(), stdin=sys.stdin.read(), files=list(descriptors()),
    cuda=torch.cuda.is_initialized(),
)
atexit.register(last_words)
"""
LATE = "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.1), print('late'))).start()"
TRAINS = """
import sys, torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
print("trained", flush=True)
sys.exit(75)
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    options = ("--preload", "colorsys", "--preload", "no_such_module", "--zygote-wait-seconds", "100")
    with lab_module.lab(tmp_path_factory.mktemp("zygote"), *options, zygote=True) as lab:
        yield lab


@pytest.fixture(autouse=True)
def _empty_slots(lab: Any) -> Iterator[None]:
    yield
    for app, runtime in lab.runtimes.items():
        left = [status for status in runtime.watch(WatchPosition(), wait_seconds=0).statuses if not status.completed]
        runtime.stop([status.container_id for status in left], deadline_seconds=0, reason="test over")
        for status in left:
            lab.completed(status.container_id, app)


def run(lab: Any, app: str, *slots: int, script: str, **more: Any) -> list[Any]:
    lab.runtime(app).start(lab.gang(*slots, script=script, app=app, epoch=time.time_ns(), **more))
    return [lab.completed(f"{app}-1.r1.{slot}", app) for slot in slots]


def test_the_first_worker_waits_for_the_zygote_and_is_forked_from_it(lab: Any) -> None:
    (status,) = run(lab, "first", 0, script=TRAINS)
    assert status.forked
    assert status.exit == Exit(code=75), lab.stderr("first")
    assert lab.stdout("first") == "trained\n"


def test_a_forked_worker_has_the_same_environment_as_a_started_one(lab: Any) -> None:
    command = ("python", "look-1.py", "--lr", "0.1")
    forked = run(lab, "look", 0, 1, script=LOOKS_AROUND, command=command)
    assert all(status.forked for status in forked), lab.output()
    assert [status.exit for status in forked] == [Exit(code=0)] * 2, lab.stderr("look")
    one, two = sorted((json.loads(line) for line in lab.stdout("look").splitlines()), key=lambda seen: seen["rank"])
    (plain,) = run(lab, "plain", 2, script=LOOKS_AROUND, command=("python", "plain-1.py"), env={"PYTHONHASHSEED": "1"})
    assert not plain.forked
    started = json.loads(lab.stdout("plain"))

    assert one["at_start"] == ["torch", "torch._dynamo", "colorsys"]
    assert started["at_start"] == []
    assert (one["argv"], one["file"]) == (["look-1.py", "--lr", "0.1"], "look-1.py")
    assert {*started["environ"]} - {*one["environ"]} == {"PYTHONHASHSEED"}
    assert [Path(file).name for file in one["files"]] == [STACKS_FILE]  # where it writes its stacks if it hangs
    alike = set(started) - {"at_start", "argv", "file", "files", "rank", "draws", "environ"}
    assert started["files"] == []
    assert {key: one[key] for key in alike} == {key: started[key] for key in alike}
    assert one["tasks"] == 1
    assert not {*one["draws"]} & {*two["draws"]}  # siblings do not draw the same numbers
    assert lab.stderr("look") == ""


@pytest.mark.parametrize(
    ("script", "how", "said"),
    [
        ("import sys; sys.exit('no data')", Exit(code=1), "no data\n"),
        ("def f():\n    1 / 0\nf()", Exit(code=1), 'File "{name}", line 3, in <module>'),
        ("import sys; sys.exit()", Exit(code=0), ""),
        ("import os; os.kill(os.getpid(), 11)", Exit(signal=11), ""),
        ("import os; os._exit(5)", Exit(code=5), ""),
        ("def f(:", Exit(code=1), "SyntaxError"),
        (LATE, Exit(code=0), ""),
        ("file = open('unflushed.txt', 'w'); file.write('all of it')", Exit(code=0), ""),
    ],
)
def test_forked_workers_end_like_started_ones(lab: Any, script: str, how: Exit, said: str, request: Any) -> None:
    app = f"ends{request.node.callspec.indices['script']}"
    (status,) = run(lab, app, 0, script=script)
    assert status.forked
    assert status.exit == how
    assert said.format(name=f"{app}-1.py") in lab.stderr(app)
    assert "zygote.py" not in lab.stderr(app)
    if "late" in script:
        assert lab.stdout(app) == "late\n"
    if "unflushed" in script:
        assert (lab.folder / "unflushed.txt").read_text() == "all of it"


def test_a_worker_started_as_a_module_is_forked_too(lab: Any) -> None:
    (lab.folder / "some_module.py").write_text("import sys; print(__name__, sys.argv[1:], __spec__.name)")
    (status,) = run(lab, "module", 0, script="", command=("python", "-u", "-m", "some_module", "x"))
    assert (status.forked, status.exit) == (True, Exit(code=0)), lab.stderr("module")
    assert lab.stdout("module") == "__main__ ['x'] some_module\n"


def test_commands_that_do_not_run_python_are_started_without_the_zygote(lab: Any) -> None:
    (status,) = run(lab, "echo", 0, script="", command=("echo", "$HOME;"))
    assert (status.forked, status.exit) == (False, Exit(code=0))
    assert lab.stdout("echo") == "$HOME;\n"  # no shell


def test_child_processes_of_a_forked_worker_have_the_mark_of_its_container(lab: Any) -> None:
    script = "import os, time\nif os.fork() == 0:\n    os.setsid()\nprint(os.getpid(), flush=True)\ntime.sleep(600)"
    lab.runtime("mark").start(lab.gang(0, script=script, app="mark", epoch=time.time_ns()))
    pids = eventually(lambda: len(lines := lab.stdout("mark").split()) == 2 and [int(line) for line in lines])
    for pid in pids:
        assert b"\0EUNOMIA_CONTAINER_ID=mark-1.r1.0@" in b"\0" + Path(f"/proc/{pid}/environ").read_bytes()
    folder = lab.run_folder("mark") / "containers" / "mark-1.r1.0"
    written = eventually(lambda: (folder / "worker.json").exists() and (folder / "worker.json").read_text())
    os.kill(json.loads(written)["shepherd_pid"], signal.SIGKILL)
    assert lab.completed("mark-1.r1.0", "mark").exit == Exit()
    assert [pid for pid in pids if alive(pid)] == []


def test_workers_outlive_a_killed_zygote_and_the_next_one_forks(lab: Any) -> None:
    script = "import os, time\nprint(os.getppid(), flush=True)\nwhile not os.path.exists('go'):\n    time.sleep(0.02)"
    lab.runtime("lives").start(lab.gang(0, script=script, app="lives", epoch=time.time_ns()))
    shepherd = int(eventually(lambda: lab.stdout("lives")))
    zygote = int(Path(f"/proc/{shepherd}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(zygote, signal.SIGKILL)
    eventually(lambda: not alive(zygote))
    (status,) = run(lab, "next", 1, script="print('up')")
    assert status.forked
    (lab.folder / "go").touch()
    outlived = lab.completed("lives-1.r1.0", "lives")
    assert (outlived.forked, outlived.exit) == (True, Exit(code=0))


def test_only_commands_that_behave_the_same_when_forked_are_forked() -> None:
    python = sys.executable
    assert can_fork((python, "train.py", "-m"), {"OMP_NUM_THREADS": "1"})
    assert can_fork((python, "-u", "-m", "package"), {"PYTHONUNBUFFERED": "1"})
    for argv in [
        (python,),
        (python, "-c", "1"),
        (python, "-m"),
        (python, "-O", "a.py"),
        ("/usr/bin/env", "a.py"),
        (python, "-"),
    ]:
        assert not can_fork(argv, {}), argv
    for env in [{"OMP_NUM_THREADS": "4"}, {"PYTHONPATH": "/elsewhere"}, {"LD_PRELOAD": "libjemalloc.so"}]:
        assert not can_fork((python, "train.py"), env), env


def test_python_is_the_interpreter_of_the_launcher_unless_another_environment_is_named(tmp_path: Path) -> None:
    assert interpreter("python", {"PATH": "/nowhere"}) == sys.executable
    assert interpreter("python", {"PATH": "/nowhere", "VIRTUAL_ENV": sys.prefix}) == sys.executable
    other = tmp_path / "python"
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    assert interpreter("python", {"PATH": str(tmp_path), "VIRTUAL_ENV": str(tmp_path)}) == str(other)
    assert interpreter("no-such-command", {"PATH": str(tmp_path)}) == "no-such-command"


@pytest.mark.slow
def test_a_stopped_zygote_is_replaced_and_its_waiting_worker_is_started_without_it(tmp_path: Path) -> None:
    def forked(lab: Any, name: str) -> bool:
        return bool(run(lab, f"{name}{time.monotonic_ns()}", 0, script="pass")[0].forked)

    with lab_module.lab(tmp_path, "--zygote-wait-seconds", "6", zygote=True) as lab:
        eventually(lambda: forked(lab, "early"))
        (zygote,) = [pid for pid in children(lab.launcher.pid) if "zygote of workers" in name_of(pid)]
        os.kill(zygote, signal.SIGSTOP)
        (status,) = run(lab, "waits", 0, script="print('up')")
        assert (status.forked, status.exit) == (False, Exit(code=0))
        assert lab.stdout("waits") == "up\n"
        assert not alive(zygote)
        eventually(lambda: forked(lab, "late"))


SLEEPS = """
import signal, sys, time
if "eunomia_appmaster.launcher.zygote" in sys.orig_argv:
    signal.signal(signal.SIGUSR2, lambda *_: time.sleep(10_000))
"""
"""Is imported by each Python of a test: the zygote sleeps on a signal."""


@pytest.mark.slow
def test_a_zygote_that_hangs_writes_its_stack_traces(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(SLEEPS)
    with lab_module.lab(tmp_path, "--zygote-wait-seconds", "6", zygote=True, more_path=str(tmp_path)) as lab:
        eventually(lambda: run(lab, f"early{time.monotonic_ns()}", 0, script="pass")[0].forked)
        (zygote,) = [pid for pid in children(lab.launcher.pid) if "zygote of workers" in name_of(pid)]
        os.kill(zygote, signal.SIGUSR2)
        (status,) = run(lab, "waits", 0, script="print('up')")
        assert (status.forked, status.exit) == (False, Exit(code=0))
        (file,) = (lab.state / "launcher" / "stacks").glob("zygote-*.txt")
        found = file.read_text()
        assert "it did not answer for 6 s" in found
        assert "in <lambda>" in found  # where it sleeps


def children(parent: int) -> list[int]:
    return list(map(int, Path(f"/proc/{parent}/task/{parent}/children").read_text().split()))


def name_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text() if alive(pid) else ""


def test_a_preloaded_library_with_a_thread_of_its_own_leaves_the_zygote_one_thread() -> None:
    pytest.importorskip("pyarrow")
    code = "import os, pyarrow; print(len(os.listdir('/proc/self/task')))"
    env = {**os.environ, **dict.fromkeys(THREADS, "1"), **ONE_THREAD}
    ran = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "1"
