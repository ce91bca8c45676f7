"""CSV files that are safe to open in a spreadsheet: cells that would be formulas begin with an apostrophe.

A spreadsheet evaluates a cell that begins with ``=``, ``+``, ``-``, ``@``, a tab or a carriage return; names of jobs,
apps, users and models may come from an untrusted trace or app file. Eunomia's own readers remove the apostrophe.
"""

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Final

if TYPE_CHECKING:
    import polars as pl

_FORMULA: Final = r"^('*[=+\-@\t\r])"
"""Text that gets an apostrophe: possible formulas, also behind apostrophes, so that reading reverses writing."""
_QUOTED: Final = r"^'('*[=+\-@\t\r])"
"""Quoted text, whose first apostrophe reading removes."""


def quoted_cell(text: str) -> str:
    """Return a text as the content of a cell: with an apostrophe in front if a spreadsheet would evaluate it."""
    return f"'{text}" if re.match(_FORMULA, text) else text


def plain_cell(text: str) -> str:
    """Return the original text of a cell: the inverse of ``quoted_cell``."""
    return text[1:] if re.match(_QUOTED, text) else text


def csv_text(rows: Iterable[Sequence[object]]) -> str:
    """Return rows as CSV; texts are quoted by ``quoted_cell``, numbers are unchanged, None is an empty cell."""
    lines = []
    for row in rows:
        made = io.StringIO()
        writer = csv.writer(made, lineterminator="\r\n")  # with "\n" a carriage return in a cell is not quoted
        writer.writerow([quoted_cell(value) if isinstance(value, str) else value for value in row])
        lines.append(made.getvalue().removesuffix("\r\n") + "\n")
    return "".join(lines)


def csv_rows(file: IO[str]) -> Iterator[Mapping[str, str]]:
    """Yield the rows of a CSV file that Eunomia wrote, as texts by column name; a missing cell is empty."""
    for row in csv.DictReader(file, restval=""):
        yield {plain_cell(name): plain_cell(value) for name, value in row.items() if name is not None}


def frame_csv(frame: "pl.DataFrame") -> str:
    """Return a data frame as CSV with a header; texts are quoted by ``quoted_cell``, numbers are unchanged."""
    import polars as pl

    texts = pl.col(pl.String, pl.Categorical, pl.Enum).cast(pl.String).str.replace(_FORMULA, "'$1")
    return frame.with_columns(texts).rename(quoted_cell).write_csv()


def plain_frame(frame: "pl.DataFrame") -> "pl.DataFrame":
    """Undo the quoting in a data frame that was read from the output of ``frame_csv``."""
    import polars as pl

    return frame.rename(plain_cell).with_columns(pl.col(pl.String).str.replace(_QUOTED, "$1"))
