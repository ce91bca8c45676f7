"""SenseTime's Helios trace, ``cluster_log.csv``: Slurm jobs with users, virtual clusters, CPUs and GPUs.

Source: ``S-Lab-System-Group/HeliosData`` (Hu et al., SC'21).
"""

from typing import ClassVar, Final

import numpy as np

from eunomia_testbed.traces.building import Jobs, build
from eunomia_testbed.traces.options import ReadOptions
from eunomia_testbed.traces.rows import MOST_STAMP, Rows
from eunomia_testbed.traces.source import TraceSource
from eunomia_testbed.traces.tables import read_table, resembles
from eunomia_testbed.workload import Workload

COLUMNS: Final = ("job_id", "user", "vc", "gpu_num", "cpu_num", "submit_time", "duration")


class HeliosReader:
    """A reader of Helios: one iteration per second at the requested GPUs; jobs without GPUs are dropped."""

    format: ClassVar[str] = "helios"

    def matches(self, name: str, head: str) -> bool:
        """Return whether the header has at least half of Helios's columns."""
        return resembles(head, COLUMNS)

    def read(self, source: TraceSource, options: ReadOptions) -> Workload:
        """Read the jobs of a Helios trace; errors and options are those of ``TraceReader.read``."""
        rows = Rows.of(read_table(source, required=COLUMNS, format_name=self.format))
        arrivals = rows.stamps("submit_time")
        rows.bounds(
            *("submit_time", arrivals, rows.raw("submit_time").__getitem__),
            kind='a moment such as "2020-06-09 18:41:01"',
            most=MOST_STAMP,
        )
        rows.one_unit("submit_time", arrivals)
        gpus = rows.gpus("gpu_num")
        jobs = Jobs(
            ids=rows.ids("job_id"),
            arrival_seconds=arrivals,
            gpus=gpus,
            iterations=rows.durations("duration"),
            seconds_per_iteration=np.ones(rows.size),
            users=rows.text("vc" if options.by_group else "user", otherwise="unknown"),
            cpus_per_gpu=rows.numbers("cpu_num", least=0.0) / np.maximum(gpus, 1),
        )
        return build(rows, jobs, options, source="Helios", absolute=True)
