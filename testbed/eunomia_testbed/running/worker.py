"""A process that runs cells: ``python -m eunomia_testbed.running.worker``, told through its standard streams.

In come the length and bytes of a packed plan, the folder, then the numbers of cells to run, a line each. Out go lines
of JSON: how far a cell is, that it is done, or what went wrong. It ends with its input, and with whoever reads it.
"""

import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any, BinaryIO, Final, TextIO

from eunomia.errors import EunomiaError, InputError, InputErrors
from eunomia_testbed.results.writing import DiskError
from eunomia_testbed.running.cell_files import run_cell
from eunomia_testbed.running.portable import unpacked
from eunomia_testbed.simulator import Progress

TELL_SECONDS: Final = 0.2
_KINDS: Final[dict[str, type[EunomiaError]]] = {"input": InputError, "disk": DiskError}


def main() -> None:
    """Run what standard input asks for."""
    told, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a plugin prints goes to stderr, not between the answers
    plan = unpacked(told.read(int.from_bytes(told.read(8), "big")))
    folder = Path(told.readline().decode().rstrip("\n"))
    cells = plan.cells()
    for line in told:
        number = int(line)
        try:
            run_cell(plan, cells[number], folder, _Teller(number, answers))
            _say(answers, {"cell": number, "done": True})
        except Exception as error:
            _say(answers, {"cell": number, "error": _told(error)})


def hand_over(stream: BinaryIO, plan: bytes, folder: Path) -> None:
    """Write to a worker's input what it needs before the first cell."""
    stream.write(len(plan).to_bytes(8, "big"))
    stream.write(plan)
    stream.write(f"{folder}\n".encode())
    stream.flush()


class _Teller:
    """Tells how far a cell is, now and then."""

    def __init__(self, number: int, answers: TextIO) -> None:
        self._number, self._answers, self._told_at = number, answers, 0.0

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        if now - self._told_at >= TELL_SECONDS or progress.finished == progress.jobs:
            self._told_at = now
            facts = [progress.finished, progress.jobs, progress.time_seconds]
            _say(self._answers, {"cell": self._number, "progress": facts})


def _say(answers: TextIO, facts: dict[str, Any]) -> None:
    answers.write(json.dumps(facts) + "\n")
    answers.flush()


def _told(error: Exception) -> dict[str, Any]:
    """An error as plain values, for the other side to raise."""
    if not isinstance(error, EunomiaError):
        return {"kind": "fault", "text": "".join(traceback.format_exception(error)), "errors": []}
    errors = error.errors if isinstance(error, InputErrors) else [error]
    kind = next((name for name, made in _KINDS.items() if isinstance(error, made)), "error")
    return {"kind": kind, "errors": [[each.rule, each.value, each.place] for each in errors]}


def raised(told: dict[str, Any]) -> Exception:
    """The error that a worker told of."""
    if told["kind"] == "fault":
        return RuntimeError(f"in a worker:\n{told['text']}")
    kind = _KINDS.get(told["kind"], EunomiaError)
    errors = [kind(rule, value=value, place=place) for rule, value, place in told["errors"]]
    return InputErrors(errors) if kind is InputError and len(errors) > 1 else errors[0]  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
