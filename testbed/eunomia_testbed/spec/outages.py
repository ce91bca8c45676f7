"""Reads ``--failures``: random outages such as ``between=30d,repair=1h``, or given outages from a CSV file."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from eunomia.errors import InputError
from eunomia.words import did_you_mean, shown
from eunomia_testbed.simulator import Failures, Outage
from eunomia_testbed.spec.csv_rows import rows_of, seconds_of
from eunomia_testbed.spec.settings import filled

COLUMNS: Final = ("time_seconds", "machine", "state")


def failures_of(text: str, checkpoint_every: float | None = None) -> Failures:
    """Return the failures given by ``--failures``.

    Args:
        text: ``between=30d,repair=1h,checkpoint_every=30m``, or a CSV file with the columns ``time_seconds, machine,
            state`` (``down`` or ``up``).
        checkpoint_every: seconds between checkpoints, for a CSV file; None: the default.

    Raises:
        InputError: the file does not exist or is not CSV, or a row is invalid.
    """
    if "=" in text:
        return filled(Failures, text.split(","), "--failures")
    outages = _outages(text)
    if checkpoint_every is None:
        return Failures(outages=outages)
    return Failures(outages=outages, checkpoint_every_seconds=checkpoint_every)


def check_machines(failures: Failures | None, machines: Iterable[str], path: str) -> None:
    """Check that a file of failures names only machines of the cluster.

    Raises:
        InputError: a machine is not in the cluster; the error names the first such machine.
    """
    there = set(machines)
    for outage in () if failures is None else failures.outages:
        if outage.machine not in there:
            value = f"{shown(outage.machine)}{did_you_mean(outage.machine, there)}"
            raise InputError("machine must be one of the cluster", value=value, place=Path(path).name)


def _outages(text: str) -> tuple[Outage, ...]:
    rule = "--failures must be between=DURATION,repair=DURATION or a CSV file"
    rows = rows_of(text, COLUMNS, what="a file of failures", unreadable=rule, flag="--failures")
    return tuple(_outage(row, place) for row, place in rows)


def _outage(row: dict[str, str], place: str) -> Outage:
    at = seconds_of(row, "time_seconds", place)
    if row["state"] not in ("down", "up"):
        raise InputError("state must be down or up", value=shown(row["state"]), place=place)
    return Outage(time_seconds=at, machine=row["machine"], up=row["state"] == "up")
