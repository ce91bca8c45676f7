"""Groups of jobs that share a curve, kept up to date between rounds by the rows that changed."""

import math
from collections.abc import Callable, Mapping

import numpy as np

from eunomia import Menus, Snapshot
from eunomia.contract.menus import CurvePoints
from eunomia.model.kind_profiles import KnownRate
from eunomia.model.workload import JobState
from eunomia.units import Rows, Version

_INACTIVE = (int(JobState.EMPTY), int(JobState.PAUSED))
Key = tuple[int, int, int, float | None, float | None]
"""Kind (-1: no rates known), least, most, batch size and declared seconds an iteration (None: not known)."""
Points = Callable[[Snapshot, Rows], CurvePoints]
"""The points of curves, given a job row of each curve's group, in the order of the curves."""


def key_of(snapshot: Snapshot, job: int) -> Key | None:
    """What decides a job's curve while it was not measured itself; None: the job is not active."""
    jobs = snapshot.jobs
    if jobs.state.item(job) in _INACTIVE:
        return None
    kind = jobs.job_kind.item(job)
    known = kind in snapshot.profiles
    seconds, batch = jobs.seconds_per_iteration.item(job), jobs.batch_size.item(job)
    return (
        kind if known else -1,
        jobs.least.item(job),
        jobs.most.item(job),
        None if not known or math.isnan(batch) else batch,
        None if math.isnan(seconds) else seconds,
    )


class SharedCurves:
    """The menus of jobs that were not measured themselves: one curve for each group of equal jobs.

    Curves are in the order of the groups' keys, so the menus are a function of the snapshot.
    """

    def __init__(self) -> None:
        self._version = Version(0)
        self._profiles: Mapping[int, tuple[KnownRate, ...]] = {}
        self._keys: dict[int, Key] = {}
        self._curves: dict[Key, int] = {}
        self._jobs_on: list[int] = []
        self._menus: Menus | None = None

    def menus(self, snapshot: Snapshot, points: Points) -> Menus:
        """The menus of this snapshot; only rows that changed are looked at where the groups stay the same."""
        menus, changes = self._menus, snapshot.changed(self._version)
        same = menus is not None and menus.curve.size == snapshot.jobs.most.size and self._profiles == snapshot.profiles
        if menus is None or not same or changes is None or not self._follow(snapshot, menus, set(changes.touched)):
            menus = self._menus = self._built(snapshot, points)
        self._version, self._profiles = snapshot.version, dict(snapshot.profiles)
        return menus

    def _follow(self, snapshot: Snapshot, menus: Menus, touched: set[int]) -> bool:
        """Move changed jobs to their groups; False: a group comes or goes."""
        for job in touched:
            old, new = self._keys.get(job), key_of(snapshot, job)
            if old == new:
                continue
            if new is not None and new not in self._curves:
                return False
            if old is not None:
                self._jobs_on[self._curves[old]] -= 1
                del self._keys[job]
            if new is not None:
                self._jobs_on[self._curves[new]] += 1
                self._keys[job] = new
            menus.curve[job] = -1 if new is None else self._curves[new]
        return all(self._jobs_on)

    def _built(self, snapshot: Snapshot, points: Points) -> Menus:
        keys = {job: key for job in snapshot.active.tolist() if (key := key_of(snapshot, job)) is not None}
        first: dict[Key, int] = {}
        for job, key in keys.items():
            first.setdefault(key, job)
        ordered = sorted(first, key=lambda key: tuple(math.inf if part is None else part for part in key))
        self._keys, self._curves = keys, {key: curve for curve, key in enumerate(ordered)}
        self._jobs_on = [0] * len(ordered)
        curve = np.full(snapshot.jobs.most.size, -1, np.int32)
        for job, key in keys.items():
            curve[job] = self._curves[key]
            self._jobs_on[self._curves[key]] += 1
        return Menus(curve=curve, points=points(snapshot, np.array([first[key] for key in ordered], np.int32)))
