"""Add the points by CPUs and memory of each kind of job to the menus; jobs of equal kind and sizes share a curve."""

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from eunomia import CurvePoints, Feature, KnownRate, Menus, Snapshot
from eunomia.units import Bools, Ints, Rows

Profiles = Mapping[int, tuple[KnownRate, ...]]
_COLUMNS = ("gpus", "gpu_type", "locality", "cpus", "memory_gib", "rate", "basis")


def with_kinds(snapshot: Snapshot, menus: Menus) -> Menus:
    """Return the menus with the points of each job's kind, if a stage of the profile needs CPUs and memory.

    At the sizes on its menu for which its kind has points, a job gets these points instead of its own. A job that was
    measured itself keeps its own curve. At each size, the fastest point comes first.
    """
    if Feature.CPU_POINTS not in snapshot.needs or not snapshot.profiles:
        return menus
    rows = _of_kinds(snapshot, menus)
    if not rows.size:
        return menus
    jobs = snapshot.jobs
    own = menus.curve[rows] if not menus.one_size else np.zeros(rows.size, np.int32)
    alike = np.column_stack([jobs.job_kind[rows], jobs.least[rows], jobs.most[rows], jobs.gpu_type[rows], own])
    _, first, inverse = np.unique(alike, axis=0, return_index=True, return_inverse=True)
    parts = [_points_of(snapshot, menus, int(rows[at])) for at in first]
    start = menus.points.start.size - 1
    curve = menus.curve.copy()
    curve[rows] = start + inverse.reshape(-1)
    return dataclasses.replace(menus, curve=curve, points=_joined(menus.points, parts))


def _of_kinds(snapshot: Snapshot, menus: Menus) -> Rows:
    """Return the rows of active jobs that have a menu and a known kind, and were not measured themselves."""
    kinds = [kind for kind, rates in snapshot.profiles.items() if any(rate.cpus == rate.cpus for rate in rates)]
    rows = snapshot.active[np.isin(snapshot.jobs.job_kind[snapshot.active], kinds)]
    mine: Bools = menus.curve[rows] >= 0
    if snapshot.measured:
        mine &= ~np.isin(rows, list(snapshot.measured))
    return rows[mine]


class _Part(NamedTuple):
    """The points of one curve, by column."""

    columns: dict[str, Ints]
    size: int


def _points_of(snapshot: Snapshot, menus: Menus, job: int) -> _Part:
    """Return the curve of a job: its kind's points at the sizes on its menu, and its own points at the other sizes."""
    points, at = menus.points, int(menus.curve[job])
    own = np.arange(int(points.start[at]), int(points.start[at + 1]))
    rates = _matching(snapshot, job)
    there = {rate.gpus for rate in rates}
    own = own[~np.isin(points.gpus[own], list(there))]
    sizes = set(points.gpus[int(points.start[at]) : int(points.start[at + 1])].tolist())
    types = {name: kind for kind, name in enumerate(snapshot.cluster.gpu_types)}
    rows = [
        (rate.gpus, types.get(rate.gpu_type, -1), int(rate.locality), rate.cpus, rate.memory_gib, rate.rate, rate.known)
        for rate in rates
        if rate.gpus in sizes
    ]
    table = np.array(rows, float).reshape(-1, len(_COLUMNS))
    joined = {
        name: np.concatenate([getattr(points, name)[own].astype(float), table[:, column]])
        for column, name in enumerate(_COLUMNS)
    }
    least_last = [np.where(np.isnan(joined[name]), np.inf, -joined[name]) for name in ("memory_gib", "cpus")]
    slower = -np.nan_to_num(joined["rate"])
    order = np.lexsort((*least_last, slower, joined["gpus"]))
    return _Part({name: column[order] for name, column in joined.items()}, int(order.size))


def _matching(snapshot: Snapshot, job: int) -> list[KnownRate]:
    """Return the rates by CPUs of the job's kind that are valid at the job's batch size and GPU type."""
    jobs = snapshot.jobs
    batch, wanted = float(jobs.batch_size[job]), int(jobs.gpu_type[job])
    name = snapshot.cluster.gpu_types[wanted] if wanted >= 0 else None
    return [
        rate
        for rate in snapshot.profiles[int(jobs.job_kind[job])]
        if rate.cpus == rate.cpus
        and (rate.batch_size != rate.batch_size or batch != batch or rate.batch_size == batch)
        and (name is None or rate.gpu_type == name)
    ]


def _joined(points: CurvePoints, parts: list[_Part]) -> CurvePoints:
    """Append further curves to the points."""
    counts = np.array([part.size for part in parts])
    first = points.start.size - 1
    made = {
        name: np.concatenate(
            [getattr(points, name), *(part.columns[name].astype(getattr(points, name).dtype) for part in parts)]
        )
        for name in _COLUMNS
    }
    extra = int(counts.sum())
    batch = points.batch_size
    return CurvePoints(
        curve=np.concatenate([points.curve, np.repeat(first + np.arange(counts.size), counts)]).astype(np.int32),
        start=np.concatenate([points.start, points.start[-1] + np.cumsum(counts)]).astype(np.int64),
        batch_size=None if batch is None else np.concatenate([batch, np.full(extra, np.nan)]),
        **made,
    )
