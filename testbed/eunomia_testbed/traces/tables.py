"""Tables of text: columns of strings, the line number of each row, and the lines that are not valid rows."""

import csv
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from eunomia.errors import InputError
from eunomia.model.shapes import builds
from eunomia.units import Ints
from eunomia.words import did_you_mean, list_of, shown
from eunomia_testbed.traces.source import MOST_LINE, TraceSource
from eunomia_testbed.workload import Dropped

if TYPE_CHECKING:
    import polars as pl

SHOWN: Final = 60
"""Largest number of characters of a field in a message."""


@builds
class TextTable:
    """The rows of a file, with all fields as text."""

    file: str
    frame: "pl.DataFrame"
    lines: Ints
    """Line number of each row, from 1."""
    dropped: tuple[Dropped, ...] = ()
    """Lines with too few or too many fields."""


def header_of(head: str, separator: str = ",") -> list[str]:
    """Return the names in the first line of a text."""
    return [name.strip().strip('"') for name in head.split("\n", 1)[0].split(separator)]


def resembles(head: str, columns: Sequence[str]) -> bool:
    """Return whether at least half of these column names, and at least two, are in the first line."""
    return len(set(columns) & set(header_of(head))) >= max(2, (len(columns) + 1) // 2)


def read_table(
    source: TraceSource,
    *,
    required: Sequence[str],
    names: Sequence[str] | None = None,
    separator: str = ",",
    format_name: str,
) -> TextTable:
    """Read a table with one row per line; quotes must not span lines, and blank lines are skipped.

    Args:
        source: the file.
        required: columns that must exist.
        names: names of all columns, if the file has no header; None: they are in the first line.
        separator: separator of fields.
        format_name: name of the format, for messages.

    Raises:
        InputError: a required column is missing, or a name occurs twice.
    """
    text = source.text
    start = 0
    if names is None:
        names = header_of(text, separator)
        start = 1
        _check_header(source.name, names, required, format_name)
    return _fast(source, names, separator, start) or _careful(source.name, text, names, separator, start)


def _check_header(file: str, names: Sequence[str], required: Sequence[str], format_name: str) -> None:
    place = f"{file}, line 1"
    missing = [name for name in required if name not in names]
    if missing:
        rule = f"a trace of format {format_name} must have columns {', '.join(required)}"
        hint = did_you_mean(missing[0], names)
        unit = next((name for name in names if _unit_twin(missing[0], name)), None)
        if unit is not None:
            hint = f', but "{unit}", which is in another unit'
        raise InputError(rule, value=f"no {list_of(missing).replace(' or ', ' and ')}{hint}", place=place)
    twice = next((name for name in names if name and names.count(name) > 1), None)
    if twice is not None:
        raise InputError("names of columns must be unique", value=f"{shown(twice)} twice", place=place)


def _unit_twin(wanted: str, given: str) -> bool:
    """Return whether two names differ only by their unit, such as ``duration_ms`` and ``duration_s``."""
    stem = wanted.removesuffix("_seconds").removesuffix("_s")
    return given != wanted and given in {
        f"{stem}_{unit}" for unit in ("ms", "us", "ns", "min", "minutes", "h", "hours")
    }


def _fast(source: TraceSource, names: Sequence[str], separator: str, start: int) -> TextTable | None:
    """Read the whole table at once; None: a line is irregular, so lines must be read one by one."""
    import polars as pl

    data = source.data
    ends = np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == ord("\n"))
    widest = int(np.diff(ends, prepend=-1, append=len(data)).max())
    separators = data.count(separator.encode())
    if b'"' in data or widest > MOST_LINE or separators % max(1, len(names) - 1):
        return None
    try:
        frame = pl.read_csv(
            data,
            has_header=False,
            skip_lines=start,
            new_columns=list(names),
            infer_schema=False,
            separator=separator,
            quote_char=None,
        )
    except pl.exceptions.PolarsError:
        return None
    if frame.height * (len(names) - 1) != separators - start * (len(names) - 1) or frame.width != len(names):
        return None
    return TextTable(
        file=source.name, frame=frame, lines=np.arange(start + 1, start + 1 + frame.height, dtype=np.int64)
    )


def _careful(file: str, text: str, names: Sequence[str], separator: str, start: int) -> TextTable:
    import polars as pl

    rows: list[list[str]] = []
    lines: list[int] = []
    dropped: list[Dropped] = []
    for line, fields, wrong in _fields(text, len(names), separator, start):
        if wrong is not None:
            dropped.append(Dropped(file=file, line=line, rule=wrong[0], value=wrong[1]))
        else:
            rows.append(fields)
            lines.append(line)
    frame = pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String), orient="row")
    return TextTable(file=file, frame=frame, lines=np.array(lines, dtype=np.int64), dropped=tuple(dropped))


def _fields(
    text: str, width: int, separator: str, start: int
) -> Iterator[tuple[int, list[str], tuple[str, str] | None]]:
    """Yield for each line its number, its fields, and None or, if it is invalid, the broken rule and the value."""
    for line, content in enumerate(text.split("\n"), 1):
        if line <= start or not content.strip():
            continue
        if len(content) > MOST_LINE:
            yield line, [], (f"a line must be at most {MOST_LINE} characters", f"{len(content)} characters")
            continue
        try:
            fields = _split(content.removesuffix("\r"), separator)
        except csv.Error:
            yield line, [], ("a quoted field must end on its line", brief(content))
            continue
        odd = None if len(fields) == width else (f"a row must have {width} fields", f"{len(fields)}")
        yield line, fields, odd


def _split(content: str, separator: str) -> list[str]:
    if '"' not in content:
        return content.split(separator)
    return next(csv.reader([content], delimiter=separator, strict=True))


def brief(text: object) -> str:
    """Return a field as text for ``dropped.csv``, cut to ``SHOWN`` characters."""
    words = "" if text is None else str(text)
    return words if len(words) <= SHOWN else words[: SHOWN - 3] + "..."


def quoted(value: str) -> str:
    """Return a field in quotes for a message."""
    return shown(value) if value else "nothing"
