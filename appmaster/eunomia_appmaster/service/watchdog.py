"""Ends a process with a step that takes too long, and records the plugin that did not return.

``faulthandler`` needs no Python to run: it writes the stack of every thread, and exits, also if a plugin holds the
interpreter's lock. The plugin is noted before each call, without waiting for the disk: the note has to outlive the
process, not the machine.
"""

import contextlib
import faulthandler
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from eunomia.contract.decisions import Fault
from eunomia.units import Stage

HUNG_FILE: Final = "hung.txt"
ASKING_FILE: Final = "asking.json"
NOTE_BYTES: Final = 256
_WRITTEN: Final = "Timeout ("
"""Text that every report of ``faulthandler`` contains."""
_FRAME = re.compile(r'^  File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>\S+)', re.MULTILINE)


class Watchdog:
    """Watches the steps of one arbiter.

    Args:
        folder: of its two files.
        limit: seconds that a step may take.
    """

    def __init__(self, folder: Path, limit: float) -> None:
        self.limit = float(limit)
        self._hung = (folder / HUNG_FILE).open("a+", encoding="utf-8", errors="replace")
        self._note = os.open(folder / ASKING_FILE, os.O_RDWR | os.O_CREAT, 0o600)

    def asking(self, plugin: str, stage: Stage) -> None:
        """Note the plugin that is called next."""
        note = json.dumps({"plugin": plugin, "stage": stage.value}).encode()
        os.pwrite(self._note, note.ljust(NOTE_BYTES), 0)

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """End the process if the body takes too long."""
        os.pwrite(self._note, b" " * NOTE_BYTES, 0)  # no plugin is called yet
        faulthandler.dump_traceback_later(self.limit, exit=True, file=self._hung)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()

    def fault(self) -> Fault | None:
        """Return the fault for which the watchdog ended the former process; None if it did not."""
        self._hung.seek(0)
        trace = self._hung.read()
        if _WRITTEN not in trace:
            self.forget()  # damage, if there is anything
            return None
        plugin, stage = self._asked()
        return Fault(
            plugin=plugin, stage=stage, what=f"the step was over {self.limit:g} s and abandoned{_where(trace)}"
        )

    def forget(self) -> None:
        """Drop the fault of the former process."""
        self._hung.seek(0)
        self._hung.truncate()

    def _asked(self) -> tuple[str, Stage]:
        """Return the plugin and stage that were called last; an empty name and the allocation if none was."""
        try:
            note = json.loads(os.pread(self._note, NOTE_BYTES, 0))
            return str(note["plugin"]), Stage(note["stage"])
        except (ValueError, KeyError, TypeError):
            return "", Stage.ALLOCATION


def _where(trace: str) -> str:
    """Return the position of the hook: its innermost frame, else the innermost of all."""
    frames = list(_FRAME.finditer(trace))
    hooks = [frame for frame in frames if frame["function"].startswith("eunomia_")]
    if not frames:
        return ""
    frame = (hooks or frames)[0]
    return f", in {frame['function']} ({Path(frame['file']).name}:{frame['line']})"
