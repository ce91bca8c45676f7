"""Leaving at once does what leaving does, but for taking things apart."""

import os
import subprocess
import sys

import pytest

from eunomia.commands import BUILT_IN, built_in

_BEGIN = """import atexit, os, sys, threading, time
from eunomia.leaving import leave
at_once = os._exit
os._exit = lambda code: (os.write(1, b"at once"), at_once(code))
"""


def _left(source: str) -> tuple[int, str]:
    """Exit code and output of a process that leaves; ``at once`` stands at the end of what left at once."""
    buffered = os.environ | {"PYTHONUNBUFFERED": ""}
    ran = subprocess.run([sys.executable, "-c", _BEGIN + source], capture_output=True, text=True, env=buffered)
    return ran.returncode, ran.stdout


def test_what_was_put_off_is_done_and_said() -> None:
    source = "atexit.register(print, 'put off')\nprint('said', end=' ')\nleave(1)"
    assert _left(source) == (1, "said put off\nat once")


@pytest.mark.parametrize("watches", ["sys.settrace(lambda *_: None)", "sys.setprofile(lambda *_: None)"])
def test_who_watches_sees_the_end(watches: str) -> None:
    assert _left(f"{watches}\nleave(0)") == (0, "")


def test_who_is_at_work_is_waited_for() -> None:
    source = "threading.Thread(target=lambda: (time.sleep(0.5), print('worked'))).start()\nleave(2)"
    assert _left(source) == (2, "worked\n")


def test_output_that_cannot_be_written_is_told_as_ever() -> None:
    code, said = _left("print('said')\nos.close(1)\nleave(0)")
    assert (code, said) == (120, "")


def test_commands_that_serve_leave_as_usual() -> None:
    assert {command.name for command in BUILT_IN if command.leaves_nothing_open} == {"simulate", "compare"}
    assert built_in("nothing") is None
