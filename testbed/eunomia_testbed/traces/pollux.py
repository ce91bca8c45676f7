"""The traces of Pollux and Sia: Philly's jobs with status "passed" (``philly.csv``), and workloads of six applications.

Source: the public repositories ``petuum/adaptdl`` (branch ``osdi21-artifact``) and ``siasosp23/artifacts``.
"""

import math
from collections.abc import Mapping
from typing import ClassVar, Final

import numpy as np

from eunomia.units import Reals
from eunomia_testbed.traces.building import Jobs, build
from eunomia_testbed.traces.options import ReadOptions
from eunomia_testbed.traces.rows import MOST_STAMP, Rows
from eunomia_testbed.traces.source import TraceSource
from eunomia_testbed.traces.tables import read_table, resembles
from eunomia_testbed.workload import Workload

PHILLY: Final = ("timestamp", "duration", "num_gpus", "gpu_time", "cluster")
WORKLOAD: Final = ("name", "time", "application", "num_replicas", "batch_size")

EPOCHS: Final[Mapping[str, tuple[int, int]]] = {
    "bert": (2, 88_644),
    "cifar10": (100, 50_000),
    "deepspeech2": (80, 7_133),
    "imagenet": (90, 1_281_167),
    "ncf": (10, 4_970_845),
    "yolov3": (50, 16_551),
}
"""Epochs and samples per epoch of each application. Epochs are ``max_epochs`` in their simulator's ``applications.py``;
samples are the iterations of an epoch in ``validation-<batch>.csv``, times the batch size."""


class PolluxPhillyReader:
    """A reader of unordered rows without ids: jobs are named after their lines; virtual clusters serve as users."""

    format: ClassVar[str] = "pollux_philly"

    def matches(self, name: str, head: str) -> bool:
        """Return whether the header has at least half of the columns of Pollux's ``philly.csv``."""
        return resembles(head, PHILLY)

    def read(self, source: TraceSource, options: ReadOptions) -> Workload:
        """Read the jobs of ``philly.csv``; errors and options are those of ``TraceReader.read``."""
        rows = Rows.of(read_table(source, required=PHILLY, format_name=self.format))
        arrivals = rows.stamps("timestamp", zone="America/Los_Angeles")
        rows.bounds(
            *("timestamp", arrivals, rows.raw("timestamp").__getitem__),
            kind='a moment such as "2017-10-09 07:01:55"',
            most=MOST_STAMP,
        )
        rows.one_unit("timestamp", arrivals)
        gpus, durations = rows.gpus("num_gpus"), rows.durations("duration")
        _same_product(rows, durations, gpus)
        jobs = Jobs(
            ids=[f"line{line}" for line in rows.lines.tolist()],
            arrival_seconds=arrivals,
            gpus=gpus,
            iterations=durations,
            seconds_per_iteration=np.ones(rows.size),
            users=rows.text("cluster", otherwise="unknown"),
        )
        return build(rows, jobs, options, source="Pollux' Philly CSV", absolute=True)


class PolluxReader:
    """A reader of six applications' jobs: the work is their epochs, and the performance model determines the speed."""

    format: ClassVar[str] = "pollux"

    def matches(self, name: str, head: str) -> bool:
        """Return whether the header has at least half of the columns of a Pollux workload."""
        return resembles(head, WORKLOAD)

    def read(self, source: TraceSource, options: ReadOptions) -> Workload:
        """Read the jobs of a Pollux workload; errors and options are those of ``TraceReader.read``."""
        rows = Rows.of(read_table(source, required=WORKLOAD, format_name=self.format))
        ids, applications = rows.ids("name"), rows.text("application")
        unknown = np.array([name not in EPOCHS for name in applications])
        rows.refuse(unknown, f"application must be one of {', '.join(EPOCHS)}", applications.__getitem__)
        batch = rows.numbers("batch_size", least=1.0, most=1e9)
        jobs = Jobs(
            ids=ids,
            arrival_seconds=rows.arrivals("time"),
            gpus=rows.gpus("num_replicas"),
            iterations=_iterations(applications, np.where(rows.good, batch, 1.0)),
            models=applications,
            batch_size=batch,
        )
        return build(rows, jobs, options, source="Pollux")


def _iterations(applications: list[str], batch: Reals) -> Reals:
    def steps(name: str, size: float) -> float:
        epochs, samples = EPOCHS.get(name, (0, 0))
        return float(epochs * math.ceil(samples / size))

    return np.array([steps(name, size) for name, size in zip(applications, batch.tolist(), strict=True)])


def _same_product(rows: Rows, durations: Reals, gpus: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> None:
    """Drop rows whose ``gpu_time`` is not GPUs times duration, since one of the three has another unit."""
    given = rows.numbers("gpu_time", kind="a number of GPU-seconds", least=0.0)
    off = ~np.isclose(given, durations * gpus, rtol=1e-3, atol=1.0)
    rows.refuse(off, "gpu_time must be duration times num_gpus", rows.raw("gpu_time").__getitem__)
