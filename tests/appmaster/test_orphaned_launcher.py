"""A new `eunomia serve` ends the launcher that a killed one left."""

import fcntl
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from eunomia_appmaster.node.orphaned_launcher import end_orphaned

HOLDER = """
import fcntl, os, signal, sys, time
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup
lock = open(sys.argv[1], "w")
fcntl.flock(lock, fcntl.LOCK_EX)
lock.write(sys.argv[2] if len(sys.argv) > 2 else str(os.getpid()))
lock.flush()
print("held", flush=True)
time.sleep(600)
"""


@contextmanager
def _holder(lock: Path, *pid: int) -> Iterator["subprocess.Popen[bytes]"]:
    command = [sys.executable, "-c", HOLDER, str(lock), *map(str, pid)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            process.stdout.readline()
            yield process
        finally:
            process.kill()


def test_the_process_that_holds_the_lock_of_a_node_gets_a_hangup_even_if_stopped(tmp_path: Path) -> None:
    with _holder(tmp_path / "lock") as process:
        process.send_signal(signal.SIGSTOP)
        end_orphaned(tmp_path)
        assert process.wait(60) == -signal.SIGHUP
        with (tmp_path / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_process_named_in_the_lock_file_that_does_not_hold_it_is_not_signalled(tmp_path: Path) -> None:
    (tmp_path / "held").mkdir()
    with subprocess.Popen(["sleep", "600"]) as other:
        (tmp_path / "lock").write_text(str(other.pid))
        end_orphaned(tmp_path)  # a lock that nothing holds
        end_orphaned(tmp_path / "none")
        with _holder(tmp_path / "held" / "lock", other.pid) as process:
            end_orphaned(tmp_path / "held")  # its holder is another than the file says
            assert process.poll() is None
        assert other.poll() is None
        other.kill()
