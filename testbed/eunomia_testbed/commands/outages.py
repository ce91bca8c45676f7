"""Machine failures as a flag takes them: drawn, ``between=30d,repair=1h``, or known, from a CSV file."""

import csv
from pathlib import Path
from typing import Final

from eunomia.errors import InputError
from eunomia.words import shown
from eunomia_testbed.commands.settings import filled
from eunomia_testbed.simulator import Failures, Outage

COLUMNS: Final = ("time_seconds", "machine", "state")


def failures_of(text: str, checkpoint_every: float | None = None) -> Failures:
    """Read ``--failures``.

    Args:
        text: ``between=30d,repair=1h,checkpoint_every=30m``, or a CSV file with the columns ``time_seconds, machine,
            state`` (``down`` or ``up``).
        checkpoint_every: seconds, where the file cannot say it; None: the default.

    Raises:
        InputError: no such file, or a row that does not do.
    """
    if "=" in text:
        return filled(Failures, text.split(","), "--failures")
    path = Path(text)
    if not path.is_file():
        rule = "--failures must be between=DURATION,repair=DURATION or a CSV file"
        raise InputError(rule, value=shown(text), place="--failures")
    with path.open(encoding="utf-8", newline="") as stream:
        rows = csv.DictReader(stream)
        if tuple(rows.fieldnames or ()) != COLUMNS:
            rule = f"a file of failures must have the columns {', '.join(COLUMNS)}"
            raise InputError(rule, value=", ".join(rows.fieldnames or ["nothing"]), place=f"{path.name}, line 1")
        outages = tuple(_outage(row, f"{path.name}, line {number}") for number, row in enumerate(rows, start=2))
    if checkpoint_every is None:
        return Failures(outages=outages)
    return Failures(outages=outages, checkpoint_every_seconds=checkpoint_every)


def _outage(row: dict[str, str], place: str) -> Outage:
    try:
        at = float(row["time_seconds"])
    except (TypeError, ValueError):
        at = -1.0
    if not 0.0 <= at < float("inf"):
        raise InputError("time_seconds must be at least 0", value=shown(row["time_seconds"]), place=place)
    if row["state"] not in ("down", "up"):
        raise InputError("state must be down or up", value=shown(row["state"]), place=place)
    return Outage(time_seconds=at, machine=row["machine"], up=row["state"] == "up")
