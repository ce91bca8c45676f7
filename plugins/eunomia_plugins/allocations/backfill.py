"""Backfilling: a job may start before earlier jobs if it delays none of their planned starts, as far as ends are known.

EASY (Lifka, 1995) reserves GPUs for the first job that does not fit; conservative backfilling (Mu'alem and Feitelson,
2001) reserves GPUs for every such job. A job whose end is not known counts as running forever.
"""

from typing import NamedTuple

import numpy as np

from eunomia import GpuState, Menus, Snapshot
from eunomia.units import NONE, Ints, Reals, Rows


class Booked(NamedTuple):
    """The result of backfilling, by ranked job."""

    gpus: Ints
    """GPUs that each job gets now; 0: it waits."""
    kinds: Rows
    """Type of these GPUs; -1 with 0 GPUs."""
    starts_at: Reals
    """Planned start in seconds since the arbiter's start; NaN: no start is planned."""


class Outlook:
    """A forecast of the number of free GPUs by type, as a step function of time.

    Attributes:
        times: [step] time in seconds at which the number changes; the first is now.
        free: [step, type] number of free GPUs from that time on.
    """

    def __init__(self, now: float, free: Ints, ends: Reals, given: Ints) -> None:
        known = np.isfinite(ends)
        times, at = np.unique(np.maximum(ends[known], now), return_inverse=True)
        back = np.zeros((times.size, free.size), np.int64)
        np.add.at(back, at, given[known])
        if times.size and times[0] == now:
            # GPUs of overdue jobs are not free yet: they count as free just after now.
            times[0] = np.nextafter(now, np.inf)
        self.times: Reals = np.concatenate([[now], times])
        self.free: Ints = free + np.concatenate([np.zeros((1, free.size), np.int64), np.cumsum(back, axis=0)])

    def earliest(self, gpus: int, kind: int, seconds: float) -> float:
        """Return the first time at which ``gpus`` GPUs become free for ``seconds``; inf if no such time is known."""
        short = np.flatnonzero(self.free[:, kind] < gpus)
        next_short = np.append(short, self.times.size)[np.searchsorted(short, np.arange(self.times.size))]
        until = np.append(self.times, np.inf)[next_short]
        fits = np.flatnonzero(self.times + seconds <= until)
        return float(self.times[fits[0]]) if fits.size else np.inf

    def book(self, gpus: int, kind: int, start: float, seconds: float) -> None:
        """Reserve GPUs for ``seconds`` from ``start`` on."""
        end = start + seconds
        for time in (start, end) if np.isfinite(end) else (start,):
            at = int(np.searchsorted(self.times, time))
            if at == self.times.size or self.times[at] != time:
                self.times = np.insert(self.times, at, time)
                self.free = np.insert(self.free, at, self.free[at - 1], axis=0)
        self.free[(self.times >= start) & (self.times < end), kind] -= gpus


def outlook(snapshot: Snapshot, menus: Menus, usable: Ints, free: Ints) -> Outlook:
    """Predict when GPUs become free, from the remaining work of running jobs and their rates.

    Args:
        snapshot: the current state.
        menus: the rates of jobs by size.
        usable: the GPUs that are free now.
        free: [type] number of GPUs that are free now.
    """
    held = snapshot.holdings
    taken = (held.job != NONE) & (held.state != GpuState.DOWN)
    taken[usable] = False
    gpus = np.flatnonzero(taken)
    jobs, index = np.unique(held.job[gpus], return_inverse=True)
    given = np.zeros((jobs.size, free.size), np.int64)
    np.add.at(given, (index, snapshot.cluster.gpu_type[gpus]), 1)
    rate = snapshot.jobs.rate[jobs].copy()
    for at in np.flatnonzero(rate <= 0.0).tolist():
        rate[at] = menus.rate(int(jobs[at]), int(given[at].sum()))
    left = snapshot.iterations_left(jobs) / np.where(rate > 0.0, rate, np.nan)
    return Outlook(float(snapshot.now), free, snapshot.now + np.nan_to_num(left, nan=np.inf), given)


