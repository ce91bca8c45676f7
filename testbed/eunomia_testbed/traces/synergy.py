"""Synergy's static traces, without a header: id, model, arrival in seconds, iterations and GPUs.

Source: the public repository ``msr-fiddle/synergy`` (OSDI'22). The fourth column is in iterations, not seconds.
"""

import re
from typing import ClassVar, Final

from eunomia_testbed.traces.building import Jobs, build
from eunomia_testbed.traces.options import ReadOptions
from eunomia_testbed.traces.rows import MOST_ITERATIONS, Rows
from eunomia_testbed.traces.source import TraceSource
from eunomia_testbed.traces.tables import read_table
from eunomia_testbed.workload import Workload

COLUMNS: Final = ("id", "model", "arrival", "iterations", "num_gpus")
_LINE: Final = re.compile(r"\d+,[A-Za-z][\w.-]*,-?[\d.]+(?:[eE][+-]?\d+)?,-?\d+(?:\.\d+)?,-?\d+\s*")


class SynergyReader:
    """A reader of Synergy's traces; the performance model determines times, by the model names in ``models.csv``."""

    format: ClassVar[str] = "synergy"

    def matches(self, name: str, head: str) -> bool:
        """Return whether the first line has the form of a job in Synergy's traces."""
        return _LINE.fullmatch(head.split("\n", 1)[0]) is not None

    def read(self, source: TraceSource, options: ReadOptions) -> Workload:
        """Read the jobs of a Synergy trace; errors and options are those of ``TraceReader.read``."""
        rows = Rows.of(read_table(source, required=COLUMNS, names=COLUMNS, format_name=self.format))
        jobs = Jobs(
            ids=rows.ids("id"),
            arrival_seconds=rows.arrivals("arrival"),
            gpus=rows.gpus("num_gpus"),
            iterations=rows.numbers("iterations", above=0.0, most=MOST_ITERATIONS),
            models=rows.text("model"),
        )
        return build(rows, jobs, options, source="Synergy")
