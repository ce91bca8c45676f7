"""A process that runs cells: ``python -m eunomia_testbed.running.worker``, driven through its standard streams.

It reads the length and bytes of a packed plan, the folder, then the numbers of cells to run, one per line. It writes
lines of JSON: progress of a cell, its end, or an error. It ends when its input or its output closes.
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
from eunomia_testbed.running.plan import Plan
from eunomia_testbed.running.portable import unpacked
from eunomia_testbed.simulator import Progress

TELL_SECONDS: Final = 0.2
_KINDS: Final[dict[str, type[EunomiaError]]] = {"input": InputError, "disk": DiskError}


def main() -> None:
    """Run the cells that standard input names."""
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a plugin prints goes to stderr, not between the answers
    given = _received(requests)
    if given is None:
        return  # the command was interrupted before it had written the plan
    plan, folder = given
    cells = plan.cells()
    for line in requests:
        number = int(line)
        try:
            run_cell(plan, cells[number], folder, _Teller(number, answers))
            _write(answers, {"cell": number, "done": True})
        except Exception as error:
            _write(answers, {"cell": number, "error": _plain(error)})


def _received(stream: BinaryIO) -> tuple[Plan, Path] | None:
    """Read what ``hand_over`` writes; None: the stream ended early."""
    length = int.from_bytes(stream.read(8), "big")
    packed = stream.read(length)
    folder = stream.readline().decode()
    if length == 0 or len(packed) < length or not folder.endswith("\n"):
        return None
    return unpacked(packed), Path(folder.rstrip("\n"))


def hand_over(stream: BinaryIO, plan: bytes, folder: Path) -> None:
    """Write the plan and the folder to a worker's input."""
    stream.write(len(plan).to_bytes(8, "big"))
    stream.write(plan)
    stream.write(f"{folder}\n".encode())
    stream.flush()


class _Teller:
    """Writes the progress of a cell from time to time."""

    def __init__(self, number: int, answers: TextIO) -> None:
        self._number, self._answers, self._written_at = number, answers, 0.0

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        if now - self._written_at >= TELL_SECONDS or progress.finished == progress.jobs:
            self._written_at = now
            facts = [progress.finished, progress.jobs, progress.time_seconds]
            _write(self._answers, {"cell": self._number, "progress": facts})


def _write(answers: TextIO, facts: dict[str, Any]) -> None:
    answers.write(json.dumps(facts) + "\n")
    answers.flush()


def _plain(error: Exception) -> dict[str, Any]:
    """Return an error as plain values, so that the parent process can raise it."""
    if not isinstance(error, EunomiaError):
        return {"kind": "fault", "text": "".join(traceback.format_exception(error)), "errors": []}
    errors = error.errors if isinstance(error, InputErrors) else [error]
    kind = next((name for name, made in _KINDS.items() if isinstance(error, made)), "error")
    return {"kind": kind, "errors": [[each.rule, each.value, each.place] for each in errors]}


def raised(message: dict[str, Any]) -> Exception:
    """Return the error that a worker reported."""
    if message["kind"] == "fault":
        return RuntimeError(f"in a worker:\n{message['text']}")
    kind = _KINDS.get(message["kind"], EunomiaError)
    errors = [kind(rule, value=value, place=place) for rule, value, place in message["errors"]]
    return InputErrors(errors) if kind is InputError and len(errors) > 1 else errors[0]  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