def backfill(snapshot: Snapshot, menus: Menus, jobs: Rows, turn: Ints, plan: Outlook, *, held_back: int) -> Booked:
    """Serve jobs in order: jobs that fit start, the first that do not fit get a planned start, and others may backfill.

    Args:
        snapshot: the current state.
        menus: the sizes and rates of jobs.
        jobs: job rows in order of rank.
        turn: indices of the jobs that fit on the cluster, in order.
        plan: the forecast of free GPUs, to which reservations are added.
        held_back: maximum number of jobs with a reservation; 1 is EASY.
    """
    booked = Booked(np.zeros(jobs.size, np.int64), np.full(jobs.size, NONE, np.int32), np.full(jobs.size, np.nan))
    left = snapshot.iterations_left(jobs)
    asked, least = snapshot.jobs.gpu_type[jobs], menus.span(jobs)[0]
    failed = _Failed(plan.free.shape[1])
    for index in turn.tolist():
        if held_back == 0 and least[index] > plan.free[0].max():
            continue
        kinds = range(plan.free.shape[1]) if asked[index] == NONE else [int(asked[index])]
        work = _Work(menus, int(jobs[index]), float(left[index]))
        start, gpus, kind = _start_now(plan, work, kinds, failed) or _later(plan, work, kinds, held_back)
        if start == plan.times[0]:
            booked.gpus[index], booked.kinds[index] = gpus, kind
        elif np.isfinite(start):
            booked.starts_at[index] = start
            held_back -= 1
        else:
            continue
        plan.book(gpus, kind, start, work.seconds(gpus))
    return booked


class _Work:
    """The sizes of one job, and its run time at each."""

    def __init__(self, menus: Menus, job: int, left: float) -> None:
        self.menus, self.job, self.left = menus, job, left

    def ends(self, limit: int) -> list[int]:
        """Return the largest size of at most ``limit`` GPUs and the smallest size; empty if no size fits."""
        largest = self.menus.largest_at_most(self.job, limit)
        return sorted({largest, int(self.menus.sizes(self.job)[0])}, reverse=True) if largest else []

    def seconds(self, gpus: int) -> float:
        """Return the run time at a size in seconds; inf: not known."""
        rate = self.menus.rate(self.job, gpus)
        return self.left / rate if rate > 0.0 and self.left >= 0.0 else np.inf


class _Failed:
    """Requests that could not start now; larger requests cannot either, as the free GPUs only decrease."""

    def __init__(self, types: int) -> None:
        self._shortest: list[dict[int, float]] = [{} for _ in range(types)]

    def covers(self, gpus: int, kind: int, seconds: float) -> bool:
        return any(size <= gpus and time <= seconds for size, time in self._shortest[kind].items())

    def add(self, gpus: int, kind: int, seconds: float) -> None:
        self._shortest[kind][gpus] = min(seconds, self._shortest[kind].get(gpus, np.inf))


_Start = tuple[float, int, int]
"""A start: time in seconds, number of GPUs, and their type."""


def _start_now(plan: Outlook, work: _Work, kinds: "range | list[int]", failed: _Failed) -> _Start | None:
    """Return a start now at the largest size that is free, or else the smallest, if it delays no reservation."""
    now = float(plan.times[0])
    for kind in sorted(kinds, key=lambda kind: -int(plan.free[0, kind])):
        for size in work.ends(int(plan.free[0, kind])):
            seconds = work.seconds(size)
            if not failed.covers(size, kind, seconds):
                if plan.earliest(size, kind, seconds) == now:
                    return now, size, kind
                failed.add(size, kind, seconds)
    return None


def _later(plan: Outlook, work: _Work, kinds: "range | list[int]", held_back: int) -> _Start:
    """Return the earliest start of the job's smallest size, if one more reservation is allowed."""
    if held_back == 0:
        return np.inf, 0, NONE
    size = int(work.menus.sizes(work.job)[0])
    start, kind = min((plan.earliest(size, kind, work.seconds(size)), kind) for kind in kinds)
    return start, size, kind
