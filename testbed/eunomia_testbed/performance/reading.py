"""Functions that all readers of measured speeds share: text, tables of numbers, and their errors."""

import csv
import gzip
import io
import math
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from eunomia.errors import InputError


def read_text(path: Path) -> str:
    """Read a file, gzipped or not.

    Raises:
        InputError: the file is missing, unreadable or not text.
    """
    try:
        content = path.read_bytes()
        return (gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content).decode("utf-8-sig")
    except (OSError, EOFError, zlib.error) as error:
        raise InputError("a file of measured speeds must be readable", value=str(error), place=str(path)) from error
    except UnicodeDecodeError as error:
        raise InputError("a file of measured speeds must be UTF-8 text", value=str(error), place=str(path)) from error


def rows_of(path: Path, columns: Sequence[str]) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield the rows of a CSV file with their places; the header is line 1.

    Raises:
        InputError: a column of ``columns`` is missing, a row has fewer fields than the header, or the file is not CSV.
    """
    reader = csv.DictReader(io.StringIO(read_text(path)))
    try:
        yield from _rows(reader, path, columns)
    except csv.Error as error:
        place = f"{path}, line {reader.line_num}"
        raise InputError("a file of measured speeds must be CSV", value=str(error), place=place) from error


def _rows(reader: "csv.DictReader[str]", path: Path, columns: Sequence[str]) -> Iterator[tuple[str, Mapping[str, str]]]:
    missing = [column for column in columns if column not in (reader.fieldnames or ())]
    if missing:
        raise InputError(
            f"the header must name {', '.join(columns)}", value=f"no {', '.join(missing)}", place=f"{path}, line 1"
        )
    for row in reader:
        place = f"{path}, line {reader.line_num}"
        if any(row[column] is None for column in columns):
            raise InputError("a row must have as many fields as the header", value=f"{row}", place=place)
        yield place, row


def number(text: object, *, name: str, place: str, least: float = 0.0, strictly: bool = False) -> float:
    """Read a finite number.

    Raises:
        InputError: the value is no finite number, or is below ``least`` (or equal to it, if ``strictly``).
    """
    try:
        amount = float(text) if isinstance(text, str | int | float) and not isinstance(text, bool) else math.nan
    except ValueError:
        amount = math.nan
    if math.isfinite(amount) and (amount > least if strictly else amount >= least):
        return amount
    rule = f"{name} must be {'above' if strictly else 'at least'} {least:g}"
    raise InputError(rule, value=f'"{text}"', place=place)


def whole(text: object, *, name: str, place: str) -> int:
    """Read a whole number of at least 1.

    Raises:
        InputError: the text is not such a number.
    """
    amount = number(text, name=name, place=place, least=1.0)
    if amount != int(amount):
        raise InputError(f"{name} must be a whole number", value=f'"{text}"', place=place)
    return int(amount)


def unknown(what: str, name: str, known: Sequence[str], place: str) -> InputError:
    """Return the error for a ``name`` (a ``what``, such as a GPU type) that a performance model does not know."""
    listed = ", ".join(known[:8]) + (f" and {len(known) - 8} more" if len(known) > 8 else "")
    return InputError(f"{what} must be one that is known: {listed}", value=f'"{name}"', place=place)


def plain(text: str) -> str:
    """Return the text's letters and digits in lower case: RTX 3090, rtx-3090 and RTX3090 are the same GPU type."""
    return re.sub(r"[^a-z0-9]", "", text.lower())
