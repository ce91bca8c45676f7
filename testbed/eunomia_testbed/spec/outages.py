"""Reads ``--failures``: random outages, ``between=30d,repair=1h``, or known ones from a CSV file."""

import csv
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from eunomia.errors import InputError
from eunomia.words import did_you_mean, shown
from eunomia_testbed.simulator import Failures, Outage
from eunomia_testbed.spec.settings import filled

COLUMNS: Final = ("time_seconds", "machine", "state")
_HEADER: Final = f"a file of failures must have the columns {', '.join(COLUMNS)}"


def failures_of(text: str, checkpoint_every: float | None = None) -> Failures:
    """Read ``--failures``.

    Args:
        text: ``between=30d,repair=1h,checkpoint_every=30m``, or a CSV file with the columns ``time_seconds, machine,
            state`` (``down`` or ``up``).
        checkpoint_every: seconds between checkpoints, for a CSV file; None: the default.

    Raises:
        InputError: no such file, no CSV, or an invalid row.
    """
    if "=" in text:
        return filled(Failures, text.split(","), "--failures")
    outages = _outages(text)
    if checkpoint_every is None:
        return Failures(outages=outages)
    return Failures(outages=outages, checkpoint_every_seconds=checkpoint_every)


def check_machines(failures: Failures | None, machines: Iterable[str], path: str) -> None:
    """Refuse a file that names machines outside the cluster.

    Raises:
        InputError: names the first such machine.
    """
    there = set(machines)
    for outage in () if failures is None else failures.outages:
        if outage.machine not in there:
            value = f"{shown(outage.machine)}{did_you_mean(outage.machine, there)}"
            raise InputError("machine must be one of the cluster", value=value, place=Path(path).name)


def _outages(text: str) -> tuple[Outage, ...]:
    path = Path(text)
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            return tuple(_rows(csv.reader(stream), path.name))
    except UnicodeDecodeError as error:
        raise InputError("a file of failures must be text in UTF-8", value=error.reason, place=path.name) from error
    except csv.Error as error:
        raise InputError("a file of failures must be CSV", value=str(error), place=path.name) from error
    except (OSError, ValueError) as error:
        rule = "--failures must be between=DURATION,repair=DURATION or a CSV file"
        raise InputError(rule, value=shown(text), place="--failures") from error


def _rows(rows: Iterable[list[str]], name: str) -> Iterator[Outage]:
    number = 0
    for number, row in enumerate(rows, start=1):
        place = f"{name}, line {number}"
        if number == 1:
            if tuple(row) != COLUMNS:
                raise InputError(_HEADER, value=", ".join(row) or "nothing", place=place)
        elif len(row) != len(COLUMNS):
            raise InputError("a row must have as many fields as the header", value=shown(",".join(row)), place=place)
        else:
            yield _outage(dict(zip(COLUMNS, row, strict=True)), place)
    if not number:
        raise InputError(_HEADER, value="nothing", place=f"{name}, line 1")


def _outage(row: dict[str, str], place: str) -> Outage:
    try:
        at = float(row["time_seconds"])
    except ValueError:
        at = -1.0
    if not 0.0 <= at < float("inf"):
        raise InputError("time_seconds must be at least 0", value=shown(row["time_seconds"]), place=place)
    if row["state"] not in ("down", "up"):
        raise InputError("state must be down or up", value=shown(row["state"]), place=place)
    return Outage(time_seconds=at, machine=row["machine"], up=row["state"] == "up")
