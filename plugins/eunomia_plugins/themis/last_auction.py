"""The memo of ``themis``: the ρ that each app could expect after its last auction.

The apps with the worst ρ are shown the next offer. For that choice, an app's ρ follows from its last bid and the time
that it has waited since, which the arbiter measures. Reports in between have no effect, so that an app gains no offer
by exaggerating between auctions (Themis, proof of Theorem 3.3). T_sh excludes the slowdown by locality that the app
reports, unless ``standing_slowdown`` is set, as T_id has none either.
"""

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple, Self

import numpy as np

from eunomia import Locality
from eunomia.units import Reals, Rows
from eunomia_plugins.themis.apps import AppViews
from eunomia_plugins.themis.rho import LEAST_SECONDS, seconds_on, waiting_factor
from eunomia_plugins.themis.winnings import Won


class Expected(NamedTuple):
    """The expectation of an app after an auction: T_sh and T_id in seconds, and the time of the auction."""

    shared: float
    ideal: float
    at: float

    def rho(self, now: float, waited: float, lease: float) -> float:
        """Return the app's present ρ: T_sh grows by one second per second of waiting after the auction.

        ``waited`` is the number of seconds for which the app has held no GPUs; 0 if it holds some.
        """
        since = min(waited, max(0.0, now - self.at))
        return max(LEAST_SECONDS, self.shared + since) / self.ideal * waiting_factor(waited, lease)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LastAuctions:
    """Expected T_sh and T_id of each app after the last auction in which it took part, by app id."""

    version: ClassVar[int] = 1
    apps: Mapping[str, Expected]

    def to_bytes(self) -> bytes:
        """Serialize the memo as JSON, sorted by id."""
        return json.dumps(self.apps, sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, version: int, data: bytes) -> Self:
        """Deserialize the memo; only version 1 exists."""
        return cls(apps={app: Expected(*map(float, row)) for app, row in json.loads(data).items()})

    def rho(self, views: AppViews, rows: Rows, before: AppViews) -> Reals:
        """Return ρ of each app from its last auction, or without one, from ``before``, the views without an offer."""
        ids, known = views.apps.snapshot.apps.id, self.apps
        expected = [known.get(ids[row]) for row in rows.tolist()]
        some, found = np.array([one is not None for one in expected], dtype=bool), np.empty(rows.size)
        if not some.all():
            found[~some] = before.rho_now(rows[~some], standing=True)
        if some.any():
            found[some] = _rho([one for one in expected if one is not None], views, rows[some])
        return found

    def after(self, views: AppViews, rows: Sequence[int], bidders: int, won: Won) -> Self:
        """Return the memo after an auction; the same object if nothing changed.

        Args:
            views: views of the apps.
            rows: rows of the bidders, then of the other apps.
            bidders: number of bidders; the entry of another app changes only if it gets leftover GPUs.
            won: GPUs of each app by machine: those that it keeps of its win, and leftovers.
        """
        names = [views.apps.snapshot.apps.id[row] for row in rows]
        if not bidders and not won and len(self.apps) == sum(name in self.apps for name in names):
            return self
        kept: dict[str, Expected] = {}
        for claim, (row, name) in enumerate(zip(rows, names, strict=True)):
            if claim < bidders or claim in won:
                kept[name] = _expected(views, row, won.get(claim, {}))
            elif name in self.apps:
                kept[name] = self.apps[name]
        return dataclasses.replace(self, apps=kept)


def _rho(expected: list[Expected], views: AppViews, rows: Rows) -> Reals:
    """Return ρ of apps as ``Expected.rho`` does, computed as columns with the same sums in the same order."""
    now, (shared, ideal, at) = views.apps.snapshot.now, np.array(expected).T
    waited = np.where(views.holding[rows], 0.0, views.apps.columns.idle[rows])
    since = np.fmin(waited, np.fmax(0.0, now - at))
    factor = 1.0 + waited / np.fmax(LEAST_SECONDS, views.leases(rows))
    rho: Reals = np.fmax(LEAST_SECONDS, shared + since) / ideal * factor
    return rho


def _expected(views: AppViews, row: int, won: Mapping[int, int]) -> Expected:
    """Return an app's T_sh and T_id with the GPUs that it keeps and wins; if none, after waiting one more lease."""
    view, snapshot = views.view(row), views.apps.snapshot
    context, work, racks = view.context, view.facts.standing, snapshot.cluster.machine_rack
    held = {machine: context.held.get(machine, 0) + won.get(machine, 0) for machine in {*context.held, *won}}
    left = seconds_on(work, context, held, {machine: racks.item(machine) for machine in held})
    if not math.isfinite(left):
        left = context.lease + work.slowest(Locality.CLUSTER)
    return Expected(shared=context.elapsed + left, ideal=context.ideal, at=snapshot.now)
