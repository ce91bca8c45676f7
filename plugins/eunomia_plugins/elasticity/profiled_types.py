"""The plugin ``profiled_types``: rates by GPU type, measured once per kind of job (OEF §4.1)."""

import math
from collections.abc import Iterable, Iterator
from typing import Annotated, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field

from eunomia import (
    NO_VERDICTS,
    Basis,
    Contract,
    CurvePoints,
    Duration,
    Feature,
    KnownRate,
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
from eunomia.contract.snapshot import Measured
from eunomia.units import NONE, Rows

_UNKNOWN = -1.0
"""Placeholder for an unknown batch size."""


class ProfiledTypesOptions(PluginOptions):
    """Options of ``profiled_types``."""

    until_profiled: Literal["wait", "assumed"] = "assumed"
    """What happens while a kind has types without a measured rate. ``wait``: only one of its jobs runs; ``assumed``:
    all may run, and such a type has the declared rate, or else that of the fastest measured type."""
    iterations: Annotated[int, Field(ge=1)] = 20
    """Number of iterations (mini-batches) measured on each type."""
    again: Annotated[Duration, Field(gt=0.0)] = Seconds(30.0)
    """Time between rounds while there are types to measure."""


class Kind(NamedTuple):
    """The key of jobs that share measurements: kind, size, batch size and requested GPU type (-1: any)."""

    kind: int
    gpus: int
    batch_size: float
    """Batch size of the jobs; -1: not known."""
    gpu_type: int


class ProfiledTypes:
    """Every job runs at its largest size or not at all, with the measured rates of its kind by GPU type.

    A kind is measured with one of its jobs, which runs a few mini-batches on each type in turn. Rates that are already
    known, whether imported or measured with an earlier job, are not measured again.
    """

    name = "profiled_types"
    api = 1
    options_type = ProfiledTypesOptions
    contracts: ClassVar[Contracts] = {
        Stage.ELASTICITY: Contract(gives=frozenset({Feature.RATES, Feature.RATES_BY_KIND, Feature.PROBES}))
    }

    def __init__(self, options: ProfiledTypesOptions) -> None:
        self.options = options

    @hookimpl
    def eunomia_elasticity(self, snapshot: Snapshot) -> Menus:
        """Give the jobs of a kind one curve, and request measurements on the types that lack one."""
        kinds = _Kinds(snapshot)
        curve = np.full(snapshot.jobs.most.size, -1, np.int32)
        waits: list[int] = []
        asked: list[tuple[int, int, int]] = []
        for number, (kind, jobs) in enumerate(kinds.jobs.items()):
            curve[jobs] = number
            first = kinds.first(jobs)
            missing = [gpu_type for gpu_type in kinds.missing(kind) if gpu_type != kinds.on.get(first)]
            if missing:
                asked.append((first, kind.gpus, missing[0]))
                waits += [job for job in jobs.tolist() if job != first]
        if self.options.until_profiled == "assumed":
            waits = []
        curve[waits] = -1
        return Menus(
            curve=curve,
            points=kinds.points(),
            probe=self._probes(asked),
            verdicts=turned_down(np.array(waits, np.int32), Reason.NOT_PROFILED) if waits else NO_VERDICTS,
        )

    def _probes(self, asked: list[tuple[int, int, int]]) -> Probes | None:
        if not asked:
            return None
        jobs, gpus, types = np.array(sorted(asked), np.int64).T
        return Probes(
            jobs=jobs.astype(np.int32),
            gpus=gpus,
            gpu_type=types.astype(np.int32),
            iterations=self.options.iterations,
            again=self.options.again,
        )


class _Kinds:
    """The active jobs by kind, and the rates of each kind.

    Attributes:
        jobs: job rows of each kind, sorted by kind.
        on: GPU type of each job that has GPUs.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        jobs, rows, cluster = snapshot.jobs, snapshot.active, snapshot.cluster
        batch = np.nan_to_num(jobs.batch_size[rows], nan=_UNKNOWN)
        keys = np.column_stack([jobs.job_kind[rows], jobs.most[rows], batch, jobs.gpu_type[rows]])
        found, owner = np.unique(keys, axis=0, return_inverse=True)
        order = np.argsort(owner.ravel(), kind="stable")
        parts = np.split(rows[order], np.cumsum(np.bincount(owner.ravel(), minlength=len(found)))[:-1])
        made = [Kind(int(kind), int(gpus), size, int(wanted)) for kind, gpus, size, wanted in found.tolist()]
        self.jobs: dict[Kind, Rows] = dict(zip(made, parts, strict=True)) if rows.size else {}
        held = snapshot.holdings.job[: cluster.gpus]
        running, first = np.unique(held, return_index=True)
        self.on = dict(zip(running.tolist(), cluster.gpu_type[first].tolist(), strict=True))
        self._of_type: list[int] = cluster.capacity.tolist()
        self._rates = {kind: self._known(kind, rows) for kind, rows in self.jobs.items()}

    def first(self, jobs: Rows) -> int:
        """Return the job with which a kind is measured: the first to arrive among running jobs, else among all."""
        rows: list[int] = jobs.tolist()
        arrived = self._snapshot.jobs.arrived
        return min([job for job in rows if job in self.on] or rows, key=lambda job: (float(arrived[job]), job))

    def missing(self, kind: Kind) -> list[int]:
        """Return the GPU types that jobs of the kind may use and for which no rate is known."""
        return [gpu_type for gpu_type in self._types(kind) if gpu_type not in self._rates[kind]]

    def points(self) -> CurvePoints:
        """Return one curve per kind, with a point for each type that its jobs may use."""
        rows = [(number, *point) for number, kind in enumerate(self.jobs) for point in self._points(kind)]
        curve, gpus, gpu_type, rate, basis = np.array(rows, float).reshape(-1, 5).T
        return curve_points(
            curve.astype(np.int32),
            gpus.astype(np.int64),
            rate=rate,
            gpu_type=gpu_type.astype(np.int32),
            basis=basis.astype(np.int32),
        )

    def _types(self, kind: Kind) -> list[int]:
        wanted = range(len(self._of_type)) if kind.gpu_type == NONE else (kind.gpu_type,)
        return [gpu_type for gpu_type in wanted if self._of_type[gpu_type] >= kind.gpus]

    def _points(self, kind: Kind) -> Iterator[tuple[int, int, float, int]]:
        """Yield GPUs, type, rate and basis of each point; a type without a measured rate gets the assumed rate."""
        rates = self._rates[kind]
        seconds = float(self._snapshot.jobs.seconds_per_iteration[self.jobs[kind][0]])
        declared = kind.gpus / seconds if seconds > 0.0 else math.nan
        assumed, how = (
            (declared, Basis.DECLARED)
            if declared == declared
            else (max(rates.values(), default=math.nan), Basis.ASSUMED)
        )
        for gpu_type in self._types(kind) or [NONE]:
            rate, basis = (rates[gpu_type], Basis.MEASURED) if gpu_type in rates else (assumed, how)
            yield kind.gpus, gpu_type, rate, int(basis)

    def _known(self, kind: Kind, jobs: Rows) -> dict[int, float]:
        """Return, by GPU type, the known rate of the kind (else of its jobs) at its size and the closest locality."""
        snapshot = self._snapshot
        known: Iterable[KnownRate | Measured] = snapshot.profiles.get(kind.kind, ())
        if kind.kind not in snapshot.profiles and snapshot.measured:
            known = [rate for job in jobs.tolist() for rate in snapshot.measured.get(job, ())]
        types = {name: number for number, name in enumerate(snapshot.cluster.gpu_types)}
        found: dict[int, float] = {}
        for rate in sorted(known, key=lambda rate: -int(rate.locality)):
            same = rate.batch_size != rate.batch_size or kind.batch_size in (_UNKNOWN, rate.batch_size)
            if rate.gpus == kind.gpus and same and rate.gpu_type in types:
                found[types[rate.gpu_type]] = rate.rate
        return found
