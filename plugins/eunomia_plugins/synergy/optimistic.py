"""The elasticity ``optimistic``: sensitivity to CPUs from few measurements, to memory by computation (Synergy §3.1)."""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field, field_validator

from eunomia import (
    NO_VERDICTS,
    Contract,
    CurvePoints,
    Duration,
    Feature,
    Menus,
    PluginOptions,
    Probes,
    Reason,
    Seconds,
    Snapshot,
    Stage,
    curve_points,
    hookimpl,
    turned_down,
)
from eunomia.contract.contracts import Contracts
from eunomia_plugins.synergy.profiling import Asked, MatrixPoint, Profiling, Storage
from eunomia_plugins.synergy.storage import Bandwidth, DataSet, Memory

LEAST_STEP = 1e9 / 2**30
"""Minimum difference between memory amounts in GiB, which limits the size of a matrix on a large machine."""


class OptimisticOptions(PluginOptions):
    """Options of ``optimistic``."""

    until_profiled: Literal["wait", "assumed"] = "wait"
    """While a kind is measured: only one of its jobs runs (``wait``), or all with proportional shares (``assumed``)."""
    threshold: Annotated[float, Field(gt=0.0, le=1.0, allow_inf_nan=False)] = 0.1
    """The search stops once more CPUs speed a job up by at most this fraction."""
    iterations: Annotated[int, Field(ge=1)] = 50
    """Number of iterations (mini-batches) measured with each number of CPUs."""
    data_sets: dict[str, DataSet] = Field(default_factory=dict)
    """Data set of each kind of job: ``size``, ``samples`` and ``process``, the memory of the processes of one GPU. For
    a kind without an entry, rates are measured with the proportional memory only."""
    bandwidth: Bandwidth = Field(default="250MB/s", validate_default=True)
    """Read bandwidth of a job from storage, such as ``"250MB/s"``."""
    memory_step: Memory = Field(default="50GB", validate_default=True)
    """Difference between memory amounts in a matrix; at least 1GB."""
    again: Annotated[Duration, Field(gt=0.0)] = Seconds(30.0)
    """Time between rounds while there are numbers of CPUs to measure."""

    @field_validator("memory_step")
    @classmethod
    def _few_amounts(cls, step: float) -> float:
        if step < LEAST_STEP:
            raise ValueError("must be at least 1GB")
        return step


class Optimistic:
    """Whole gangs, with the rates of each kind of job measured by CPUs and computed by memory.

    One job of a kind is measured with full memory, by binary search over CPUs. With less memory, the rate is the
    minimum of the measured rate and the rate at which storage can deliver data that are not cached. Imported rates are
    used unchanged.
    """

    name = "optimistic"
    api = 1
    options_type = OptimisticOptions
    contracts: ClassVar[Contracts] = {
        Stage.ELASTICITY: Contract(
            needs=frozenset({Feature.CPUS_AND_MEMORY}),
            gives=frozenset({Feature.RATES, Feature.CPU_POINTS, Feature.RATES_BY_KIND, Feature.PROBES}),
        )
    }

    def __init__(self, options: OptimisticOptions) -> None:
        self.options = options
        self._storage = Storage(options.data_sets, options.bandwidth, options.memory_step)

    @hookimpl
    def eunomia_elasticity(self, snapshot: Snapshot) -> Menus:
        """Give the jobs of a kind one curve, and request probes at numbers of CPUs not yet measured for the kind."""
        profiling = Profiling(snapshot, self._storage, self.options.threshold)
        curve = np.full(snapshot.jobs.most.size, -1, np.int32)
        curves: list[list[MatrixPoint]] = []
        asked: list[Asked] = []
        waits: list[int] = []
        for kind, jobs in profiling.kinds.items():
            curve[jobs] = len(curves)
            curves.append(profiling.points(kind, jobs))
            first, point = profiling.next_of(kind, jobs)
            asked += profiling.asked(kind, first, point)
            if not point.searched:
                waits += profiling.held_back(jobs, first)
                curve[first] = len(curves)
                curves.append(profiling.room(kind, first, curves[-1]))
        if self.options.until_profiled == "assumed":
            waits = []
        curve[waits] = -1
        return Menus(
            curve=curve,
            points=_columns(curves),
            probe=self._probes(asked),
            verdicts=turned_down(np.array(waits, np.int32), Reason.NOT_PROFILED) if waits else NO_VERDICTS,
        )

    def _probes(self, asked: Sequence[Asked]) -> Probes | None:
        if not asked:
            return None
        jobs, gpus, types, cpus, memory = np.array(asked, float).T
        return Probes(
            jobs=jobs.astype(np.int32),
            gpus=gpus.astype(np.int64),
            gpu_type=types.astype(np.int32),
            cpus=cpus,
            memory_gib=memory,
            iterations=self.options.iterations,
            again=self.options.again,
        )


def _columns(curves: Sequence[Sequence[MatrixPoint]]) -> CurvePoints:
    rows = [(number, *point) for number, points in enumerate(curves) for point in points]
    curve, gpus, gpu_type, cpus, memory, rate, basis = np.array(rows, float).reshape(-1, 7).T
    return curve_points(
        curve.astype(np.int32),
        gpus.astype(np.int64),
        rate=rate,
        gpu_type=gpu_type.astype(np.int32),
        basis=basis.astype(np.int32),
        amounts=(cpus, memory),
    )
