"""Reads tables of jobs with arbitrary column names, given a mapping of columns to their meaning and unit.

A job's submission time, its run time (or end time), and its GPUs are required.
"""

from collections.abc import Mapping
from typing import ClassVar, Final, NamedTuple

import numpy as np

from eunomia.errors import InputError
from eunomia.units import Reals
from eunomia.words import did_you_mean, shown
from eunomia_testbed.traces.building import Jobs, build
from eunomia_testbed.traces.options import ReadOptions
from eunomia_testbed.traces.rows import MOST_SECONDS, MOST_STAMP, Rows
from eunomia_testbed.traces.source import TraceSource
from eunomia_testbed.traces.tables import header_of, read_table
from eunomia_testbed.workload import Workload

TIMES: Final = ("submit", "duration", "end")
KEYS: Final = ("id", *TIMES, "gpus", "user", "model", "reference_type")
SECONDS: Final[Mapping[str, float]] = {
    "ns": 1e-9,
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
}
CALENDAR: Final = "time"
"""The unit for timestamps such as ``2020-06-09 18:41:01``, in UTC."""
UNITS: Final = (*SECONDS, CALENDAR)
SEPARATORS: Final = (",", "\t", ";", "|", " ")


class Column(NamedTuple):
    """A column of the file, with its unit."""

    name: str
    unit: str = "s"


def mapping_of(given: Mapping[str, str]) -> dict[str, Column]:
    """Parse texts ``NAME`` or ``NAME:UNIT`` as columns by key; times without a unit are in seconds.

    Raises:
        InputError: a key or unit is unknown, a key is missing, or two keys have the same column.
    """
    found = {key: _column(key, text) for key, text in given.items()}
    for key in ("submit", "gpus"):
        if key not in found:
            raise InputError(f"columns must name {key}", value=", ".join(found) or "none", place="trace.columns")
    if ("duration" in found) == ("end" in found):
        value = "both" if "end" in found else "neither"
        raise InputError("columns must name duration or end", value=value, place="trace.columns")
    names = [column.name for column in found.values()]
    twice = next((key for key, column in found.items() if names.count(column.name) > 1), None)
    if twice is not None:
        both = ", ".join(key for key, column in found.items() if column.name == found[twice].name)
        rule = "columns must name each column once"
        raise InputError(rule, value=f"{shown(found[twice].name)} as {both}", place="trace.columns")
    calendar = found.get("end", found["submit"]).unit == CALENDAR
    if calendar != (found["submit"].unit == CALENDAR):
        rule = "submit and end must both be calendar times, or neither"
        raise InputError(rule, value=f"{found['submit'].unit} and {found['end'].unit}", place="trace.columns")
    return found


def _column(key: str, text: str) -> Column:
    place = f"trace.columns.{key}"
    if key not in KEYS:
        rule = f"columns must be of {', '.join(KEYS)}"
        raise InputError(rule, value=f"{shown(key)}{did_you_mean(key, KEYS)}", place=place)
    name, colon, unit = text.rpartition(":")
    if not colon:
        name, unit = text, "s"
    elif key not in TIMES:
        name = text  # names and numbers have no unit
    elif unit not in UNITS or (key == "duration" and unit == CALENDAR):
        units = SECONDS if key == "duration" else UNITS
        raise InputError(f"unit must be one of {', '.join(units)}", value=shown(unit), place=place)
    if not name:
        raise InputError("a column must have a name", value="none", place=place)
    return Column(name, unit)


class MappedReader:
    """A reader of tables with mapped columns; jobs have one iteration per second at the requested GPUs."""

    format: ClassVar[str] = "columns"

    def matches(self, name: str, head: str) -> bool:
        """Return False: no file is recognized without a mapping."""
        return False

    def read(self, source: TraceSource, options: ReadOptions) -> Workload:
        """Read the jobs of a table with mapped columns; errors and options are those of ``TraceReader.read``."""
        columns = mapping_of(options.columns)
        names = [column.name for column in columns.values()]
        separator = next((each for each in SEPARATORS if set(names) <= set(header_of(source.head, each))), ",")
        table = read_table(source, required=names, separator=separator, format_name=self.format)
        rows = Rows.of(table)
        arrivals = _moments(rows, columns["submit"])
        rows.one_unit(columns["submit"].name, arrivals)
        jobs = Jobs(
            ids=rows.ids(columns["id"].name) if "id" in columns else [f"job{line}" for line in rows.lines.tolist()],
            arrival_seconds=arrivals,
            gpus=rows.gpus(columns["gpus"].name),
            iterations=_durations(rows, columns, arrivals),
            seconds_per_iteration=np.ones(rows.size),
            users=rows.text(columns["user"].name, otherwise="unknown") if "user" in columns else None,
            models=_names(rows, columns["model"].name) if "model" in columns else None,
            measured_on=_names(rows, columns["reference_type"].name) if "reference_type" in columns else None,
        )
        return build(rows, jobs, options, source="mapped", absolute=True)


def _names(rows: Rows, name: str) -> list[str | None]:
    return [text or None for text in rows.text(name, otherwise="")]


def _moments(rows: Rows, column: Column) -> Reals:
    """Return a time column in seconds."""
    if column.unit != CALENDAR:
        factor = SECONDS[column.unit]
        kind = f"a number of {column.unit}"
        return rows.numbers(column.name, kind=kind, least=0.0, most=MOST_STAMP / factor) * factor
    moments = rows.stamps(column.name)
    kind = 'a moment such as "2020-06-09 18:41:01"'
    rows.bounds(column.name, moments, rows.raw(column.name).__getitem__, kind=kind, most=MOST_STAMP)
    return moments


def _durations(rows: Rows, columns: Mapping[str, Column], arrivals: Reals) -> Reals:
    """Return run times in seconds, above 0: from their column, or as the time from submission to end."""
    if "duration" in columns:
        name, unit = columns["duration"]
        factor = SECONDS[unit]
        kind = f"a number of {unit}"
        return rows.numbers(name, kind=kind, above=0.0, most=MOST_SECONDS / factor) * factor
    name = columns["end"].name
    lasts = _moments(rows, columns["end"]) - arrivals
    rows.refuse(~(lasts > 0.0), f"{name} must be after {columns['submit'].name}", rows.raw(name).__getitem__)
    rows.refuse(lasts > MOST_SECONDS, f"a job must last at most {MOST_SECONDS:g} s", rows.raw(name).__getitem__)
    return lasts
