"""A process gets a signal when its parent dies."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from eunomia_appmaster.node import parent_death as module
from eunomia_appmaster.node.file_rights import can_act_as_owner
from eunomia_appmaster.node.parent_death import with_death_signal

STARTER = """
import os, signal, subprocess, sys
from eunomia_appmaster.node.parent_death import with_death_signal
command = [sys.executable, "-c", sys.argv[1]]
child = subprocess.Popen(with_death_signal(command, signal.SIGTERM), stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
sys.stdin.readline()
os._exit(0)
"""

QUIET = "print(1, flush=True); import time; time.sleep(600)"
TOUCHING = f"""
from eunomia_appmaster.node.file_rights import as_account
with as_account(65534, 65534):
    pass
{QUIET}
"""


@pytest.mark.parametrize(
    "child_code",
    [
        QUIET,
        pytest.param(TOUCHING, marks=pytest.mark.skipif(not can_act_as_owner(), reason="only root acts as another")),
    ],
)
def test_a_process_with_a_death_signal_ends_with_its_parent(child_code: str) -> None:
    command = [sys.executable, "-c", STARTER, child_code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as starter:
        assert starter.stdin is not None
        assert starter.stdout is not None
        child = os.pidfd_open(int(starter.stdout.readline()))
        assert select.select([child], [], [], 0.0)[0] == []
        starter.communicate(b"\n")
        assert select.select([child], [], [], 60.0)[0] == [child]
        os.close(child)


def test_a_process_ends_if_its_parent_died_before_it_requested_the_death_signal() -> None:
    command = [sys.executable, "-I", "-S", str(Path(module.__file__)), "15", "1", "true"]
    assert os.getpid() != 1
    assert subprocess.run(command, check=False).returncode == -signal.SIGTERM


def test_the_command_keeps_its_pid_and_its_exit_code() -> None:
    command = with_death_signal(
        [sys.executable, "-c", "import os, sys; print(os.getpid()); sys.exit(7)"], signal.SIGHUP
    )
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        out, _ = process.communicate()
    assert int(out) == process.pid
    assert process.returncode == 7
