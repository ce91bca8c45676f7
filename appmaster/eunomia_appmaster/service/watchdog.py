"""Ends a process whose step takes too long, and records the plugin that did not return.

A thread measures the time of a step while the process runs: after a stop (SIGSTOP, a suspended machine) the limit
restarts. The thread cannot run while a plugin holds the interpreter's lock. So ``faulthandler``, which needs no running
Python, ends the process if the thread has not run for two limits. The plugin is recorded before each call, without
waiting for the disk: the record must survive the process, not the machine.
"""

import contextlib
import faulthandler
import json
import os
import re
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import structlog

from eunomia.contract.decisions import Fault
from eunomia.contract.stages import CallNote
from eunomia.units import Stage
from eunomia_appmaster.node.loop_clock import MOST_GAP_SECONDS, LoopClock
from eunomia_appmaster.node.stopped_processes import STOPPED_LIMITS

log = structlog.get_logger()

HUNG_FILE: Final = "hung.txt"
ASKING_FILE: Final = "asking.json"
NOTE_BYTES: Final = 256
_TIME_BYTES: Final = 32
"""Size in bytes of the Unix time of the last check, which follows the record in the file."""
_WRITTEN: Final = "Timeout ("
"""Text that every report of ``faulthandler`` contains."""
_LOOK_SECONDS: Final = 1.0
_OWN = re.compile(r"^  File .* in _watch$", re.MULTILINE)
"""A line in the stack of the thread that measures the time."""
_FRAME = re.compile(r'^  File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>\S+)', re.MULTILINE)


class _Codes(dict[tuple[str, Stage], int]):
    """Codes by plugin and stage, from 0 in the order in which they are first looked up."""

    def __missing__(self, call: tuple[str, Stage]) -> int:
        return self.setdefault(call, len(self))


class _Called:
    """Receives the codes of each plugin call before it starts, and writes its plugin and stage to a file."""

    def __init__(self, file: int) -> None:
        self.codes = _Codes()
        self._file, self._code = file, 0

    def __setitem__(self, at: int, number: int) -> None:
        if at == 1:
            self._code = number
        elif at == 0:
            plugin, stage = list(self.codes)[self._code]
            note = json.dumps({"plugin": plugin, "stage": stage.value}).encode()
            os.pwrite(self._file, note.ljust(NOTE_BYTES), 0)


class Watchdog:
    """Watches the steps of one arbiter.

    Args:
        folder: folder for the watchdog's two files.
        limit: longest time of a step in seconds.
    """

    def __init__(self, folder: Path, limit: float) -> None:
        self.limit = float(limit)
        self._hung = (folder / HUNG_FILE).open("a+", encoding="utf-8", errors="replace")
        self._note = os.open(folder / ASKING_FILE, os.O_RDWR | os.O_CREAT, 0o600)
        called = _Called(self._note)
        self.note = CallNote(called, called.codes)
        """The record of the plugin that a round calls, for the arbiter."""
        self._look_seconds = min(_LOOK_SECONDS, self.limit / 8.0)
        self._clock = LoopClock(most_gap=min(MOST_GAP_SECONDS, self.limit / 4.0))
        self._lock = threading.Lock()
        self._began: float | None = None
        """Start of the step by the clock, in seconds; None: no step runs."""
        self._watched = False

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """Watch a step: end the process if the block takes too long."""
        os.pwrite(self._note, b" " * NOTE_BYTES, 0)  # no plugin is called yet
        if not self._watched:
            self._watched = True
            threading.Thread(target=_watch, args=(weakref.ref(self),), name="step watchdog", daemon=True).start()
        with self._lock:
            self._began = self._clock.now()
            self._arm()
        try:
            yield
        finally:
            with self._lock:
                self._began = None
                faulthandler.cancel_dump_traceback_later()

    def _arm(self) -> None:
        os.pwrite(self._note, f"{time.time():.1f}".encode().ljust(_TIME_BYTES), NOTE_BYTES)
        faulthandler.dump_traceback_later(STOPPED_LIMITS * self.limit, exit=True, file=self._hung)

    def look(self) -> float:
        """End the process if its step takes too long; returns the seconds to the next check."""
        self._clock.tick()
        with self._lock:
            if self._began is not None:
                if self._clock.silence(self._began) >= self.limit:
                    self._end()
                self._arm()
        return self._look_seconds

    def _end(self) -> None:
        self._hung.write(f"{_WRITTEN}{self.limit:g} s)!\n")
        self._hung.flush()
        faulthandler.dump_traceback(self._hung, all_threads=True)
        os._exit(1)

    def fault(self) -> Fault | None:
        """Return the fault for which the watchdog ended the previous process; None if it did not."""
        self._hung.seek(0)
        trace = self._hung.read()
        if _WRITTEN not in trace:
            self.forget()  # anything in the file is damage
            return None
        if self._was_stopped():
            log.warning("step.stopped", why="the former process was stopped while a step ran; no plugin is at fault")
            self.forget()
            return None
        plugin, stage = self._asked()
        return Fault(
            plugin=plugin, stage=stage, what=f"the step was over {self.limit:g} s and abandoned{_where(trace)}"
        )

    def _was_stopped(self) -> bool:
        """Return whether the previous process ended long after it was due, because it was stopped until then."""
        try:
            looked_at = float(os.pread(self._note, _TIME_BYTES, NOTE_BYTES))
        except ValueError:
            return False
        late = os.fstat(self._hung.fileno()).st_mtime - looked_at - STOPPED_LIMITS * self.limit
        return late > MOST_GAP_SECONDS

    def forget(self) -> None:
        """Drop the fault of the previous process."""
        self._hung.seek(0)
        self._hung.truncate()

    def _asked(self) -> tuple[str, Stage]:
        """Return the last called plugin and its stage; if there is none, an empty name and the allocation stage."""
        try:
            note = json.loads(os.pread(self._note, NOTE_BYTES, 0))
            return str(note["plugin"]), Stage(note["stage"])
        except (ValueError, KeyError, TypeError):
            return "", Stage.ALLOCATION


def _watch(watched: "weakref.ref[Watchdog]") -> None:
    """Check periodically until the watchdog is garbage-collected."""
    while (watchdog := watched()) is not None:
        seconds = watchdog.look()
        del watchdog
        time.sleep(seconds)


def _where(trace: str) -> str:
    """Return the position of the innermost hook frame (else of the innermost frame) as text; empty if unknown."""
    trace = "\n\n".join(stack for stack in trace.split("\n\n") if not _OWN.search(stack))
    frames = list(_FRAME.finditer(trace))
    hooks = [frame for frame in frames if frame["function"].startswith("eunomia_")]
    if not frames:
        return ""
    frame = (hooks or frames)[0]
    return f", in {frame['function']} ({Path(frame['file']).name}:{frame['line']})"
