"""Curves from declared and measured rates: iterations per second by number of GPUs."""

from collections.abc import Iterable, Mapping

import numpy as np

from eunomia import Basis, CurvePoints, Feature, Snapshot, curve_points
from eunomia.contract.snapshot import Measured
from eunomia.units import Bools, Ints, Reals, Rows

Known = Mapping[int, tuple[Measured, ...]]
"""The known rates of each job, by job row."""


def known_rates(snapshot: Snapshot) -> Known:
    """Return the rates of each active job: those of its kind at its batch size, or else those measured on the job."""
    if not snapshot.reports.profiles:
        return snapshot.reports.measured
    return {job: rates for job in snapshot.active.tolist() if (rates := rates_of(snapshot, job))}


def rates_of(snapshot: Snapshot, job: int) -> tuple[Measured, ...]:
    """Return the rates of a job's kind at its batch size, or else the measured rates of the job itself."""
    if int(snapshot.jobs.job_kind[job]) in snapshot.reports.profiles:
        return rates_of_kind(snapshot, job)
    return snapshot.reports.measured.get(job, ())


def rates_of_kind(snapshot: Snapshot, job: int) -> tuple[Measured, ...]:
    """Return the known rates of a job's kind that are valid at the job's batch size, as rates of the job."""
    batch = float(snapshot.jobs.batch_size[job])
    return tuple(
        Measured(
            job=job,
            gpus=rate.gpus,
            gpu_type=rate.gpu_type,
            locality=rate.locality,
            rate=rate.rate,
            batch_size=rate.batch_size,
            cpus=rate.cpus,
            memory_gib=rate.memory_gib,
            known=rate.known,
        )
        for rate in snapshot.reports.profiles.get(int(snapshot.jobs.job_kind[job]), ())
        if np.isnan(rate.batch_size) or np.isnan(batch) or rate.batch_size == batch
    )


def one_gpu_rate(snapshot: Snapshot, jobs: Rows, known: Known | None = None) -> Reals:
    """Return iterations per second on one GPU: as declared, else from the smallest known size; NaN: not known.

    Until a job is measured, its rate is assumed proportional to its GPUs (Themis §4.3.1, S = 1).

    Args:
        snapshot: the current state.
        jobs: job rows.
        known: known rates by job; None: the measured ones.
    """
    known = snapshot.reports.measured if known is None else known
    rate = 1.0 / snapshot.jobs.seconds_per_iteration[jobs]
    if known:
        for index in np.flatnonzero(np.isnan(rate)):
            points = [point for point in with_most_cpus(known.get(int(jobs[index]), ())) if point.rate > 0.0]
            if points:
                least = min(points, key=lambda point: (point.gpus, point.locality))
                rate[index] = least.rate / least.gpus
    return rate


def kinds_of_curves(snapshot: Snapshot, one_gpu: Reals, known: Known | None = None) -> tuple[Rows, Ints]:
    """Group active jobs with equal sizes and rates, which share a curve; a measured job has its own curve.

    Args:
        snapshot: the current state.
        one_gpu: [active job] iterations per second on one GPU.
        known: known rates by job, each of which has its own curve; None: the measured ones.

    Returns:
        [job row] index of its curve (-1: not active), and [curve] index of one of its active jobs.
    """
    jobs, active = snapshot.jobs, snapshot.active
    least, most = jobs.least[active], jobs.most[active]
    rates = np.unique(one_gpu, return_inverse=True)[1] if one_gpu.size else np.empty(0, np.int64)
    span = int(most.max(initial=0)) + 1
    alike = ((rates * span + least) * span + most).astype(np.int64)  # a code for each rate, least and most
    known = snapshot.reports.measured if known is None else known
    if known:
        measured = np.isin(active, np.fromiter(known, np.int64, len(known)))
        alike = np.where(measured, active + alike.max(initial=0) + 1, alike)
    _, first, inverse = np.unique(alike, return_index=True, return_inverse=True)
    curve = np.full(jobs.least.size, -1, np.int32)
    curve[active] = inverse
    return curve, first


def sizes_between(least: Ints, most: Ints) -> tuple[Rows, Ints]:
    """Return the curve and the number of GPUs of every size between ``least`` and ``most``, curve by curve."""
    counts = np.maximum(most - least + 1, 0)
    owner = np.repeat(np.arange(least.size, dtype=np.int32), counts)
    offset = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return owner, least[owner] + offset


