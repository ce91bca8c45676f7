"""Suggests a command that maps the columns of an unknown table, based on its header and first rows."""

import csv
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Final

from eunomia_testbed.traces.mapped import CALENDAR, SECONDS, SEPARATORS
from eunomia_testbed.traces.rows import MOST_STAMP

NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "id": ("jobid", "job", "id", "jobname", "name", "jobnumber", "uuid", "taskid", "runid"),
    "submit": (
        *("submit", "submitted", "submission", "submittime", "submissiontime", "submitat", "submittedat", "queued"),
        *("queuedat", "queuetime", "arrival", "arrived", "arrivaltime", "arrivalseconds", "created", "createdat"),
        *("creationtime", "timestamp", "time", "start", "started", "starttime"),
    ),
    "duration": (
        *("duration", "runtime", "elapsed", "elapsedtime", "walltime", "runseconds", "length", "took", "lasted"),
        *("durationseconds", "jobduration", "runningtime", "exectime", "executiontime"),
    ),
    "end": ("end", "ended", "endtime", "finish", "finished", "finishtime", "finishedat", "completed", "completedat"),
    "gpus": (
        *("gpus", "gpu", "numgpus", "numgpu", "ngpus", "ngpu", "gpunum", "gpucount", "allocgpus", "gpusrequested"),
        *("requestedgpus", "cards", "accelerators", "devices", "workers", "replicas", "scalefactor", "gres"),
    ),
    "user": ("user", "userid", "username", "owner", "account", "who", "submitter", "tenant", "group"),
    "model": ("model", "modelname", "network", "architecture", "arch", "workload", "application"),
    "reference_type": (
        "gputype",
        "gpumodel",
        "gpuname",
        "devicetype",
        "hardware",
        "accelerator",
        "gpuspec",
        "type",
        "gpu",
    ),
}
"""Usual names of each mapping key's column, in lower case without punctuation and units, the likeliest first."""
NUMBERS: Final = frozenset({"duration", "gpus"})
"""Mapping keys whose columns have numbers."""
TEXTS: Final = frozenset({"reference_type", "model"})
"""Mapping keys whose columns have text."""
NEEDED: Final = ("submit", "duration", "gpus")
_ALIASES: Final[Mapping[str, tuple[str, ...]]] = {
    "ns": ("nanos", "nanoseconds"),
    "us": ("micros", "microseconds"),
    "ms": ("millis", "msec", "milliseconds"),
    "s": ("sec", "secs", "second", "seconds"),
    "min": ("mins", "minute", "minutes"),
    "h": ("hr", "hrs", "hour", "hours"),
    "d": ("day", "days"),
}
_WORDS: Final = {word: unit for unit in SECONDS for word in (unit, *_ALIASES[unit])}
"""Unit by word: each unit's own name and its aliases."""
_STAMP: Final = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d.*")
_STILL_MISSING: Final[Mapping[str, str]] = {
    "submit": "SUBMISSION",
    "duration": "RUNTIME",
    "gpus": "GPUS",
}


def mapping_command(head: str) -> str | None:
    """Return command-line options that map a table's columns; None: the text is not such a table.

    A required key that no column fits gets a placeholder in capitals. The unit of a time column is read from its name;
    without one there, it is seconds, or milliseconds if the first number is too large for seconds since 1970.

    Args:
        head: the first lines of the file.
    """
    table = _table(head)
    if table is None:
        return None
    names, rows = table
    found = _columns(names, rows)
    if len(found) < 2:
        return None
    parts = {key: _written(key, name, [row[names.index(name)] for row in rows]) for key, name in found.items()}
    if "end" in parts and "duration" not in parts:
        needed: Sequence[str] = [key for key in NEEDED if key != "duration"]
    else:
        parts.pop("end", None)
        needed = NEEDED
    parts |= {key: _STILL_MISSING[key] for key in needed if key not in parts}
    order = [key for key in NAMES if key in parts]
    return " ".join(f"--set {shlex.quote(f'trace.columns.{key}={parts[key]}')}" for key in order)


def _table(head: str) -> tuple[list[str], list[list[str]]] | None:
    """Return the header and the first rows, split by the first separator that yields at least three columns."""
    lines = [line for line in head.splitlines()[:20] if line.strip()]
    if len(lines) < 2:
        return None
    for separator in SEPARATORS:
        try:
            fields = list(csv.reader(lines, delimiter=separator))
        except csv.Error:
            continue
        names = [name.strip() for name in fields[0]]
        rows = [row for row in fields[1:] if len(row) == len(names)]
        if len(names) >= 3 and rows and len(set(names)) == len(names) and not any(map(_is_number, names)):
            return names, rows
    return None


def _columns(names: Sequence[str], rows: Sequence[Sequence[str]]) -> dict[str, str]:
    """Return for each key the column with the likeliest name whose first values suit the key."""
    left = dict.fromkeys(names)
    stems = {name: _stems(name) for name in names}
    numeric = {name: _are_numbers([row[at] for row in rows]) for at, name in enumerate(names)}
    found: dict[str, str] = {}
    for key, usual in NAMES.items():
        able = [
            name for name in left if not ((key in NUMBERS and not numeric[name]) or (key in TEXTS and numeric[name]))
        ]
        for word in usual:
            name = next((name for name in able if word in stems[name]), None)
            if name is not None:
                found[key] = name
                del left[name]
                break
    return found


def _are_numbers(values: Sequence[str]) -> bool:
    """Return whether there are non-empty values, and all of them are numbers."""
    filled = [text for text in values if text.strip()]
    return bool(filled) and all(map(_is_number, filled))


def _stems(name: str) -> tuple[str, str]:
    """Return a name in lower case without punctuation, twice: in full, and without a unit at its end."""
    words = re.findall(r"[a-z0-9]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower())
    short = words[:-1] if len(words) > 1 and words[-1] in _WORDS else words
    return "".join(words), "".join(short)


def _written(key: str, name: str, values: Sequence[str]) -> str:
    """Return a column's name, with its unit if it is a time column."""
    if key not in ("submit", "duration", "end"):
        return name
    first = next((text.strip() for text in values if text.strip()), "")
    if _STAMP.fullmatch(first) and key != "duration":
        return f"{name}:{CALENDAR}"
    words = re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower())
    unit = next((_WORDS[word] for word in reversed(words[1:]) if word in _WORDS), "s")
    if unit == "s" and key != "duration" and _is_number(first) and float(first) > MOST_STAMP:
        unit = "ms"
    return name if unit == "s" else f"{name}:{unit}"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
