"""Converts and checks the columns of a trace; rows that break a rule are dropped, and listed with line and value."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from eunomia.errors import InputError
from eunomia.model.cluster import MAX_GPUS
from eunomia.units import Bools, Ints, Reals
from eunomia_testbed.traces.tables import TextTable, brief, quoted
from eunomia_testbed.workload import Dropped

if TYPE_CHECKING:
    import polars as pl

MOST_SECONDS: Final = 100 * 365.25 * 86400.0
"""Longest accepted duration in seconds: a hundred years."""
MOST_STAMP: Final = 1e11
"""Largest accepted timestamp in seconds: the year 5138; timestamps in milliseconds have exceeded it since 1973."""
MOST_ITERATIONS: Final = 1e15
UNIT_FACTOR: Final = 200.0
UNIT_FLOOR: Final = 1e7
"""A time counts as one in another unit if its distance from the median exceeds this number of seconds, and also
``UNIT_FACTOR`` times the median distance."""

Values = Callable[[int], object]
"""Returns the value that broke the rule, given the index of its row."""


class Rows:
    """The rows of a file, each valid or dropped.

    Args:
        file: name of the file, for messages.
        lines: line number of each row.
        frame: the columns as text; None: the reader has its own columns.
        dropped: rows that have been dropped already.
    """

    def __init__(
        self, file: str, lines: Ints, frame: "pl.DataFrame | None" = None, dropped: Sequence[Dropped] = ()
    ) -> None:
        self.file, self.lines, self.frame = file, lines, frame
        self.good: Bools = np.ones(lines.size, dtype=bool)
        self.dropped: list[Dropped] = list(dropped)
        self.notes: list[str] = []

    @classmethod
    def of(cls, table: TextTable) -> "Rows":
        """Return the rows of a table.

        Raises:
            InputError: the table has no rows.
        """
        rows = cls(table.file, table.lines, table.frame, table.dropped)
        if not rows.size:
            rows.finish(strict=False)
        return rows

    @property
    def size(self) -> int:
        """Return the number of rows, including dropped ones."""
        return int(self.lines.size)

    def refuse(self, broken: Bools, rule: str, values: Values) -> None:
        """Drop the rows in ``broken``, [row], with ``rule``; rows that were dropped before keep their first rule."""
        for row in np.flatnonzero(broken & self.good).tolist():
            entry = Dropped(file=self.file, line=int(self.lines[row]), rule=rule, value=brief(values(row)))
            self.dropped.append(entry)
        self.good &= ~broken

    def raw(self, name: str) -> "pl.Series":
        """Return a column as text, without surrounding whitespace."""
        if self.frame is None:
            raise LookupError(name)
        return self.frame[name].str.strip_chars()

    def text(self, name: str, *, otherwise: str | None = None) -> list[str]:
        """Return a column of names; an empty name becomes ``otherwise``, or the row is dropped if that is None."""
        column = self.raw(name)
        empty = (column.is_null() | (column == "")).to_numpy()
        if otherwise is None:
            self.refuse(empty, f"{name} must not be empty", column.__getitem__)
        if not empty.any():
            return column.to_list()
        return [text or otherwise or "" for text in column.to_list()]

    def ids(self, name: str) -> list[str]:
        """Return a column of unique names; of rows with the same name, the first is kept."""
        texts = self.text(name)
        column = self.raw(name)
        if column.is_duplicated().any():
            self.refuse(~column.is_first_distinct().to_numpy(), f"{name} must be unique", column.__getitem__)
        return texts

    def numbers(
        self,
        name: str,
        *,
        kind: str = "a number",
        least: float | None = None,
        above: float | None = None,
        most: float = np.inf,
        optional: bool = False,
    ) -> Reals:
        """Return a numeric column; rows with an invalid number, or one out of bounds, are dropped.

        Args:
            name: name of the column.
            kind: kind of number, for the rule.
            least: the smallest allowed number.
            above: exclusive lower bound.
            most: the largest allowed number.
            optional: whether an empty field is allowed; it becomes NaN.
        """
        import polars as pl

        column = self.raw(name)
        numbers = column.cast(pl.Float64, strict=False).fill_null(np.nan).to_numpy().copy()
        wrong = ~np.isfinite(numbers)
        if optional:
            wrong &= ~(column.is_null() | (column == "")).to_numpy()
        self.bounds(name, numbers, column.__getitem__, kind=kind, least=least, above=above, most=most, wrong=wrong)
        return numbers

    def bounds(
        self,
        name: str,
        numbers: Reals,
        values: Values | None = None,
        *,
        kind: str = "a number",
        least: float | None = None,
        above: float | None = None,
        most: float = np.inf,
        wrong: Bools | None = None,
    ) -> None:
        """Drop the rows whose number is not finite or is out of bounds."""
        say: Values = values or (lambda row: f"{numbers[row]:g}")
        self.refuse(~np.isfinite(numbers) if wrong is None else wrong, f"{name} must be {kind}", say)
        if least is not None:
            self.refuse(numbers < least, f"{name} must be at least {least:g}", say)
        if above is not None:
            self.refuse(numbers <= above, f"{name} must be above {above:g}", say)
        if np.isfinite(most):
            self.refuse(numbers > most, f"{name} must be at most {most:g}", say)

    def whole(self, name: str, *, least: int, most: int) -> Ints:
        """Return a column of whole numbers, such as ``4`` or ``4.0``; rows with an invalid number are dropped."""
        numbers = self.numbers(name, kind="a whole number", least=least, most=most)
        self.refuse(
            np.isfinite(numbers) & (numbers != np.floor(numbers)),
            f"{name} must be a whole number",
            self.raw(name).__getitem__,
        )
        return np.where(self.good, numbers, 0).astype(np.int64)

    def gpus(self, name: str) -> Ints:
        """Return a column of gang sizes; rows whose number is not whole or is below 1 are dropped."""
        return self.whole(name, least=1, most=MAX_GPUS)

    def durations(self, name: str, *, zero: bool = False) -> Reals:
        """Return a column of run times in seconds, above 0, or at least 0 if ``zero``."""
        bound = {"least": 0.0} if zero else {"above": 0.0}
        return self.numbers(name, kind="a number of seconds", most=MOST_SECONDS, **bound)  # type: ignore[arg-type]

    def arrivals(self, name: str, *, least: float | None = 0.0) -> Reals:
        """Return a column of arrival times in seconds, all of which must have the same unit."""
        times = self.numbers(name, kind="a number of seconds", least=least, most=MOST_STAMP)
        self.one_unit(name, times)
        return times

    def stamps(self, name: str, *, zone: str | None = None) -> Reals:
        """Return a column of times such as ``2020-06-09 18:41:01``, in seconds since 1970; NaN: not a time.

        Args:
            name: name of the column.
            zone: the time zone of the timestamps; None: UTC.
        """
        return seconds_of(self.raw(name), zone)

    def one_unit(self, name: str, times: Reals) -> None:
        """Drop rows whose time, in seconds, has another magnitude than the rest, such as milliseconds among seconds."""
        usable = times[self.good]
        if usable.size < 3:
            return
        middle = _median(usable)
        far = np.abs(times - middle)
        limit = max(UNIT_FLOOR, UNIT_FACTOR * _median(far[self.good]))
        rule = f"{name} must be in one unit, seconds: at most {limit:.3g} s from the median, {middle:.6g}"
        self.refuse(far > limit, rule, lambda row: f"{times[row]:.15g}")

    def note(self, text: str) -> None:
        """Add a note on a change that did not drop a row."""
        self.notes.append(text)

    def finish(self, *, strict: bool) -> None:
        """Sort the dropped rows by line, and check that a row is left.

        Raises:
            InputError: no row is left, or, if strict, a row was dropped; the error states the first one's rule.
        """
        self.dropped.sort(key=lambda entry: entry.line)
        first = self.dropped[0] if self.dropped else None
        if first is not None and strict:
            raise InputError(first.rule, value=quoted(first.value), place=f"{first.file}, line {first.line}")
        if not self.good.any():
            why = "no row" if first is None else f"none of {len(self.dropped)} rows; the first: {first.rule}, but got "
            value = why if first is None else f"{why}{quoted(first.value)}, line {first.line}"
            raise InputError("a trace must hold at least one job", value=value, place=self.file)


def _median(numbers: Reals) -> float:
    """Return the median; unlike numpy's ``median``, it does not import masked arrays."""
    low, high = (numbers.size - 1) // 2, numbers.size // 2
    ordered = np.partition(numbers, (low, high))
    return float((ordered[low] + ordered[high]) / 2)


def seconds_of(column: "pl.Series", zone: str | None) -> Reals:
    """Return times such as ``2020-06-09 18:41:01`` in seconds since 1970; NaN: the text is not a time."""
    import polars as pl

    moments = column.str.strip_chars().str.replace("T", " ", literal=True).str.slice(0, 19)
    stamps = moments.str.to_datetime("%Y-%m-%d %H:%M:%S", strict=False, time_unit="ms")
    if zone is not None:
        stamps = stamps.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")
    return stamps.dt.epoch("ms").cast(pl.Float64).fill_null(np.nan).to_numpy() / 1000.0
