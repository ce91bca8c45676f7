"""Microsoft's Philly trace as published: ``cluster_job_log``, a JSON file with every attempt of each job.

Source: ``msr-fiddle/philly-traces`` (Jeon et al., ATC'19). Times are in US Pacific Time.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, ClassVar, Final

import numpy as np
import polars as pl

from eunomia.errors import InputError
from eunomia.model.cluster import MAX_GPUS
from eunomia.units import Ints, Reals
from eunomia_testbed.traces.building import Jobs, build
from eunomia_testbed.traces.options import ReadOptions
from eunomia_testbed.traces.rows import MOST_SECONDS, Rows, seconds_of
from eunomia_testbed.traces.source import TraceSource
from eunomia_testbed.workload import Workload

ZONE: Final = "America/Los_Angeles"
_JOBID: Final = re.compile(r'"jobid"\s*:')


class PhillyJsonReader:
    """A reader of Philly's JSON: the work is the run time of all attempts, the gang the most GPUs of any attempt."""

    format: ClassVar[str] = "philly_json"

    def matches(self, name: str, head: str) -> bool:
        """Return whether the trace is JSON that contains the keys ``attempts`` and ``jobid``."""
        return head.lstrip().startswith(("[", "{")) and '"attempts"' in head and '"jobid"' in head

    def read(self, source: TraceSource, options: ReadOptions) -> Workload:
        """Read the jobs of a Philly trace in JSON; errors and options are those of ``TraceReader.read``."""
        records = _records(source)
        texts = {key: [_text(record.get(key)) for record in records] for key in ("jobid", "submitted_time")}
        owners = [_text(record.get("vc" if options.by_group else "user")) or "unknown" for record in records]
        rows = Rows(
            source.name, _lines(source, len(records)), pl.DataFrame(texts, schema=dict.fromkeys(texts, pl.String))
        )
        ids, arrivals = rows.ids("jobid"), rows.stamps("submitted_time", zone=ZONE)
        kind = 'a moment such as "2017-10-07 01:11:39"'
        rows.bounds("submitted_time", arrivals, rows.raw("submitted_time").__getitem__, kind=kind)
        rows.one_unit("submitted_time", arrivals)
        ran, gpus = _attempts(records)
        rule = "attempts must hold one with a start_time and an end_time"
        rows.refuse(~np.isfinite(ran), rule, lambda row: f"{len(_list(records[row].get('attempts')))} attempts")
        rows.bounds("run time of all attempts", ran, kind="a number of seconds", above=0.0, most=MOST_SECONDS)
        rows.bounds("GPUs of an attempt", gpus.astype(float), least=1.0, most=float(MAX_GPUS))
        jobs = Jobs(
            ids=ids,
            arrival_seconds=arrivals,
            gpus=gpus,
            iterations=ran,
            seconds_per_iteration=np.ones(rows.size),
            users=owners,
        )
        return build(rows, jobs, options, source="Philly JSON", absolute=True)


def _records(source: TraceSource) -> list[Mapping[str, Any]]:
    try:
        tree = json.loads(source.text)
    except json.JSONDecodeError as error:
        place = f"{source.name}, line {error.lineno}"
        raise InputError("cluster_job_log must be JSON", value=error.msg, place=place) from error
    except RecursionError as error:
        rule = "cluster_job_log must be a list of jobs"
        raise InputError(rule, value="thousands in each other", place=source.name) from error
    if not isinstance(tree, list) or not all(isinstance(record, dict) for record in tree):
        raise InputError("cluster_job_log must be a list of jobs", value=f"a {type(tree).__name__}", place=source.name)
    return tree


def _lines(source: TraceSource, count: int) -> Ints:
    """Return the line in which each job's id occurs, or the job's number in the list if lines are unknown."""
    text = source.text
    found = [match.start() for match in _JOBID.finditer(text)]
    if len(found) != count:
        return np.arange(1, count + 1, dtype=np.int64)
    lines, line, last = [], 1, 0
    for position in found:
        line += text.count("\n", last, position)
        last = position
        lines.append(line)
    return np.array(lines, dtype=np.int64)


def _attempts(records: list[Mapping[str, Any]]) -> tuple[Reals, Ints]:
    """Return for each job the total seconds of its attempts (NaN: unknown), and the most GPUs of any attempt."""
    owner: list[int] = []
    moments: tuple[list[str], list[str]] = ([], [])
    gpus = np.zeros(len(records), dtype=np.int64)
    for row, record in enumerate(records):
        for attempt in _list(record.get("attempts")):
            if not isinstance(attempt, dict):
                continue
            owner.append(row)
            moments[0].append(_text(attempt.get("start_time")))
            moments[1].append(_text(attempt.get("end_time")))
            gpus[row] = max(gpus[row], _gpus(attempt))
    start, end = (seconds_of(pl.Series(texts, dtype=pl.String), ZONE) for texts in moments)
    whole = np.isfinite(end - start)
    rows = np.array(owner, dtype=np.int64)[whole]
    ran = np.bincount(rows, weights=(end - start)[whole], minlength=len(records))
    known = np.bincount(rows, minlength=len(records)) > 0
    return np.where(known, ran, np.nan), gpus


def _gpus(attempt: Mapping[str, Any]) -> int:
    return sum(len(_list(part.get("gpus"))) for part in _list(attempt.get("detail")) if isinstance(part, dict))


def _list(given: object) -> list[Any]:
    return given if isinstance(given, list) else []


def _text(given: object) -> str:
    return given if isinstance(given, str) else ""
