"""The Standard Workload Format: 18 numbers per line, comments after ``;``, -1 for unknown values.

Source: Feitelson's Parallel Workloads Archive, version 2.2 of the format. Processors are read as GPUs.
"""

from typing import ClassVar, Final

import numpy as np

from eunomia_testbed.traces.building import Jobs, build
from eunomia_testbed.traces.options import ReadOptions
from eunomia_testbed.traces.rows import Rows
from eunomia_testbed.traces.source import TraceSource
from eunomia_testbed.traces.tables import TextTable, brief
from eunomia_testbed.workload import Dropped, Workload

FIELDS: Final = (
    *("job_number", "submit_time", "wait_time", "run_time", "allocated_processors", "average_cpu_time"),
    *("used_memory", "requested_processors", "requested_time", "requested_memory", "status", "user_id", "group_id"),
    *("executable", "queue", "partition", "preceding_job", "think_time"),
)


class SwfReader:
    """A reader of SWF: the gang is the number of allocated processors, or of requested ones if that is -1.

    The work is the run time: one iteration per second.
    """

    format: ClassVar[str] = "swf"

    def matches(self, name: str, head: str) -> bool:
        """Return whether the first line that is not a comment has 18 numbers."""
        lines = head.splitlines()
        first = next((line.split() for line in lines if line.strip() and not line.lstrip().startswith(";")), [])
        return len(first) == len(FIELDS) and all(_is_number(field) for field in first)

    def read(self, source: TraceSource, options: ReadOptions) -> Workload:
        """Read the jobs of an SWF trace; errors and options are those of ``TraceReader.read``."""
        import polars as pl

        rows = Rows.of(_table(source))
        given = rows.raw("allocated_processors")
        if rows.frame is not None:
            asked = pl.when(given == "-1").then(pl.col("requested_processors")).otherwise(given)
            rows.frame = rows.frame.with_columns(processors=asked)
        jobs = Jobs(
            ids=rows.ids("job_number"),
            arrival_seconds=rows.arrivals("submit_time"),
            gpus=rows.gpus("processors"),
            iterations=rows.durations("run_time"),
            seconds_per_iteration=np.ones(rows.size),
            users=[f"{'group' if options.by_group else 'user'}{number}" for number in _owners(rows, options)],
        )
        return build(rows, jobs, options, source="Standard Workload Format", ordered="submit_time")


def _owners(rows: Rows, options: ReadOptions) -> list[str]:
    return rows.text("group_id" if options.by_group else "user_id")


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _table(source: TraceSource) -> TextTable:
    import polars as pl

    fields: list[list[str]] = []
    lines: list[int] = []
    dropped: list[Dropped] = []
    for line, content in enumerate(source.text.split("\n"), 1):
        parts = content.split(";", 1)[0].split()
        if len(parts) == len(FIELDS):
            fields.append(parts)
            lines.append(line)
        elif parts:
            rule = f"a row must have {len(FIELDS)} fields"
            dropped.append(Dropped(file=source.name, line=line, rule=rule, value=brief(len(parts))))
    frame = pl.DataFrame(fields, schema=dict.fromkeys(FIELDS, pl.String), orient="row")
    return TextTable(file=source.name, frame=frame, lines=np.array(lines, dtype=np.int64), dropped=tuple(dropped))
