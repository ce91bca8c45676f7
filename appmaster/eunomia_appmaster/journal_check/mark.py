"""Compares a journal with the mark in its folder, which records how far the journal was written."""

import contextlib
import zlib
from pathlib import Path

from eunomia_appmaster.journal_check.findings import AddFinding, Finding, Rule
from eunomia_appmaster.journal_check.reading import Rows

MARK = "journal.mark"
ENTRY_BYTES = 512


def read_mark(folder: Path) -> dict[str, int]:
    """Return the newest complete entry of a folder's mark; empty if there is none.

    Read it before the journal, since the arbiter may write to both meanwhile.
    """
    content = b""
    with contextlib.suppress(OSError):
        content = (folder / MARK).read_bytes()[: 2 * ENTRY_BYTES]
    found: list[tuple[int, dict[str, int]]] = []
    for part in (content[:ENTRY_BYTES], content[ENTRY_BYTES:]):
        said, _, crc = part.rstrip().rpartition(b" ")
        if len(part) == ENTRY_BYTES and crc == b"%08x" % zlib.crc32(said):
            turn, *fields = said.decode("ascii", "replace").split(" ")
            with contextlib.suppress(ValueError):
                pairs = (field.partition("=") for field in fields)
                found.append((int(turn), {name: int(number) for name, _, number in pairs}))
    return max(found, key=lambda entry: entry[0], default=(0, {}))[1]


def check_mark(mark: dict[str, int], rows: Rows, note: AddFinding) -> None:
    """Find steps and notes that were committed but are missing."""
    history, last = rows.history, rows.last_number
    if not mark or mark.get("history", 0) < history:
        return
    step, what = mark.get("step", 0), ""
    if step > last:
        what = f"{step - last} steps are gone: {MARK} has step {step}, the journal ends with step {last}"
    elif mark.get("history", 0) > history:
        what = f"{MARK} is of history {mark['history']}, the journal of history {history}: it is an older one"
    elif (here := rows.sum_of(step)) != -1 and mark.get("sum", -1) not in (-1, here):
        what = f"step {step} is another one than that of {MARK}"
    elif mark.get("notes", -1) > rows.notes_written:
        what = f"notes were written {mark['notes']} times by {MARK}, but {rows.notes_written} times by the journal"
    if what:
        note(Finding(rule=Rule.STEPS, what=what, place=MARK))
