"""Reads a CSV file with fixed columns, and reports where a row is invalid."""

import csv
from collections.abc import Iterable, Iterator
from pathlib import Path

from eunomia.errors import InputError
from eunomia.words import shown


def rows_of(
    text: str, columns: tuple[str, ...], *, what: str, unreadable: str, flag: str
) -> list[tuple[dict[str, str], str]]:
    """Return the rows of a CSV file as dicts by column, each with its file and line for errors.

    Args:
        text: the file's path, as the user gave it.
        columns: the expected header.
        what: the kind of file, as in "a file of failures".
        unreadable: the rule for a path that cannot be read.
        flag: the option with the path.

    Raises:
        InputError: the file does not exist or is not CSV, its header differs, or a row has another length.
    """
    path = Path(text)
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            return list(_rows(csv.reader(stream), path.name, columns, what))
    except UnicodeDecodeError as error:
        raise InputError(f"{what} must be text in UTF-8", value=error.reason, place=path.name) from error
    except csv.Error as error:
        raise InputError(f"{what} must be CSV", value=str(error), place=path.name) from error
    except (OSError, ValueError) as error:
        raise InputError(unreadable, value=shown(text), place=flag) from error


def seconds_of(row: dict[str, str], column: str, place: str) -> float:
    """Return a row's time in seconds since the start of the simulation.

    Raises:
        InputError: the value is not a number of at least 0.
    """
    try:
        at = float(row[column])
    except ValueError:
        at = -1.0
    if not 0.0 <= at < float("inf"):
        raise InputError(f"{column} must be at least 0", value=shown(row[column]), place=place)
    return at


def _rows(
    rows: Iterable[list[str]], name: str, columns: tuple[str, ...], what: str
) -> Iterator[tuple[dict[str, str], str]]:
    number, header = 0, f"{what} must have the columns {', '.join(columns)}"
    for number, row in enumerate(rows, start=1):
        place = f"{name}, line {number}"
        if number == 1:
            if tuple(row) != columns:
                raise InputError(header, value=", ".join(row) or "nothing", place=place)
        elif len(row) != len(columns):
            raise InputError("a row must have as many fields as the header", value=shown(",".join(row)), place=place)
        else:
            yield dict(zip(columns, row, strict=True)), place
    if not number:
        raise InputError(header, value="nothing", place=f"{name}, line 1")
