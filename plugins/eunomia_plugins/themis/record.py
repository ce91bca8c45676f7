"""The record of an auction for the journal and the report: one row per app that bid or got GPUs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from eunomia.contract.records import PlainColumn


class Line(NamedTuple):
    """The record of one app in one auction.

    Attributes:
        app: id of the app.
        bid: whether it bid; if not, it only got leftovers.
        rho_now: ρ with the GPUs that it held; None if it did not bid.
        gpus_least: size of its smallest bundle; 0: none.
        rho_least: ρ with its best bundle of that size.
        gain: ρ now over ρ with the bundle won, or with its smallest bundle.
        gpus_won: number of GPUs of the bundle won; 0: none.
        rho_won: ρ with the bundle won.
        kept: c_i of a winner.
        pays: the hidden payment of a winner, 1 - c_i.
        gpus_kept: number of GPUs of the bundle that it keeps.
        gpus_left_over: number of leftover GPUs that it got.
        bid_table: its best ρ by size, such as ``1: 0.95, 2: 0.8``.
    """

    app: str
    bid: bool
    rho_now: float | None = None
    gpus_least: int = 0
    rho_least: float | None = None
    gain: float | None = None
    gpus_won: int = 0
    rho_won: float | None = None
    kept: float | None = None
    pays: float | None = None
    gpus_kept: int = 0
    gpus_left_over: int = 0
    bid_table: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuctionRecord:
    """The record of an auction: its bids, winners, payments and leftovers.

    Attributes:
        lines: the bidders in the order of their claims, then other apps that got leftovers.
        gpus_offered: number of GPUs on offer.
        apps_active: number of active apps, of which those with the worst ρ were shown the offer.
        method: the algorithm that solved the auction.
        gap: distance to the optimum in the logarithm of the product; 0: exact.
    """

    table: ClassVar[str] = "auction"
    lines: tuple[Line, ...]
    gpus_offered: int
    apps_active: int
    method: str
    gap: float

    def columns(self) -> Mapping[str, PlainColumn]:
        """Return columns of plain values, named after the fields of ``Line`` and of this record."""
        alike: dict[str, Any] = {
            "gpus_offered": self.gpus_offered,
            "bidders": sum(line.bid for line in self.lines),
            "apps_active": self.apps_active,
            "method": self.method,
            "gap": self.gap,
        }
        columns = {name: [line[at] for line in self.lines] for at, name in enumerate(Line._fields)}
        return columns | {name: [one] * len(self.lines) for name, one in alike.items()}
