"""The queue and the cluster over time: length, contention, cluster efficiency, blocking index (AFS, section 2.2)."""

import numpy as np

from eunomia.shapes import builds
from eunomia.units import Ints, Reals
from eunomia_testbed.metrics.fairness import accumulate


@builds
class Waits:
    """Stretches in which jobs were pending, a row each; an open one ends with NaN."""

    job: Ints
    start_seconds: Reals
    end_seconds: Reals


@builds
class Series:
    """A function of time with straight pieces: from each moment its value there and how fast it changes."""

    time_seconds: Reals
    value: Reals
    slope: Reals

    def at(self, moments: Reals) -> Reals:
        """Its value at each moment, the later piece where two meet; 0 before the first."""
        if not self.time_seconds.size:
            return np.zeros_like(moments)
        piece = np.searchsorted(self.time_seconds, moments, side="right") - 1
        found = self.value[piece] + self.slope[piece] * (moments - self.time_seconds[piece])
        return np.where(piece < 0, 0.0, found)

    def mean(self, until: float) -> float:
        """Its mean from 0 to ``until``, 0 where it is not defined; 0 for no time at all."""
        if until <= 0.0 or not self.time_seconds.size:
            return 0.0
        begin = np.clip(self.time_seconds, 0.0, until)
        length = np.diff(np.append(begin, until))
        at_begin = self.value + self.slope * (begin - self.time_seconds)
        return float((at_begin * length + self.slope * length**2 / 2).sum() / until)


def step_mean(time_seconds: Reals, value: Reals, until: float) -> float:
    """Mean of a step function from 0 to ``until``."""
    return Series(time_seconds=time_seconds, value=value.astype(float), slope=np.zeros(value.size)).mean(until)


def cluster_efficiency(
    start_seconds: Reals, end_seconds: Reals, serial_per_gpu_second: Reals, cluster_gpus: int
) -> Series:
    """CE: the sum over running jobs of throughput now / throughput with one GPU, per GPU of the cluster.

    Args:
        start_seconds: of each stretch for which a job held a GPU.
        end_seconds: of each; no NaN.
        serial_per_gpu_second: seconds of work on one GPU that a GPU-second of this job did, on its average: 1 where it
            scales linearly. So the mean over time is exact, and a moment's value where a job keeps its size.
        cluster_gpus: M.
    """
    moments = np.concatenate([start_seconds, end_seconds])
    change = np.concatenate([serial_per_gpu_second, -serial_per_gpu_second]) / max(1, cluster_gpus)
    times, value = accumulate(moments, change)
    return Series(time_seconds=times, value=np.maximum(value, 0.0), slope=np.zeros(times.size))


def blocking_index(
    waits: Waits, arrival_seconds: Reals, finish_seconds: Reals, serial_seconds: Reals, until: float
) -> Series:
    """BI: the mean over pending jobs of pending time so far / remaining time with one GPU.

    Pending time adds up over a job's waits. What is left of its work is what is left of the time for which it does not
    wait; a job that never finishes has all of it left.

    Args:
        waits: in any order.
        arrival_seconds: by job.
        finish_seconds: by job; NaN: never.
        serial_seconds: by job, its whole work on one GPU.
        until: the end of waits that are open.
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
    job, start, end, pending, weight = (column[known] for column in (job, start, end, pending, weight))
    return _mean_of_lines(start, end, pending * weight, weight)


def _before(job: Ints, amount: Reals) -> Reals:
    """By row, what earlier rows of the same job add up to; rows of a job stand together."""
    total = np.cumsum(amount) - amount
    first = np.concatenate([[True], job[1:] != job[:-1]])
    return total - total[np.flatnonzero(first)][np.cumsum(first) - 1]


def _mean_of_lines(start: Reals, end: Reals, value: Reals, slope: Reals) -> Series:
    """At each moment the mean of the lines that are on: each begins at ``start`` with ``value`` and rises by slope."""
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
