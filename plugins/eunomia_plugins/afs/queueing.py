"""Cache the inputs of stage one by candidate, and recompute those that may have changed."""

from typing import Final

import numpy as np

from eunomia import ByCurve, CurvePoints, Menus, Snapshot
from eunomia.units import Ints, Reals, Rows, Version

_UNKNOWN: Final = -1


class FirstSeconds:
    """A cache, by job row, of the seconds left at the smallest size; results depend on the arguments only."""

    def __init__(self) -> None:
        self._points: CurvePoints | None = None
        self._version = Version(0)
        self._known: Reals = np.empty(0)

    def of(self, snapshot: Snapshot, menus: Menus, form: ByCurve, candidates: Rows) -> Reals:
        """Return the seconds left of each candidate at its smallest size; inf if it has no size."""
        changes = snapshot.changed(self._version) if self._points is menus.points else None
        size = snapshot.jobs.most.size
        if changes is None or self._known.size != size:
            self._known = np.full(size, np.inf)
            self._update(form, candidates)
        else:
            # The seconds left of a running job decrease with time.
            wanted = np.zeros(size, bool)
            wanted[list(changes.touched)] = True
            stale = wanted[candidates] | ~np.isnan(snapshot.jobs.since[candidates])
            self._update(form, candidates[stale])
        self._points, self._version = menus.points, snapshot.version
        found: Reals = self._known[candidates]
        return found

    def _update(self, form: ByCurve, jobs: Rows) -> None:
        if jobs.size == 0:
            return
        curves, lengths = form.keys(jobs)
        for curve in np.flatnonzero(np.bincount(curves)).tolist():
            at = np.flatnonzero(curves == curve)
            sizes, values = form.values(curve, lengths[at])
            self._known[jobs[at]] = -values[:, 0] if sizes.size else np.inf


class CurvesWithSizes:
    """A cache of whether each curve has a size; results depend on the menus' points only."""

    def __init__(self) -> None:
        self._points: CurvePoints | None = None
        self._has = np.full(1, _UNKNOWN, np.int8)  # by curve; the last entry stands for jobs without a curve

    def able(self, menus: Menus, form: ByCurve, candidates: Rows) -> Ints:
        """Return the indices, ascending, of the candidates that have a size."""
        curves = menus.curve[candidates]
        if self._points is not menus.points or curves.max(initial=-1) + 2 > self._has.size:
            self._points = menus.points
            self._has = np.full(int(curves.max(initial=-1)) + 2, _UNKNOWN, np.int8)
        has = self._has[curves]
        while (unknown := np.flatnonzero(has == _UNKNOWN)).size:
            first = unknown[:1]
            keys, lengths = form.keys(candidates[first])
            self._has[curves[first]] = form.values(int(keys[0]), lengths)[0].size > 0
            has = self._has[curves]
        return np.flatnonzero(has)
