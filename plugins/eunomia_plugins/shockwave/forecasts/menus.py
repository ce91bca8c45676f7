"""The menus of ``shockwave_forecast``: the whole gang of each job, at measured or declared rates."""

import numpy as np

from eunomia import Basis, Menus, Snapshot, curve_points
from eunomia.contract.snapshot import Measured
from eunomia.units import Ints, Reals, Rows
from eunomia_plugins.shockwave.forecasts.rates import KnownRates


def gang_menus(snapshot: Snapshot, known: KnownRates) -> Menus:
    """Return menus with one size per job, its maximum number of GPUs.

    The rate is the one measured at the present batch size; else the declared one; else proportional to the rate at the
    nearest measured size; else derived from a rate of the job or its kind at another batch size. If rates are known by
    GPU type or locality, the menu has a point for each.

    Args:
        snapshot: the current state.
        known: the known rates by batch size.
    """
    jobs, active = snapshot.jobs, snapshot.active
    curve = np.full(jobs.most.size, -1, np.int32)
    curve[active] = np.arange(active.size)
    rate: Reals = jobs.most[active] / jobs.seconds_per_iteration[active]
    basis = np.where(np.isnan(rate), int(Basis.ASSUMED), int(Basis.DECLARED))
    place = {job: at for at, job in enumerate(active.tolist())} if snapshot.measured else {}
    extra: list[tuple[float, ...]] = []
    types = {name: kind for kind, name in enumerate(snapshot.cluster.gpu_types)}
    for job, measured in snapshot.measured.items():
        at = place.get(job)
        if at is None:
            continue
        most = int(jobs.most[job])
        extra += [
            (at, types.get(one.gpu_type, -1), int(one.locality), one.rate) for one in measured if one.gpus == most
        ]
        if np.isnan(rate[at]):
            rate[at] = _scaled(measured, most)
    if snapshot.measured_at_others or snapshot.profiles:
        for at in np.flatnonzero(np.isnan(rate)).tolist():
            rate[at] = known.now(int(active[at]))
    return _with_points(curve, jobs.most[active], rate, basis, extra)


def _scaled(measured: tuple[Measured, ...], gpus: int) -> float:
    """Return the rate at a size, proportional to that at the nearest measured size; NaN if none was measured."""
    runs = [one for one in measured if one.rate > 0.0]
    if not runs:
        return float("nan")
    nearest = min(runs, key=lambda one: (abs(one.gpus - gpus), one.locality))
    return nearest.rate * gpus / nearest.gpus


def _with_points(curve: Rows, most: Ints, rate: Reals, basis: Ints, extra: list[tuple[float, ...]]) -> Menus:
    if not extra:
        points = curve_points(
            np.arange(most.size, dtype=np.int32), most.copy(), rate=rate, basis=basis.astype(np.int32)
        )
        return Menus(curve=curve, points=points, one_size=True)
    own, kind, locality, rates = np.array(extra).T
    owner = np.concatenate([own.astype(np.int64), np.arange(most.size)])
    nothing = np.full(most.size, -1.0)
    # Within a job, measured points come first.
    order = np.argsort(owner, kind="stable")
    points = curve_points(
        owner[order].astype(np.int32),
        most[owner][order],
        rate=np.concatenate([rates, rate])[order],
        gpu_type=np.concatenate([kind, nothing])[order].astype(np.int32),
        locality=np.concatenate([locality, nothing])[order].astype(np.int32),
        basis=np.concatenate([np.full(own.size, int(Basis.MEASURED)), basis])[order].astype(np.int32),
    )
    return Menus(curve=curve, points=points)
