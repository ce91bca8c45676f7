"""The plugin ``profiled_sizes``: rates by number of GPUs, measured per kind by shrinking one of its jobs (AFS §4.5)."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field

from eunomia import (
    Basis,
    Contract,
    CurvePoints,
    Duration,
    Feature,
    GpuState,
    Locality,
    Menus,
    PluginOptions,
    Probes,
    Seconds,
    Snapshot,
    Stage,
    curve_points,
    hookimpl,
)
from eunomia.contract.contracts import Contracts
from eunomia.contract.snapshot import Measured
from eunomia.units import NONE, Ints, Reals, Rows
from eunomia_plugins.elasticity.curves import (
    faster_sizes,
    one_gpu_rate,
    rates_of,
    sizes_between,
    with_measured,
    with_most_cpus,
)
from eunomia_plugins.elasticity.groups import SharedCurves

Units = Literal["packed", "all"]


class ProfiledSizesOptions(PluginOptions):
    """Options of ``profiled_sizes``."""

    measure: Units = "packed"
    """The sizes that are measured. ``packed``: powers of two below the GPUs of a machine, and multiples of that number;
    rates between them are interpolated. ``all``: every size."""
    iterations: Annotated[int, Field(ge=1)] = 20
    """Number of iterations measured at each size."""
    again: Annotated[Duration, Field(gt=0.0)] = Seconds(30.0)
    """Time between rounds while there are sizes to measure."""


class ProfiledSizes:
    """All sizes between a job's minimum and maximum, with the measured rates of its kind.

    A job of an unknown kind starts within its fair share, which is the cluster's GPUs over the number of jobs. It is
    measured at that size, then at smaller sizes in descending order, without releasing GPUs. Rates are interpolated
    linearly between measured sizes, and proportional to the GPUs beyond them, so that jobs grow to unknown sizes and
    are measured there. Known rates of a kind are not measured again.
    """

    name = "profiled_sizes"
    api = 1
    options_type = ProfiledSizesOptions
    contracts: ClassVar[Contracts] = {
        Stage.ELASTICITY: Contract(
            needs=frozenset({Feature.ONE_GPU_TYPE}),
            gives=frozenset({Feature.RATES, Feature.MANY_SIZES, Feature.RATES_BY_KIND, Feature.PROBES}),
        )
    }

    def __init__(self, options: ProfiledSizesOptions) -> None:
        self.options = options
        self._shared = SharedCurves()

    @hookimpl
    def eunomia_elasticity(self, snapshot: Snapshot) -> Menus:
        """Give each active job the curve of its kind, and request measurements below the sizes of running jobs."""
        shared = self._shared if snapshot.index.kept else SharedCurves()
        menus = shared.menus(snapshot, _points)
        asked = list(_Measuring(snapshot, self.options.measure).asked())
        limited = _within_fair_share(snapshot, menus, {kind for kind, _ in asked})
        return dataclasses.replace(limited, probe=self._probes([setting for _, setting in asked]))

    def _probes(self, asked: "Sequence[Asked]") -> Probes | None:
        if not asked:
            return None
        jobs, gpus = np.array(asked, np.int64).T
        options = self.options
        return Probes(jobs=jobs.astype(np.int32), gpus=gpus, iterations=options.iterations, again=options.again)


# --- curves ----------------------------------------------------------------------------------------------------------


def _points(snapshot: Snapshot, jobs: Rows) -> CurvePoints:
    """Return the points of one curve per given job."""
    known = {job: rates for job in jobs.tolist() if (rates := _rates(snapshot, job))}
    one_gpu = one_gpu_rate(snapshot, jobs, known)
    owner, gpus = sizes_between(snapshot.jobs.least[jobs], snapshot.jobs.most[jobs])
    rate = gpus * one_gpu[owner]
    start, machine = np.searchsorted(owner, np.arange(jobs.size + 1)).tolist(), _machine(snapshot)
    for number, job in enumerate(jobs.tolist()):
        if sizes := rates_by_size(known.get(job, ()), machine):
            own = slice(start[number], start[number + 1])
            rate[own] = rates_between(sizes, gpus[own])
    keep = faster_sizes(owner, np.where(np.isnan(rate), gpus, rate))
    owner, gpus, rate = owner[keep], gpus[keep], rate[keep]
    basis = np.where(np.isnan(rate), int(Basis.ASSUMED), int(Basis.DECLARED)).astype(np.int32)
    curve = np.full(snapshot.jobs.most.size, -1, np.int32)
    curve[jobs] = np.arange(jobs.size)
    return with_measured(curve_points(owner, gpus, rate=rate, basis=basis), snapshot, curve, known)


def _rates(snapshot: Snapshot, job: int) -> tuple[Measured, ...]:
    """Return the known rates of a job on the cluster's GPU type."""
    types = snapshot.cluster.gpu_types
    return tuple(rate for rate in rates_of(snapshot, job) if rate.gpu_type in types)


def rates_by_size(known: Iterable[Measured], machine: int) -> Mapping[int, float]:
    """Return one rate per number of GPUs, ascending: that with the most CPUs, at the closest known locality.

    Rates across machines are used for sizes that fit on no machine, or if there are no others. Rates of 0 are left out:
    they mean that a job cannot run at that setting, and imply nothing about other sizes.

    Args:
        known: the rates of one kind.
        machine: largest number of GPUs of a machine.
    """
    rates = with_most_cpus(rate for rate in known if rate.rate > 0.0)
    near: dict[int, Measured] = {}
    for rate in [rate for rate in rates if rate.locality <= Locality.MACHINE or rate.gpus > machine] or rates:
        if rate.gpus not in near or rate.locality < near[rate.gpus].locality:
            near[rate.gpus] = rate
    return {gpus: near[gpus].rate for gpus in sorted(near)}


