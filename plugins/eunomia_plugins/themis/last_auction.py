"""The memo of ``themis``: the ρ that each app could expect after its last auction.

The apps with the worst ρ are shown the next offer. An app's ρ for that choice follows from its last bid and from the
time that it has waited since, which the arbiter measures itself. What the app reports in the meantime changes nothing,
so that an app gains no offer by exaggerating between auctions (Themis, proof of Theorem 3.3).
"""

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping
from typing import ClassVar, NamedTuple, Self

from eunomia.units import Locality, Rows
from eunomia_plugins.themis.apps import AppView
from eunomia_plugins.themis.rho import LEAST_SECONDS, seconds_on, waiting_factor
from eunomia_plugins.themis.winnings import Pieces


class Expected(NamedTuple):
    """An app after an auction: T_sh and T_id in seconds, and the time of the auction."""

    shared: float
    ideal: float
    at: float

    def rho(self, now: float, waited: float, lease: float) -> float:
        """Return the app's ρ now: T_sh grows by one second for each second of waiting after the auction.

        Args:
            now: in seconds.
            waited: seconds for which it has held no GPUs; 0: it holds some.
            lease: length of a lease in seconds.
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

    def rho(self, view: AppView, now: float, otherwise: float) -> float:
        """Return the ρ of an app by its last auction; ``otherwise`` if it took part in none."""
        expected = self.apps.get(view.name)
        return otherwise if expected is None else expected.rho(now, view.context.waited, view.context.lease)

    def after(self, views: Iterable[AppView], now: float, bidders: int, won: Iterable[Pieces], racks: Rows) -> Self:
        """Return the memo after an auction.

        Args:
            views: of the bidders, then of the other apps.
            now: time of the auction in seconds.
            bidders: number of bidders; the entry of another app changes only if it gets leftover GPUs.
            won: GPUs of each app by machine: what it keeps of its win, and leftovers.
            racks: rack of each machine.
        """
        more = _by_claim(won)
        kept: dict[str, Expected] = {}
        for claim, view in enumerate(views):
            if claim < bidders or claim in more:
                kept[view.name] = _expected(view, more.get(claim, {}), now, racks)
            elif view.name in self.apps:
                kept[view.name] = self.apps[view.name]
        return dataclasses.replace(self, apps=kept)


def _by_claim(won: Iterable[Pieces]) -> dict[int, dict[int, int]]:
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
    left = seconds_on(view.work, context, held, {machine: int(racks[machine]) for machine in held})
    if not math.isfinite(left):
        left = context.lease + view.work.slowest(Locality.CLUSTER)
    return Expected(shared=context.elapsed + left, ideal=context.ideal, at=now)
