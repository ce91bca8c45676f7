"""Columns of each job's GPU time, run time and waits by GPU type."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from eunomia.model.cluster import Cluster
from eunomia.model.shapes import builds
from eunomia.units import Ints, Reals
from eunomia_testbed.results.counting import OWN_CHOICE
from eunomia_testbed.run_log.log import Column, RunLog, WaitLog


class TypeSpeeds(Protocol):
    """The speeds of jobs by GPU type, relative to each job's reference type."""

    def reference(self, job: int) -> str | None:
        """Return the GPU type to which a job's speeds are relative; None: unknown."""

    def speed(self, job: int, kind: int) -> float:
        """Return a job's speed on a GPU type of the cluster, relative to its reference type; NaN: unknown."""


@builds
class HeldByType:
    """GPU time by type: a row for each app, job and GPU type, in that order; NaN: unknown."""

    app: Ints
    job: Ints
    """Index of the job; -1: leases of an app that belong to several jobs or to none."""
    kind: Ints
    """Index into the cluster's GPU types."""
    slot_seconds: Reals
    run_seconds: Reals
    """Seconds that the job ran, divided among the types in proportion to the GPU time held."""
    wait_seconds: Reals
    """Seconds of the job's waits that ended with leases of this type, divided among the types by their GPUs."""


def held_by_type(log: RunLog, cluster: Cluster) -> HeldByType:
    """Return each job's GPU time by type; open leases count until the last event."""
    leases, types = log.leases, len(cluster.gpu_types)
    kind = cluster.gpu_type[leases.gpu].astype(np.int64)
    keys = (leases.app * (len(log.jobs) + 1) + leases.job + 1) * types + kind
    found, row = np.unique(keys, return_inverse=True)
    ends = np.where(np.isnan(leases.end_seconds), _last_event(log), leases.end_seconds)
    held: Reals = np.bincount(row, np.maximum(ends - leases.start_seconds, 0.0), found.size).astype(float)
    app_job = found // types
    job = app_job % (len(log.jobs) + 1) - 1
    return HeldByType(
        app=app_job // (len(log.jobs) + 1),
        job=job,
        kind=found % types,
        slot_seconds=held,
        run_seconds=_run_seconds(log.arrivals.run_seconds, job, held),
        wait_seconds=_wait_seconds(log, row, found.size),
    )


def speed_columns(held: HeldByType, speeds: TypeSpeeds | None) -> dict[str, Column]:
    """Return for each row reference type, speed and lost seconds, as table columns; empty: no speeds are known."""
    if speeds is None:
        return {}
    rows = list(zip(held.job.tolist(), held.kind.tolist(), strict=True))
    speed = np.array([speeds.speed(job, kind) if job >= 0 else np.nan for job, kind in rows], dtype=float)
    return {
        "reference_type": [speeds.reference(job) if job >= 0 else None for job, _ in rows],
        "speed": speed,
        "lost_seconds": held.run_seconds * (1.0 - speed),
    }


def _last_event(log: RunLog) -> float:
    known = [log.leases.start_seconds, log.leases.end_seconds, log.waits.end_seconds, log.rounds.time_seconds]
    known += [] if log.queue is None else [log.queue.time_seconds]
    last = max(float(np.nanmax(times, initial=0.0)) for times in known)
    return last if log.end_seconds is None else log.end_seconds


def _run_seconds(given: Column, job: Ints, held: Reals) -> Reals:
    """Divide each job's run time among its rows in proportion to the GPU time held; NaN: unknown."""
    if given is None:
        return np.full(job.size, np.nan)
    known = np.array([np.nan if each is None else each for each in given], dtype=float)
    whole = np.bincount(job + 1, held)
    total = np.append(known, np.nan)[np.where((job >= 0) & (job < known.size), job, known.size)]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(held > 0.0, total * held / whole[job + 1], 0.0)


def _wait_seconds(log: RunLog, row: Ints, size: int) -> Reals:
    """Return by row of ``HeldByType`` the seconds waited; ``row`` has the row of each leased GPU."""
    wait, lease, seconds = _ended_waits(log)
    pairs, gpus = np.unique(wait * size + row[lease], return_counts=True)
    ended = pairs // size
    waited = np.zeros(size)
    np.add.at(waited, pairs % size, seconds[ended] * (gpus / np.bincount(wait)[ended]))
    return waited


def _ended_waits(log: RunLog) -> tuple[Ints, Ints, Reals]:
    """Return pairs of a wait and a leased GPU that ended it, as row numbers, and the seconds of each wait."""
    waits: WaitLog = log.waits
    kept = np.isfinite(waits.end_seconds) & (waits.reason != OWN_CHOICE)
    job, start = waits.job[kept], waits.start_seconds[kept]
    leases = log.leases
    if not job.size or not leases.job.size:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0)
    times, rank = np.unique(np.concatenate([leases.start_seconds, start]), return_inverse=True)
    of_lease = leases.job * times.size + rank[: leases.job.size]
    order = np.argsort(of_lease, kind="stable")
    place = np.searchsorted(of_lease[order], job * times.size + rank[leases.job.size :])
    lease = order[np.minimum(place, order.size - 1)]
    ended = (place < order.size) & (leases.job[lease] == job)
    first, of_first = place[ended], of_lease[lease[ended]]
    gpus = np.searchsorted(of_lease[order], of_first, side="right") - first  # that the job got at the same time
    wait = np.repeat(np.arange(first.size), gpus)
    nth = np.arange(wait.size) - np.repeat(np.cumsum(gpus) - gpus, gpus)
    seconds = waits.end_seconds[kept] - start
    return wait, order[first[wait] + nth], seconds[ended]
