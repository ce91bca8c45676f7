"""Microsoft's Philly trace as one CSV: one row per job, times in seconds since the first arrival.

Source: Jeon et al., "Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads", ATC'19; the
columns are those of the reconstruction in ``shared/data/philly``.
"""

from typing import ClassVar

import numpy as np

from eunomia_testbed.traces.building import Jobs, build
from eunomia_testbed.traces.options import ReadOptions
from eunomia_testbed.traces.rows import Rows
from eunomia_testbed.traces.source import TraceSource
from eunomia_testbed.traces.tables import read_table, resembles
from eunomia_testbed.workload import Workload

COLUMNS = ("job_id", "submit_s", "duration_s", "num_gpus", "vc")


class PhillyReader:
    """A reader of Philly: one iteration per second at the requested GPUs; the virtual cluster serves as the user."""

    format: ClassVar[str] = "philly"

    def matches(self, name: str, head: str) -> bool:
        """Return whether the header has at least half of the trace's columns."""
        return resembles(head, COLUMNS)

    def read(self, source: TraceSource, options: ReadOptions) -> Workload:
        """Read the jobs of a Philly trace in CSV; errors and options are those of ``TraceReader.read``."""
        needed = (*COLUMNS, "afs_model") if options.drawn_models else COLUMNS
        rows = Rows.of(read_table(source, required=needed, format_name=self.format))
        jobs = Jobs(
            ids=rows.ids("job_id"),
            arrival_seconds=rows.arrivals("submit_s"),
            gpus=rows.gpus("num_gpus"),
            iterations=rows.durations("duration_s"),
            seconds_per_iteration=np.ones(rows.size),
            users=rows.text("vc"),
            models=list(rows.text("afs_model")) if options.drawn_models else None,
        )
        return build(rows, jobs, options, source="Philly CSV")
