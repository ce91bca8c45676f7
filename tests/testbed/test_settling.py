"""A run begins once its processes are idle."""

import subprocess
import sys
import time

from structlog.testing import capture_logs

from eunomia_testbed.live_runs.settling import wait_until_idle

BUSY = "import time, subprocess, sys\nend = time.monotonic() + {0}\nwhile time.monotonic() < end: pass\n"
NESTED = "import subprocess, sys, time\nsubprocess.run([sys.executable, '-c', {0!r}])\ntime.sleep(60)\n"


def _started(text: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", text])


def test_the_wait_lasts_until_a_descendant_is_idle() -> None:
    child = _started(NESTED.format(BUSY.format(1.5)))
    try:
        began = time.monotonic()
        assert wait_until_idle([child.pid]) >= 1.5 + 0.5
        assert child.poll() is None
        assert time.monotonic() - began < 60.0
    finally:
        child.kill()
        child.wait()


def test_a_process_that_stays_busy_is_named_at_the_limit() -> None:
    child = _started(BUSY.format(60))
    try:
        with capture_logs() as logs:
            assert wait_until_idle([child.pid], limit_seconds=1.5) >= 1.5
        assert [(line["event"], line["processes"]) for line in logs] == [("run.not_idle", [child.pid])]
    finally:
        child.kill()
        child.wait()


def test_processes_that_have_ended_are_idle() -> None:
    child = _started("pass")
    child.wait()
    assert wait_until_idle([child.pid]) < 10.0
