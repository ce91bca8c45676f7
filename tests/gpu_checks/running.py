"""Runs checks one after the other, each in a process of its own, and goes on after one that failed.

A fault of CUDA spoils the process that meets it, and a hung kernel hangs it, so no check shares a process.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpu_checks.check import GpuCheck

MOST_LETTERS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckEnd:
    """How a check ended, with its result or the reason in one line."""

    name: str
    passed: bool
    text: str
    seconds: float

    def line(self) -> str:
        """Return it as it is printed."""
        return f"{'ok    ' if self.passed else 'FAILED'}  {self.name:<18} {self.seconds:6.1f} s  {self.text}"


def run_checks(
    checks: Sequence[GpuCheck],
    folder: Path,
    say: Callable[[str], None],
    command: Callable[[GpuCheck, Path], Sequence[str]] | None = None,
) -> list[CheckEnd]:
    """Run the checks, and say the end of each.

    Args:
        checks: in this order.
        folder: gets a folder for each check, and its output as ``NAME.log``.
        say: gets a line for each check.
        command: of the process of a check; None: this package with ``--inside``.
    """
    ends = []
    for check in checks:
        place = folder / check.name
        place.mkdir(parents=True)
        argv = (command or _command)(check, place)
        ends.append(_run(check, argv, folder / f"{check.name}.log"))
        say(ends[-1].line())
    return ends


def _command(check: GpuCheck, place: Path) -> Sequence[str]:
    return [sys.executable, "-m", "gpu_checks", "--inside", check.name, "--out", str(place)]


def _run(check: GpuCheck, argv: Sequence[str], log: Path) -> CheckEnd:
    began = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(argv, stdout=output, stderr=output, start_new_session=True)
        try:
            code: int | None = process.wait(check.limit_seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            _end(process)
    lines = log.read_text(errors="replace").splitlines() or ["no output"]
    if code is None:
        text = f"not done within {check.limit_seconds:g} s"
    elif code < 0:
        text = f"ended by {signal.Signals(-code).name}; last line: {lines[-1]}"
    else:
        text = lines[-1]
    passed = code == 0
    text = text[:MOST_LETTERS] if passed else f"{text[:MOST_LETTERS]} ({log})"
    return CheckEnd(name=check.name, passed=passed, text=text, seconds=time.monotonic() - began)


def _end(process: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # with what it started and left
    process.wait()
