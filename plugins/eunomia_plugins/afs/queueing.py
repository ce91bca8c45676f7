"""The seconds that each candidate takes at its smallest size, computed again only for jobs whose values changed."""

import numpy as np

from eunomia import ByCurve, Menus, Snapshot
from eunomia.contract.menus import CurvePoints
from eunomia.units import Reals, Rows, Version


class FirstSeconds:
    """By job row. A function of the snapshot, the menus and the values: what it keeps saves work only."""

    def __init__(self) -> None:
        self._points: CurvePoints | None = None
        self._version = Version(0)
        self._known: Reals = np.empty(0)

    def of(self, snapshot: Snapshot, menus: Menus, form: ByCurve, candidates: Rows) -> Reals:
        """Seconds left at the smallest size of each candidate; inf: it has no size."""
        changes = snapshot.changed(self._version) if self._points is menus.points else None
        size = snapshot.jobs.most.size
        if changes is None or self._known.size != size:
            self._known = np.full(size, np.inf)
            self._update(form, candidates)
        else:
            # A job that runs has less left at every moment.
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
