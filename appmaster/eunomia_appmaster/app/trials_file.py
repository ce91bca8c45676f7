"""``trials.csv``: a row for each job of an app, for people and reports; each row has a checksum."""

import csv
import io
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import structlog

from eunomia_appmaster.app.master_folders import trials_file
from eunomia_appmaster.csv_cells import csv_text, plain_cell

log = structlog.get_logger()

SUM = "sum"
TRIALS_COLUMNS = (
    "job", "parameters", "state", "rung", "iterations", "metric", "best", "incarnations", "iterations_lost", "why",
)  # fmt: skip


def trials_text(rows: Iterable[Sequence[object]]) -> str:
    """Return the content of the file.

    Args:
        rows: each row has a text or a number for each of ``TRIALS_COLUMNS``; None: unknown.
    """
    return "".join((csv_text([(*TRIALS_COLUMNS, SUM)]), *map(row_text, rows)))


def row_text(row: Sequence[object]) -> str:
    """Return the line of a row with its checksum; see ``trials_text``."""
    return csv_text([(*row, _sum([_text(cell) for cell in row]))])


def read_trials_file(app_dir: Path) -> list[dict[str, str]]:
    """Read the rows of an app's ``trials.csv``; damaged rows are left out and logged.

    Returns an empty list if the file cannot be read. Rows of an earlier version have no checksum.
    """
    path = trials_file(app_dir)
    try:
        text = path.read_bytes().decode(errors="replace")
    except OSError:
        return []
    reader = csv.DictReader(io.StringIO(text, newline=""))
    try:
        found = [
            {name: plain_cell(cell) if isinstance(cell, str) else cell for name, cell in row.items()} for row in reader
        ]
        whole = set(TRIALS_COLUMNS) <= set(reader.fieldnames or ())
    except csv.Error:
        found, whole = [], False
    good = [row for row in found if _is_good(row)] if whole else []
    if not whole or len(good) < len(found):
        what = f"{len(found) - len(good)} of {len(found)} rows" if whole else "the first line"
        log.warning("trials.damaged", place=str(path), why=f"{what} of {path.name} must be as written; left out")
    return [{name: text for name, text in row.items() if name != SUM} for row in good]


def _is_good(row: Mapping[str, str | None]) -> bool:
    """Return whether a row has all columns and, if the file has checksums, the right one."""
    cells = [row.get(name) for name in TRIALS_COLUMNS]
    if None in row or any(cell is None for cell in cells):
        return False
    return SUM not in row or row[SUM] == _sum([cell or "" for cell in cells])


def _text(cell: object) -> str:
    return "" if cell is None else str(cell)


def _sum(row: Sequence[str]) -> str:
    return f"{zlib.crc32(json.dumps(list(row)).encode()):08x}"
