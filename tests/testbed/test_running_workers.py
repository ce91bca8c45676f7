"""Worker processes: forked where no thread runs, started one by one where a plugin starts one, ended, and killed."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.testbed.test_running_many import files, plan

from eunomia.errors import EunomiaError, InputError
from eunomia_testbed.running import fork_server
from eunomia_testbed.running.many import run_plan
from eunomia_testbed.running.plan import Cell
from eunomia_testbed.running.portable import packed
from eunomia_testbed.running.watching import Silent
from eunomia_testbed.running.worker import raised
from eunomia_testbed.running.workers import ServerDiedError, Workers


def children(of: int) -> Iterator[tuple[int, bytes]]:
    """The processes that a process started, with their command lines."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text, command = path.read_text(), path.with_name("cmdline").read_bytes()
        except OSError:
            continue
        if int(text.rpartition(")")[2].split()[1]) == of:
            yield int(text.split()[0]), command


def servers() -> list[int]:
    return [process for process, command in children(os.getpid()) if b"running.fork_server" in command]


class Kill(Silent):
    """Kills the workers when the second cell begins, or the process that starts them when the first one does."""

    def __init__(self, *, server: bool) -> None:
        self._server, self._began = server, 0

    def began(self, cell: Cell) -> None:
        self._began += 1
        if self._began == 1 and not self._server:
            return
        for process in servers():
            for victim in [process] if self._server else [worker for worker, _ in children(process)]:
                os.kill(victim, signal.SIGKILL)


@pytest.mark.parametrize("server", [False, True], ids=["worker", "server"])
def test_the_error_for_a_killed_process_names_it(server: bool, tmp_path: Path) -> None:
    with pytest.raises(EunomiaError, match=r"a simulation must not be killed, but got process .* by signal 9"):
        run_plan(plan(), tmp_path / "run", processes=2, report=False, watch=Kill(server=server))
    assert json.loads((tmp_path / "run" / "run.json").read_text())["ended"] == "failed"
    assert servers() == []
    assert run_plan(plan(), tmp_path / "run", processes=1, report=False, resume=True).done == 4


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="the threads of a process are read from /proc")
def test_workers_are_forked_if_no_thread_runs(tmp_path: Path) -> None:
    with Workers(packed(plan()), tmp_path) as workers:
        started = [workers.start() for _ in range(3)]
        (server,) = servers()
        assert {process for process, _ in children(server)} == {worker.process for worker in started}
        comms = {task.joinpath("comm").read_text().rstrip("\n") for task in Path(f"/proc/{server}/task").glob("*")}
        assert len(comms - fork_server.IDLE_THREADS) == 1
        started[0].requests.write(b"0\n")
        started[0].requests.close()
        last = [json.loads(line) for line in started[0].answers][-1]
        assert last == {"cell": 0, "done": True, "cpu_seconds": last["cpu_seconds"]}
        assert last["cpu_seconds"] > 0.0
        assert started[0].exit_code() == 0
        started[1].kill()
        assert started[1].exit_code() == -signal.SIGKILL
    assert servers() == []


def test_a_process_with_a_thread_does_not_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_server, "threads", lambda: ["polars-ooc-clea", "mine"])
    assert not fork_server.may_fork()
    monkeypatch.setattr(fork_server, "threads", lambda: None)
    assert not fork_server.may_fork()
    monkeypatch.setattr(fork_server, "threads", list)
    assert fork_server.may_fork()


def test_a_plugin_that_starts_a_thread_gives_the_same_tables(tmp_path: Path) -> None:
    (tmp_path / "threaded.py").write_text(
        "import threading\n"
        "from eunomia import hookimpl\n"
        "from eunomia.contract.menus import Menus\n"
        "threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
        "class Threaded:\n"
        "    '''Observes nothing.'''\n"
        "    name, api = 'threaded', 1\n"
        "    @hookimpl\n"
        "    def eunomia_allocation(self, snapshot, menus, offer):\n"
        "        raise ValueError('not today')\n"
    )
    arguments = ["simulate", "--workload", "gavel", "--set", "gavel.jobs=4", "--cluster", "1x8 V100", "--no-report"]
    arguments += ["--policy", "threaded", "--policy", "fifo", "--plugin-path", str(tmp_path / "threaded.py")]
    arguments += ["--tolerate-faults", "--seeds", "0,1"]
    for processes in ("1", "2"):
        folder = ["--out", str(tmp_path / processes), "-j", processes]
        script = f"import sys; from eunomia.cli import run; sys.exit(run({arguments + folder!r}))"
        env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
    assert files(tmp_path / "1") == files(tmp_path / "2")


@pytest.mark.parametrize("received", [b"", b"\0\0", (1000).to_bytes(8, "big") + b"part of a plan"])
def test_a_worker_whose_command_was_interrupted_exits_silently(received: bytes) -> None:
    here, there = socket.socketpair()
    env = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-m", "eunomia_testbed.running.fork_server", str(there.fileno())]
    with there:
        made = subprocess.Popen(
            command, env=env, pass_fds=[there.fileno()], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
    with here:
        here.sendall(received)
    assert made.communicate(timeout=60) == (b"", None)
    assert made.returncode == 0


def test_a_plan_that_a_worker_cannot_read_is_an_error_of_the_command(tmp_path: Path) -> None:
    with Workers(b"no plan", tmp_path) as workers, pytest.raises(ServerDiedError, match="ended with 1"):
        workers.start()


def test_errors_of_workers_are_raised_by_the_command() -> None:
    told = raised({"kind": "input", "errors": [["a rule", "a value", "a place"]]})
    assert isinstance(told, InputError)
    assert str(told) == "a rule, but got a value (a place)"
    assert isinstance(raised({"kind": "error", "errors": [["a rule", None, None]]}), EunomiaError)
    assert "Traceback" in str(raised({"kind": "fault", "text": "Traceback", "errors": []}))