def rates_between(known: Mapping[int, float], gpus: Ints) -> Reals:
    """Return the rate at each number of GPUs: linear between known sizes, proportional to the GPUs outside them.

    Args:
        known: iterations per second by number of GPUs, ascending; at least one entry.
        gpus: the numbers of GPUs.
    """
    sizes, rates = np.array(list(known), float), np.array(list(known.values()))
    found: Reals = np.interp(gpus, sizes, rates)
    below, above = gpus < sizes[0], gpus > sizes[-1]
    found[below] = rates[0] * gpus[below] / sizes[0]
    found[above] = rates[-1] * gpus[above] / sizes[-1]
    return found


def _machine(snapshot: Snapshot) -> int:
    """Return the largest number of GPUs of a machine."""
    return int(np.bincount(snapshot.cluster.machine).max(initial=1))


# --- first shares ----------------------------------------------------------------------------------------------------


def _within_fair_share(snapshot: Snapshot, menus: Menus, measuring: set[int]) -> Menus:
    """Remove sizes above the fair share 1/n from the menus of kinds not yet measured down to the smallest size.

    Args:
        snapshot: the current state.
        menus: the menus of all active jobs.
        measuring: kinds with sizes at which a running job should be measured.
    """
    jobs, active, points = snapshot.jobs, snapshot.active, menus.points
    if active.size == 0:
        return menus
    share = int(snapshot.cluster.capacity.sum()) // active.size
    curves, first = np.unique(menus.curve[active], return_index=True)
    limit = np.full(points.start.size, np.iinfo(np.int64).max)
    for curve, job in zip(curves.tolist(), active[first].tolist(), strict=True):
        least = jobs.least.item(job)
        sizes = {rate.gpus for rate in _rates(snapshot, job) if rate.rate > 0.0}
        if not sizes or (jobs.job_kind.item(job) in measuring and min(sizes) > least):
            limit[curve] = max(least, share)
    keep = points.gpus <= limit[points.curve]
    if keep.all():
        return menus
    batch = points.batch_size
    kept = curve_points(
        points.curve[keep],
        points.gpus[keep],
        rate=points.rate[keep],
        gpu_type=points.gpu_type[keep],
        locality=points.locality[keep],
        basis=points.basis[keep],
        batch_size=None if batch is None else batch[keep],
        amounts=(points.cpus[keep], points.memory_gib[keep]),
    )
    return dataclasses.replace(menus, points=kept)


# --- measurements ----------------------------------------------------------------------------------------------------


class Asked(NamedTuple):
    """A size at which a job should be measured."""

    job: int
    gpus: int


class _Measuring:
    """Selects the running jobs that should be measured below their present size."""

    def __init__(self, snapshot: Snapshot, units: Units) -> None:
        self._snapshot, self._units = snapshot, units
        self._machine = _machine(snapshot)
        gpus, held = slice(snapshot.cluster.gpus), snapshot.holdings
        stays = (held.job[gpus] != NONE) & (held.state[gpus] == int(GpuState.HELD))  # a job that moves leaves others
        self._held = np.unique(held.job[gpus][stays], return_counts=True)

    def asked(self) -> Iterator[tuple[int, Asked]]:
        """Yield a kind, one of its jobs and a size at which to measure it; at most one size per job and job per size.

        Jobs with the most GPUs come first, each with the largest size below its own at which no job of the kind was
        measured.
        """
        jobs, known = self._snapshot.jobs, self._known()
        rows, gpus = self._held
        for at in np.lexsort((rows, -gpus)).tolist():
            job, size = int(rows[at]), int(gpus[at])
            seen = known[self._group(job)]
            missing = [unit for unit in self._below(size, jobs.least.item(job)) if unit not in seen]
            if missing:
                seen.add(missing[-1])
                yield jobs.job_kind.item(job), Asked(job, missing[-1])

    def _known(self) -> dict[tuple[float, ...], set[int]]:
        """Return the known sizes and the jobs' present sizes of each group of running jobs that share measurements."""
        known: dict[tuple[float, ...], set[int]] = {}
        for job, size in zip(*(column.tolist() for column in self._held), strict=True):
            group = self._group(job)
            if group not in known:
                known[group] = {rate.gpus for rate in rates_of(self._snapshot, job)}
            known[group].add(size)
        return known

    def _group(self, job: int) -> tuple[float, ...]:
        """Return a job's kind, batch size and row (-1 unless the job was measured and its kind has no known rates)."""
        jobs, snapshot = self._snapshot.jobs, self._snapshot
        kind, batch = jobs.job_kind.item(job), jobs.batch_size.item(job)
        own = NONE if kind in snapshot.profiles or job not in snapshot.measured else job
        return kind, -1.0 if batch != batch else batch, own

    def _below(self, size: int, least: int) -> list[int]:
        """Return the sizes to measure from the smallest up to ``size`` (exclusive), ascending."""
        if self._units == "all":
            return list(range(least, size))
        machine = self._machine
        powers = {1 << bit for bit in range(machine.bit_length()) if 1 << bit < machine}
        units = powers | set(range(machine, size, machine)) | {least}
        return sorted(unit for unit in units if least <= unit < size)
