"""The plugin ``throughput``: sizes that increase throughput, by declared rates, a scaling law and measured rates."""

import dataclasses
from typing import Annotated

import numpy as np
from pydantic import Field

from eunomia import (
    Basis,
    Contract,
    CurvePoints,
    Duration,
    Feature,
    Locality,
    Menus,
    PluginOptions,
    Seconds,
    Share,
    Snapshot,
    Stage,
    curve_points,
    hookimpl,
)
from eunomia.contract.contracts import Contracts
from eunomia.contract.snapshot import Measured
from eunomia.units import Ints, Reals, Rows
from eunomia_plugins.elasticity.asking import sizes_to_probe
from eunomia_plugins.elasticity.curves import (
    Known,
    faster_sizes,
    kinds_of_curves,
    known_rates,
    one_gpu_rate,
    rates_of,
    sizes_between,
    with_measured,
    with_most_cpus,
)
from eunomia_plugins.elasticity.groups import SharedCurves


class ThroughputOptions(PluginOptions):
    """Options of ``throughput``."""

    contention: Share = 0.03
    """σ of the scalability law: the fraction of an iteration that does not scale with GPUs (Amdahl's law)."""
    coherency: Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)] = 0.0005
    """κ of the scalability law: the cost per pair of GPUs; if above 0, speed decreases beyond some size."""
    least_gain: Share = 0.0
    """Minimum relative gain: a size is on the menu only if it is this fraction faster than every smaller one."""
    probe: bool = False
    """Whether running jobs are measured at their smallest and largest size and the powers of two between, one size at a
    time, if GPUs are free; each probe costs two restarts."""
    probe_iterations: Annotated[int, Field(ge=1)] = 20
    """Number of iterations measured at a size."""
    probe_every: Annotated[Duration, Field(gt=0.0)] = Seconds(30.0)
    """Time between rounds while there are sizes to measure."""


class Throughput:
    """Rates by the universal scalability law (Gunther, 2007): speedup n / (1 + σ (n - 1) + κ n (n - 1)) on n GPUs.

    Measurements take precedence: the curve is scaled to pass through the nearest measured size. Jobs of a kind share
    their measured and known rates; a job without a kind has only its own. Sizes at which a job would be no faster are
    left out, except its smallest.
    """

    name = "throughput"
    api = 1
    options_type = ThroughputOptions

    def __init__(self, options: ThroughputOptions) -> None:
        self.options = options
        self._shared = SharedCurves()
        gives = {Feature.RATES, Feature.MANY_SIZES, Feature.CPU_POINTS, Feature.RATES_BY_KIND}
        self.contracts: Contracts = {
            Stage.ELASTICITY: Contract(gives=frozenset(gives | ({Feature.PROBES} if options.probe else set())))
        }

    @hookimpl
    def eunomia_elasticity(self, snapshot: Snapshot) -> Menus:
        """Give each active job the curve of its group; a measured job without a kind has its own curve."""
        plain = not snapshot.index.kept
        menus = self._each(snapshot) if plain else self._shared.menus(snapshot, self._shared_points)
        asked = sizes_to_probe(snapshot) if self.options.probe else None
        if asked is None:
            return menus
        probe = dataclasses.replace(asked, iterations=self.options.probe_iterations, again=self.options.probe_every)
        return dataclasses.replace(menus, probe=probe)

    def _shared_points(self, snapshot: Snapshot, jobs: Rows) -> CurvePoints:
        """Return the points of one curve per given job, from its known rates."""
        known = {job: rates for job in jobs.tolist() if (rates := rates_of(snapshot, job))}
        one_gpu = one_gpu_rate(snapshot, jobs, known)
        owner, gpus = sizes_between(snapshot.jobs.least[jobs], snapshot.jobs.most[jobs])
        curve = np.full(snapshot.jobs.most.size, -1, np.int32)
        curve[jobs] = np.arange(jobs.size)
        return self._points(snapshot, curve, (owner, gpus, one_gpu[owner]), known)

    def _points(self, snapshot: Snapshot, curve: Rows, sizes: tuple[Rows, Ints, Reals], known: Known) -> CurvePoints:
        """Return the points of curves from sizes, the rate of one GPU, and the known rates of some jobs."""
        owner, gpus, one_gpu = sizes
        speed = self._speed(gpus)
        rate = one_gpu * speed
        machine = int(np.bincount(snapshot.cluster.machine).max(initial=0))
        for job in known:
            if job < curve.size and curve[job] >= 0:
                own = owner == curve[job]
                rate[own] = self._through_measured(known[job], gpus[own], rate[own], machine)
        keep = faster_sizes(owner, np.where(np.isnan(rate), speed, rate), self.options.least_gain)
        points = _points(owner[keep], gpus[keep], rate[keep])
        return with_measured(points, snapshot, curve, known) if known else points

    def _each(self, snapshot: Snapshot) -> Menus:
        """Build the menus from scratch; a job with known rates has its own curve."""
        jobs, active = snapshot.jobs, snapshot.active
        known = known_rates(snapshot)
        one_gpu = one_gpu_rate(snapshot, active, known)
        curve, first = kinds_of_curves(snapshot, one_gpu, known)
        owner, gpus = sizes_between(jobs.least[active[first]], jobs.most[active[first]])
        return Menus(curve=curve, points=self._points(snapshot, curve, (owner, gpus, one_gpu[first][owner]), known))

    def _speed(self, gpus: Ints) -> Reals:
        """Return the speedup over one GPU by the scalability law."""
        n = gpus.astype(float)
        speed: Reals = n / (1.0 + self.options.contention * (n - 1.0) + self.options.coherency * n * (n - 1.0))
        return speed

    def _through_measured(self, measured: tuple[Measured, ...], gpus: Ints, declared: Reals, machine: int) -> Reals:
        """Scale the law's rates to the nearest measured size, without rates across machines where avoidable."""
        points = [point for point in with_most_cpus(measured) if point.rate > 0.0]
        near = [point for point in points if point.locality <= Locality.MACHINE or point.gpus > machine] or points
        near = sorted(near, key=lambda point: -point.known)
        if not near:
            return declared
        at = np.array([point.gpus for point in near])
        rates = np.array([point.rate for point in near])
        nearest = np.abs(np.log(gpus[:, None] / at)).argmin(axis=1)
        through: Reals = rates[nearest] * self._speed(gpus) / self._speed(at)[nearest]
        return through


def _points(owner: Rows, gpus: Ints, rate: Reals) -> CurvePoints:
    basis = np.where(np.isnan(rate), int(Basis.ASSUMED), int(Basis.DECLARED)).astype(np.int32)
    return curve_points(owner, gpus, rate=rate, basis=basis)
