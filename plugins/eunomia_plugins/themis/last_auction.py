"""The memo of ``themis``: the ρ that each app could expect after its last auction.

The apps with the worst ρ are shown the next offer. An app's ρ for that choice follows from its last bid and from the
time that it has waited since, which the arbiter measures itself. What the app reports in the meantime changes nothing,
so that an app gains no offer by exaggerating between auctions (Themis, proof of Theorem 3.3). T_sh is without the
slowdown by distance that the app reports, unless ``standing_slowdown`` is set: T_id has none either.
"""

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, NamedTuple, Self

import numpy as np

from eunomia import Locality
from eunomia.units import Reals, Rows
from eunomia_plugins.themis.apps import FEW, AppView, AppViews
from eunomia_plugins.themis.rho import LEAST_SECONDS, seconds_on, waiting_factor
from eunomia_plugins.themis.winnings import Pieces


class Expected(NamedTuple):
    """An app after an auction: T_sh and T_id in seconds, and the time of the auction."""

    shared: float
    ideal: float
    at: float

    def rho(self, now: float, waited: float, lease: float) -> float:
        """Return the app's ρ now: T_sh grows by one second for each second of waiting after the auction.

        ``waited``: seconds for which it has held no GPUs; 0: it holds some.
        """
        since = min(waited, max(0.0, now - self.at))
        return max(LEAST_SECONDS, self.shared + since) / self.ideal * waiting_factor(waited, lease)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LastAuctions:
    """By app id: its expected T_sh and T_id after the last auction in which it took part."""

    version: ClassVar[int] = 1
    apps: Mapping[str, Expected]

    def to_bytes(self) -> bytes:
        """As JSON, sorted by id."""
        return json.dumps(self.apps, sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, version: int, data: bytes) -> Self:
        """Decode; only version 1 exists."""
        return cls(apps={app: Expected(*map(float, row)) for app, row in json.loads(data).items()})

    def rho(self, views: AppViews, rows: Rows, before: AppViews) -> Reals:
        """Return ρ of each app by the last auction in which it took part; if in none, ``before`` leases ended."""
        ids, known, now = views.apps.snapshot.apps.id, self.apps, views.apps.snapshot.now
        expected = [known.get(ids[row]) for row in rows.tolist()]
        some, found = np.array([one is not None for one in expected], dtype=bool), np.empty(rows.size)
        if not some.all():
            found[~some] = before.rho_now(rows[~some], standing=True)
        taken = [one for one in expected if one is not None]
        if len(taken) > FEW:
            found[some] = _as_columns(taken, views, rows[some])
        else:
            contexts = [views.view(row).context for row in rows[some].tolist()]
            pairs = zip(taken, contexts, strict=True)
            found[some] = [one.rho(now, context.waited, context.lease) for one, context in pairs]
        return found

    def after(self, views: Sequence[AppView], now: float, bidders: int, won: Iterable[Pieces], racks: Rows) -> Self:
        """Return the memo after an auction; itself if nothing of it changes.

        Args:
            views: of the bidders, then of the other apps.
            now: time of the auction in seconds.
            bidders: number of bidders; the entry of another app changes only if it gets leftover GPUs.
            won: GPUs of each app by machine: what it keeps of its win, and leftovers.
            racks: rack of each machine.
        """
        more = by_claim(won)
        if not bidders and not more and len(self.apps) == sum(view.name in self.apps for view in views):
            return self
        kept: dict[str, Expected] = {}
        for claim, view in enumerate(views):
            name = view.name
            if claim < bidders or claim in more:
                kept[name] = _expected(view, more.get(claim, {}), now, racks)
            elif name in self.apps:
                kept[name] = self.apps[name]
        return dataclasses.replace(self, apps=kept)


def _as_columns(expected: list[Expected], views: AppViews, rows: Rows) -> Reals:
    """Return ρ of apps by ``Expected.rho``, as columns with the same sums in the same order."""
    now, (shared, ideal, at) = views.apps.snapshot.now, np.array(expected).T
    waited = np.where(views.holding[rows], 0.0, views.apps.columns.idle[rows])
    since = np.fmin(waited, np.fmax(0.0, now - at))
    factor = 1.0 + waited / np.fmax(LEAST_SECONDS, views.leases(rows))
    rho: Reals = np.fmax(LEAST_SECONDS, shared + since) / ideal * factor
    return rho


def by_claim(won: Iterable[Pieces]) -> dict[int, dict[int, int]]:
    """GPUs by claim and machine."""
    found: dict[int, dict[int, int]] = {}
    for pieces in won:
        columns = (pieces.claim.tolist(), pieces.machine.tolist(), pieces.gpus.tolist())
        for claim, machine, gpus in zip(*columns, strict=True):
            machines = found.setdefault(claim, {})
            machines[machine] = machines.get(machine, 0) + gpus
    return found


def _expected(view: AppView, won: Mapping[int, int], now: float, racks: Rows) -> Expected:
    """Return an app's T_sh and T_id with the GPUs that it keeps and wins; without any, after waiting one more lease."""
    context = view.context
    held = {machine: context.held.get(machine, 0) + won.get(machine, 0) for machine in {*context.held, *won}}
    work = view.facts.standing
    left = seconds_on(work, context, held, {machine: int(racks[machine]) for machine in held})
    if not math.isfinite(left):
        left = context.lease + work.slowest(Locality.CLUSTER)
    return Expected(shared=context.elapsed + left, ideal=context.ideal, at=now)