def faster_sizes(curve: Rows, rate: Reals, least_gain: float = 0.0) -> Bools:
    """Return for each size, ascending within its curve, whether it is faster than all kept smaller sizes.

    Args:
        curve: curve of each size.
        rate: rate at each size, in iterations per second.
        least_gain: fraction by which a size must be faster than every smaller one; the smallest is always kept.
    """
    keep = np.ones(curve.size, dtype=bool)
    best, last = 0.0, -1
    for index, (owner, value) in enumerate(zip(curve.tolist(), rate.tolist(), strict=True)):
        if owner != last:
            best, last = value, owner
        elif value > best * (1.0 + least_gain):
            best = value
        else:
            keep[index] = False
    return keep


def linear_curves(curve: Rows, gpus: Ints, one_gpu: Reals) -> CurvePoints:
    """Return declared points with the rate ``gpus`` x ``one_gpu`` (iterations per second), sorted by curve and GPUs."""
    rate = gpus * one_gpu
    basis = np.where(np.isnan(rate), int(Basis.ASSUMED), int(Basis.DECLARED)).astype(np.int32)
    return curve_points(curve, gpus, rate=rate, basis=basis)


def with_measured(points: CurvePoints, snapshot: Snapshot, curve_of: Rows, known: Known | None = None) -> CurvePoints:
    """Add rates measured at the current batch size to the points; at equal size, measured points come first.

    Measurements at sizes that a curve does not have are dropped.

    Args:
        points: declared points; every measured job has its own curve.
        snapshot: the current state.
        curve_of: [job row] index of its curve; -1: none.
        known: known rates by job; None: the measured ones.
    """
    curves, types = curve_of.tolist(), {name: kind for kind, name in enumerate(snapshot.cluster.gpu_types)}
    needed = Feature.CPU_POINTS in snapshot.needs
    extra = [
        _row(curves[job], types.get(point.gpu_type, -1), point)
        for job, measured in (snapshot.reports.measured if known is None else known).items()
        if job < len(curves) and curves[job] >= 0
        for point in (measured if needed else with_most_cpus(measured))
    ]
    sizes = set(zip(points.curve.tolist(), points.gpus.tolist(), strict=True))
    extra = [point for point in extra if (point[0], point[1]) in sizes]
    if not extra:
        return points
    columns = (np.array(column) for column in zip(*extra, strict=True))
    curve, gpus, gpu_type, locality, rate, batch, how, *amounts = columns
    curve = np.concatenate([points.curve, curve]).astype(np.int32)
    gpus = np.concatenate([points.gpus, gpus]).astype(np.int64)
    basis = np.concatenate([points.basis, how]).astype(np.int32)
    order = np.lexsort((-basis, gpus, curve))
    return curve_points(
        curve[order],
        gpus[order],
        rate=np.concatenate([points.rate, rate])[order],
        gpu_type=np.concatenate([points.gpu_type, gpu_type]).astype(np.int32)[order],
        locality=np.concatenate([points.locality, locality]).astype(np.int32)[order],
        basis=basis[order],
        batch_size=np.concatenate([np.full(points.gpus.size, np.nan), batch])[order],
        amounts=_amounts(points, amounts, order) if needed else None,
    )


def _row(curve: int, gpu_type: int, point: Measured) -> tuple[float, ...]:
    where = (curve, point.gpus, gpu_type, int(point.locality))
    return (*where, point.rate, point.batch_size, int(point.known), point.cpus, point.memory_gib)


def _amounts(points: CurvePoints, measured: list[Reals], order: Ints) -> tuple[Reals, Reals]:
    """Return the CPUs and memory of declared and measured points."""
    cpus, memory_gib = (
        np.concatenate([declared, seen])[order]
        for declared, seen in zip((points.cpus, points.memory_gib), measured, strict=True)
    )
    return cpus, memory_gib


def with_most_cpus(measured: Iterable[Measured]) -> list[Measured]:
    """Return one rate per size, GPU type and locality: the one with the most CPUs, then the most memory."""
    best: dict[tuple[int, str, int], Measured] = {}
    for point in measured:
        where = point.gpus, point.gpu_type, int(point.locality)
        if where not in best or _amount(point) > _amount(best[where]):
            best[where] = point
    return list(best.values())


def _amount(point: Measured) -> tuple[float, float]:
    return np.nan_to_num(point.cpus).item(), np.nan_to_num(point.memory_gib).item()
