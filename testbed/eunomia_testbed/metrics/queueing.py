"""The queue and the cluster over time: length, contention, cluster efficiency, blocking index (AFS, section 2.2)."""

import numpy as np

from eunomia.model.shapes import builds
from eunomia.units import Ints, Reals
from eunomia_testbed.metrics.fairness import accumulate


@builds
class Waits:
    """Periods in which jobs were pending, one row each; the end is NaN if the period is still open."""

    job: Ints
    start_seconds: Reals
    end_seconds: Reals


@builds
class Series:
    """A piecewise linear function of time: the start, value and slope of each piece."""

    time_seconds: Reals
    value: Reals
    slope: Reals

    def at(self, moments: Reals) -> Reals:
        """Return the value at each time; at a boundary, that of the later piece; before the first piece, 0."""
        if not self.time_seconds.size:
            return np.zeros_like(moments)
        piece = np.searchsorted(self.time_seconds, moments, side="right") - 1
        found = self.value[piece] + self.slope[piece] * (moments - self.time_seconds[piece])
        return np.where(piece < 0, 0.0, found)

    def areas(self, moments: Reals) -> Reals:
        """Return the integral from the first piece's start to each time."""
        if not self.time_seconds.size:
            return np.zeros_like(moments)
        length = np.diff(self.time_seconds)
        whole = np.concatenate([[0.0], np.cumsum(self.value[:-1] * length + self.slope[:-1] * length**2 / 2)])
        piece = np.searchsorted(self.time_seconds, moments, side="right") - 1
        past = moments - self.time_seconds[piece]
        return np.where(piece < 0, 0.0, whole[piece] + self.value[piece] * past + self.slope[piece] * past**2 / 2)

    def means(self, moments: Reals, until: float) -> Reals:
        """Return the mean from each time to the next, and from the last time to ``until``.

        Between equal times, the mean is the value at that time.
        """
        length = np.diff(np.append(moments, max(until, moments[-1] if moments.size else until)))
        area = np.diff(self.areas(np.append(moments, moments[-1:] + length[-1:])))
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(length > 0.0, area / length, self.at(moments))


def cluster_efficiency(
    start_seconds: Reals, end_seconds: Reals, serial_per_gpu_second: Reals, cluster_gpus: int
) -> Series:
    """Return CE, the sum over running jobs of current throughput / throughput on one GPU, per GPU of the cluster.

    Args:
        start_seconds: start of each period in which a job held a GPU.
        end_seconds: end of each period; no NaN.
        serial_per_gpu_second: the job's mean speed-up per GPU held; 1 for linear speed-up. The mean of CE over time is
            exact, and each value is exact if jobs keep their size.
        cluster_gpus: number of GPUs of the cluster (M).
    """
    moments = np.concatenate([start_seconds, end_seconds])
    change = np.concatenate([serial_per_gpu_second, -serial_per_gpu_second]) / max(1, cluster_gpus)
    times, value = accumulate(moments, change)
    return Series(time_seconds=times, value=np.maximum(value, 0.0), slope=np.zeros(times.size))


def blocking_index(
    waits: Waits, arrival_seconds: Reals, finish_seconds: Reals, serial_seconds: Reals, until: float
) -> Series:
    """Return BI, the mean over pending jobs of their pending time so far / their remaining time on one GPU.

    Pending time is the sum of a job's waits. The fraction of work left is estimated as the fraction left of the job's
    time without waits; for a job that never finishes, the fraction is 1.

    Args:
        waits: periods in which jobs were pending, in any order.
        arrival_seconds: arrival of each job.
        finish_seconds: finish of each job; NaN: never.
        serial_seconds: by job, seconds of its total work on one GPU.
        until: time in seconds at which open waits end.
    """
    if not waits.job.size:
        return Series(time_seconds=np.empty(0), value=np.empty(0), slope=np.empty(0))
    order = np.lexsort((waits.start_seconds, waits.job))
    job, start = waits.job[order], waits.start_seconds[order]
    end = np.where(np.isnan(waits.end_seconds[order]), until, waits.end_seconds[order])
    pending = _before(job, end - start)
    ran = start - arrival_seconds[job] - pending
    runs = finish_seconds - arrival_seconds - np.bincount(job, end - start, arrival_seconds.size)
    with np.errstate(divide="ignore", invalid="ignore"):
        done = np.where(runs[job] > 0.0, np.clip(ran / runs[job], 0.0, 1.0), 0.0)
        weight = 1.0 / (serial_seconds[job] * (1.0 - done))
    known = np.isfinite(weight) & (end > start)
    return _mean_of_lines(start[known], end[known], (pending * weight)[known], weight[known])


def _before(job: Ints, amount: Reals) -> Reals:
    """Return by row the sum of the same job's earlier rows; rows of a job must be adjacent."""
    total = np.cumsum(amount) - amount
    first = np.concatenate([[True], job[1:] != job[:-1]])
    before: Reals = total - total[np.flatnonzero(first)][np.cumsum(first) - 1]
    return before


def _mean_of_lines(start: Reals, end: Reals, value: Reals, slope: Reals) -> Series:
    """Return the mean over time of the active lines; each starts at ``value`` and rises by ``slope`` per second."""
    moments = np.concatenate([start, end])
    intercept = value - slope * start
    times, count = accumulate(moments, np.concatenate([np.ones(start.size), -np.ones(end.size)]))
    _, constant = accumulate(moments, np.concatenate([intercept, -intercept]))
    _, rise = accumulate(moments, np.concatenate([slope, -slope]))
    some = count > 0.5
    with np.errstate(divide="ignore", invalid="ignore"):
        level = np.where(some, (constant + rise * times) / count, 0.0)
        steep = np.where(some, rise / count, 0.0)
    return Series(time_seconds=times, value=np.maximum(level, 0.0), slope=np.maximum(steep, 0.0))
