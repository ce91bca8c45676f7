"""Alibaba's trace of 2023 (openb): pods with fractions of GPUs, CPUs, memory and a GPU type.

Source: ``cluster-trace-gpu-v2023`` of ``alibaba/clusterdata`` (Weng et al., FGD, ATC'23). The trace's node list can be
read as a cluster: see ``eunomia_testbed.spec.machine_lists``.
"""

from typing import ClassVar, Final

import numpy as np

from eunomia.units import Ints, Reals
from eunomia_testbed.traces.building import Jobs, build
from eunomia_testbed.traces.options import ReadOptions
from eunomia_testbed.traces.rows import MOST_SECONDS, Rows
from eunomia_testbed.traces.source import TraceSource
from eunomia_testbed.traces.tables import read_table, resembles
from eunomia_testbed.workload import Workload

COLUMNS: Final = (
    *("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec"),
    *("pod_phase", "creation_time", "deletion_time", "scheduled_time"),
)


class OpenbReader:
    """A reader of openb: a pod becomes a job that arrives at its creation and runs as long; there are no users."""

    format: ClassVar[str] = "openb"

    def matches(self, name: str, head: str) -> bool:
        """Return whether the header has at least half of openb's columns."""
        return resembles(head, COLUMNS)

    def read(self, source: TraceSource, options: ReadOptions) -> Workload:
        """Read the jobs of an openb trace; errors and options are those of ``TraceReader.read``."""
        rows = Rows.of(read_table(source, required=COLUMNS, format_name=self.format))
        ids, gpus = rows.ids("name"), rows.gpus("num_gpu")
        cpus = rows.numbers("cpu_milli", least=0.0) / 1000.0
        memory = rows.numbers("memory_mib", least=0.0) / 1024.0
        arrivals, ran = rows.arrivals("creation_time"), _ran(rows)
        count = np.maximum(gpus, 1)
        jobs = Jobs(
            ids=ids,
            arrival_seconds=arrivals,
            gpus=gpus,
            iterations=ran,
            seconds_per_iteration=np.ones(rows.size),
            gpu_type=_types(rows),
            cpus_per_gpu=cpus / count,
            memory_gib_per_gpu=memory / count,
            gpu_share=_shares(rows, gpus),
        )
        return build(rows, jobs, options, source="openb", absolute=True)


def _ran(rows: Rows) -> Reals:
    """Return the run time of each pod; a pod that was never scheduled is dropped."""
    started = rows.numbers("scheduled_time", kind="a number of seconds: a pod that never ran has no work", least=0.0)
    ended = rows.numbers("deletion_time", kind="a number of seconds", least=0.0)
    ran = ended - started
    rows.bounds("deletion_time - scheduled_time", ran, kind="a number of seconds", above=0.0, most=MOST_SECONDS)
    cut = int(np.sum(rows.good & (rows.raw("pod_phase") == "Running").to_numpy()))
    if cut:
        rows.note(f"{cut} pods were running when they were last seen: their work ends there")
    return ran


def _shares(rows: Rows, gpus: Ints) -> Reals:
    milli = rows.numbers("gpu_milli", above=0.0, most=1000.0)
    parts = int(np.sum(rows.good & (milli < 1000.0)))
    if parts:
        rows.note(f"{parts} pods ask for a part of a GPU: gpu_share says which part; each is a gang of one")
    return np.where(gpus == 1, milli / 1000.0, 1.0)


def _types(rows: Rows) -> list[str | None]:
    wanted = rows.text("gpu_spec", otherwise="")
    several = int(np.sum(rows.good & np.array(["|" in text for text in wanted])))
    if several:
        rows.note(f"{several} pods accept several GPU types: read as any type")
    return [None if not text or "|" in text or text == "nan" else text for text in wanted]
