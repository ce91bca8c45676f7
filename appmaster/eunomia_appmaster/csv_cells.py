"""CSV whose text no spreadsheet computes: a cell that would be a formula begins with an apostrophe.

A spreadsheet runs a cell that begins with ``=``, ``+``, ``-``, ``@``, a tab or a carriage return; names of jobs, apps,
users and models may come from a stranger's trace or app file. Readers of our own files take the apostrophe off again.
"""

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Final

if TYPE_CHECKING:
    import polars as pl

_FORMULA: Final = r"^('*[=+\-@\t\r])"
"""Text that gets an apostrophe. Text that has one before such a sign gets a second, so that reading undoes writing."""
_QUOTED: Final = r"^'('*[=+\-@\t\r])"
"""Text as it is written."""


def quoted_cell(text: str) -> str:
    """Return a text as it stands in a cell: behind an apostrophe if a spreadsheet would compute it."""
    return f"'{text}" if re.match(_FORMULA, text) else text


def plain_cell(text: str) -> str:
    """Return the text of a cell: the inverse of ``quoted_cell``."""
    return text[1:] if re.match(_QUOTED, text) else text


def csv_text(rows: Iterable[Sequence[object]]) -> str:
    """Return rows as CSV; text is quoted, numbers are as they are, None is empty."""
    lines = []
    for row in rows:
        made = io.StringIO()
        writer = csv.writer(made, lineterminator="\r\n")  # with "\n" a carriage return in a cell stands unquoted
        writer.writerow([quoted_cell(value) if isinstance(value, str) else value for value in row])
        lines.append(made.getvalue().removesuffix("\r\n") + "\n")
    return "".join(lines)


def csv_rows(file: IO[str]) -> Iterator[Mapping[str, str]]:
    """Yield the rows of a CSV file that Eunomia wrote, by column; a missing cell is empty."""
    for row in csv.DictReader(file, restval=""):
        yield {plain_cell(name): plain_cell(value) for name, value in row.items() if name is not None}


def frame_csv(frame: "pl.DataFrame") -> str:
    """Return a frame as CSV with a header; text is quoted, numbers are as they are."""
    import polars as pl

    texts = pl.col(pl.String, pl.Categorical, pl.Enum).cast(pl.String).str.replace(_FORMULA, "'$1")
    return frame.with_columns(texts).rename(quoted_cell).write_csv()


def plain_frame(frame: "pl.DataFrame") -> "pl.DataFrame":
    """Return a frame that was read from ``frame_csv`` with its text as it was."""
    import polars as pl

    return frame.rename(plain_cell).with_columns(pl.col(pl.String).str.replace(_QUOTED, "$1"))
