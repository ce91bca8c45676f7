"""Curves from what is declared and measured: iterations a second by number of GPUs."""

import numpy as np

from eunomia.menus import CurvePoints, curve_points
from eunomia.snapshot import Snapshot
from eunomia.units import Basis, Ints, Reals, Rows


def one_gpu_rate(snapshot: Snapshot, jobs: Rows) -> Reals:
    """Iterations a second on one GPU: as declared, else from the smallest size measured; NaN: not known.

    A job is taken to be as many times faster as it has GPUs (Themis §4.3.1, S = 1) until it is measured.
    """
    rate = 1.0 / snapshot.jobs.seconds_per_iteration[jobs]
    if snapshot.measured:
        for index in np.flatnonzero(np.isnan(rate)):
            points = snapshot.measured.get(int(jobs[index]), ())
            if points:
                least = min(points, key=lambda point: (point.gpus, point.locality))
                rate[index] = least.rate / least.gpus
    return rate


def linear_curves(curve: Rows, gpus: Ints, one_gpu: Reals) -> CurvePoints:
    """Points that grow linearly from ``one_gpu`` [point], as declared; sorted by curve and GPUs."""
    rate = gpus * one_gpu
    basis = np.where(np.isnan(rate), int(Basis.ASSUMED), int(Basis.DECLARED)).astype(np.int32)
    return curve_points(curve, gpus, rate=rate, basis=basis)


def with_measured(points: CurvePoints, snapshot: Snapshot, curve_of: Rows) -> CurvePoints:
    """The points with the measured ones of those jobs before the declared ones of the same size.

    Args:
        points: declared points; every measured job has a curve of its own.
        snapshot: the state of this moment.
        curve_of: [job row] its curve; -1: none.
    """
    extra = [
        (curve_of[job], point.gpus, _type(snapshot, point.gpu_type), int(point.locality), point.rate)
        for job, measured in snapshot.measured.items()
        if job < curve_of.size and curve_of[job] >= 0
        for point in measured
    ]
    sizes = set(zip(points.curve.tolist(), points.gpus.tolist(), strict=True))
    extra = [point for point in extra if (point[0], point[1]) in sizes]
    if not extra:
        return points
    curve, gpus, gpu_type, locality, rate = (np.array(column) for column in zip(*extra, strict=True))
    curve = np.concatenate([points.curve, curve]).astype(np.int32)
    gpus = np.concatenate([points.gpus, gpus]).astype(np.int64)
    basis = np.concatenate([points.basis, np.full(len(extra), int(Basis.MEASURED))]).astype(np.int32)
    order = np.lexsort((-basis, gpus, curve))
    return curve_points(
        curve[order],
        gpus[order],
        rate=np.concatenate([points.rate, rate])[order],
        gpu_type=np.concatenate([points.gpu_type, gpu_type]).astype(np.int32)[order],
        locality=np.concatenate([points.locality, locality]).astype(np.int32)[order],
        basis=basis[order],
    )


def _type(snapshot: Snapshot, name: str) -> int:
    types = snapshot.cluster.gpu_types
    return types.index(name) if name in types else -1
