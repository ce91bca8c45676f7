"""A worker process, which reads numbers of cells, one per line, runs these cells, and writes lines of JSON.

A line has the progress of a cell, or its end or error with its CPU seconds. The worker exits when its input or output
is closed.
"""

import io
import json
import os
import socket
import time
import traceback
from pathlib import Path
from typing import Any, Final, TextIO

from eunomia.errors import EunomiaError, InputError, InputErrors
from eunomia_testbed.calls.limits import CallTooLongError
from eunomia_testbed.calls.page import CallPage
from eunomia_testbed.results.writing import DiskError
from eunomia_testbed.running.cell_files import run_cell
from eunomia_testbed.running.plan import Plan
from eunomia_testbed.running.portable import unpacked
from eunomia_testbed.simulator import Progress

TELL_SECONDS: Final = 0.2
_KINDS: Final[dict[str, type[EunomiaError]]] = {"input": InputError, "disk": DiskError, "call": CallTooLongError}


Given = tuple[Plan, Path]
"""A plan and the folder of its results."""


def work(given: Given, requests: int, answers: int, calls: int) -> None:
    """Run the cells whose numbers are read from ``requests``, and write the results to ``answers``.

    Args:
        given: the plan, and the folder of its results.
        requests: descriptor of the file with the cells' numbers.
        answers: descriptor of the file for lines of JSON.
        calls: descriptor of the page with the current plugin call; the parent process kills this worker if an
            exception does not end a late call.
    """
    plan, folder = given
    cells, page = plan.cells(), CallPage(calls)
    with os.fdopen(requests, "rb") as numbers, os.fdopen(answers, "w", encoding="utf-8") as answer_stream:
        for line in numbers:
            number, began = int(line), time.process_time()
            try:
                run_cell(plan, cells[number], folder, _Teller(number, answer_stream), page=page)
                how: dict[str, Any] = {"done": True}
            except Exception as error:
                how = {"error": _plain(error)}
            _write(answer_stream, {"cell": number, "cpu_seconds": time.process_time() - began} | how)


def received(stream: io.RawIOBase) -> Given | None:
    """Return the plan and folder that ``hand_over`` sends; None: the stream ended early."""
    length = int.from_bytes(_read(stream, 8), "big")
    packed = _read(stream, length)
    folder = _read(stream, int.from_bytes(_read(stream, 8), "big"))
    if length == 0 or len(packed) < length or not folder:
        return None
    return unpacked(packed), Path(os.fsdecode(folder))


def hand_over(stream: socket.socket, plan: bytes, folder: Path) -> None:
    """Send a packed plan and a folder to a process that calls ``received``."""
    for part in (plan, os.fsencode(folder)):
        stream.sendall(len(part).to_bytes(8, "big"))
        stream.sendall(part)


def _read(stream: io.RawIOBase, length: int) -> bytes:
    parts = []
    while length and (part := stream.read(length)):
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


class _Teller:
    """Writes a cell's progress at most every ``TELL_SECONDS``, and at its end."""

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
    """Return an error as JSON values, from which ``raised`` restores it in the parent process."""
    if not isinstance(error, EunomiaError):
        return {"kind": "fault", "text": "".join(traceback.format_exception(error)), "errors": []}
    errors = error.errors if isinstance(error, InputErrors) else [error]
    kind = next((name for name, made in _KINDS.items() if isinstance(error, made)), "error")
    return {"kind": kind, "errors": [[each.rule, each.value, each.place] for each in errors]}


def raised(message: dict[str, Any]) -> Exception:
    """Return the error that a worker reported as JSON values."""
    if message["kind"] == "fault":
        return RuntimeError(f"in a worker:\n{message['text']}")
    kind = _KINDS.get(message["kind"], EunomiaError)
    errors = [kind(rule, value=value, place=place) for rule, value, place in message["errors"]]
    return InputErrors(errors) if kind is InputError and len(errors) > 1 else errors[0]  # type: ignore[arg-type]
