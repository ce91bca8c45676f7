"""Groups of jobs that share a curve, updated between rounds from the rows that changed."""

import math
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from eunomia import Cluster, CurvePoints, JobState, KnownRate, Menus, Snapshot
from eunomia.units import Rows, Version

MOST_POINTS: Final = 1_000_000
"""Maximum number of cached points of recurring sets of groups."""
_INACTIVE = (int(JobState.EMPTY), int(JobState.PAUSED))
Key = tuple[int, int, int, float | None, float | None, int]
"""The key of a group: kind (-1: no known rates), smallest and largest size, batch size and declared seconds per
iteration (None: not known), and the row of a measured job whose kind has no known rates (-1: other jobs)."""
Points = Callable[[Snapshot, Rows], CurvePoints]
"""Returns the points of curves, given one job row per curve, in the order of the curves."""


def key_of(snapshot: Snapshot, job: int) -> Key | None:
    """Return the inputs that determine a job's curve, or None if the job is not active."""
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
        job if not known and job in snapshot.measured else -1,
    )


class SharedCurves:
    """The menus of all jobs, with one curve per group of equal jobs.

    Curves are in the order of the groups' keys, so that the menus are a function of the snapshot.
    """

    def __init__(self) -> None:
        self._version = Version(0)
        self._profiles: Mapping[int, tuple[KnownRate, ...]] = {}
        self._cluster: Cluster | None = None
        self._keys: dict[int, Key] = {}
        self._curves: dict[Key, int] = {}
        self._jobs_on: list[dict[int, None]] = []
        self._menus: Menus | None = None
        self._known = _KnownPoints()

    def menus(self, snapshot: Snapshot, points: Points) -> Menus:
        """Return the menus of a snapshot; if the groups are unchanged, only changed rows are updated."""
        menus, changes = self._menus, snapshot.changed(self._version)
        same = menus is not None and menus.curve.size == snapshot.jobs.most.size
        same = same and self._profiles.keys() == snapshot.profiles.keys()
        learnt = self._profiles != snapshot.profiles
        if learnt or self._cluster is not snapshot.cluster:
            self._known.clear()
        if menus is None or not same or changes is None or not self._follow(snapshot, menus, set(changes.touched)):
            menus = self._menus = self._built(snapshot, points)
        elif learnt or any(self._is_own(job) for job in changes.touched):
            menus = self._menus = Menus(curve=menus.curve, points=points(snapshot, self._one_of_each()))
        self._version, self._profiles, self._cluster = snapshot.version, dict(snapshot.profiles), snapshot.cluster
        return menus

    def _is_own(self, job: int) -> bool:
        """Return whether the job has its own curve, which a new measurement changes."""
        return job in self._keys and self._keys[job][-1] >= 0

    def _one_of_each(self) -> Rows:
        """Return one job of each group, by curve."""
        return np.array([next(iter(jobs)) for jobs in self._jobs_on], np.int32)

    def _follow(self, snapshot: Snapshot, menus: Menus, touched: set[int]) -> bool:
        """Move changed jobs to their groups; return False if a group appears or disappears."""
        for job in touched:
            old, new = self._keys.get(job), key_of(snapshot, job)
            if old == new:
                continue
            if new is not None and new not in self._curves:
                return False
            if old is not None:
                del self._jobs_on[self._curves[old]][job]
                del self._keys[job]
            if new is not None:
                self._jobs_on[self._curves[new]][job] = None
                self._keys[job] = new
            menus.curve[job] = -1 if new is None else self._curves[new]
        return all(self._jobs_on)

    def _built(self, snapshot: Snapshot, points: Points) -> Menus:
        self._keys = {job: key for job in snapshot.active.tolist() if (key := key_of(snapshot, job)) is not None}
        ordered = sorted(set(self._keys.values()), key=_sortable)
        self._curves = {key: curve for curve, key in enumerate(ordered)}
        self._jobs_on = [{} for _ in ordered]
        curve = np.full(snapshot.jobs.most.size, -1, np.int32)
        for job, key in self._keys.items():
            curve[job] = self._curves[key]
            self._jobs_on[self._curves[key]][job] = None
        keys = tuple(ordered)
        found = self._known.of(keys)
        if found is None:
            found = points(snapshot, self._one_of_each())
            self._known.keep(keys, found)
        return Menus(curve=curve, points=found)


class _KnownPoints:
    """A cache of the points of sets of groups, valid while the known rates by kind are unchanged.

    The points are a function of the keys. Small groups appear and disappear often, so the same sets recur.
    """

    def __init__(self) -> None:
        self._of: dict[tuple[Key, ...], CurvePoints] = {}
        self._points = 0

    def of(self, keys: tuple[Key, ...]) -> CurvePoints | None:
        """Return the points of these groups, or None if they are not cached."""
        return self._of.get(keys)

    def keep(self, keys: tuple[Key, ...], points: CurvePoints) -> None:
        """Cache the points of these groups, unless a group is that of a single measured job."""
        if any(key[-1] >= 0 for key in keys):
            return
        if self._points + points.gpus.size > MOST_POINTS:
            self.clear()
        self._of[keys] = points
        self._points += points.gpus.size

    def clear(self) -> None:
        """Drop all cached points."""
        self._of.clear()
        self._points = 0


def _sortable(key: Key) -> tuple[float, ...]:
    return tuple(math.inf if part is None else part for part in key)
