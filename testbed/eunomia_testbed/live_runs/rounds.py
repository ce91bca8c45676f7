"""Reads rounds and auctions from a journal's decisions."""

import dataclasses
from collections import Counter
from typing import Any

from eunomia.contract.decisions import Decision
from eunomia.journal.journal import Step
from eunomia.units import Cause
from eunomia_testbed.live_runs.run_part import WHOLE, RunPart
from eunomia_testbed.results.record_names import COLUMNS


@dataclasses.dataclass(slots=True, kw_only=True)
class Round:
    """A round of the arbiter from trigger to decision; a round with bids spans two steps of the journal.

    Attributes:
        at: Unix time at which it began.
        decided_at: Unix time of the decision; None: not decided yet.
        offered: number of slots on offer.
        shown_to: number of apps that received the offer; None: all apps.
        busy: number of slots held when the round began.
        kept: number of leases renewed.
        revoked: number of slots that their holders had to release.
        changes: number of leases by kind of transition, such as ``started`` or ``grown``.
        records: rows of each plugin's record.
    """

    number: int
    at: float
    causes: tuple[str, ...]
    running: int
    waiting: int
    busy: int
    decided_at: float | None = None
    offered: int = 0
    shown_to: int | None = None
    kept: int = 0
    revoked: int = 0
    changes: Counter[str] = dataclasses.field(default_factory=Counter)
    records: dict[str, list[dict[str, Any]]] = dataclasses.field(default_factory=dict)
    gap: float | None = None
    fault: str | None = None

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Return the rows of the round's auction; empty: no auction was held."""
        return [row for rows in self.records.values() for row in rows if "c" in row]

    @property
    def bidders(self) -> int:
        """Return the number of apps that bid in the round's auction."""
        return sum(bool(row["bidder"]) for row in self.lines)

    @property
    def paid(self) -> bool:
        """Return whether an app paid, that is, some c_i is below 1."""
        return any(row["c"] is not None and row["c"] < 1.0 - 1e-9 for row in self.lines)


class Rounds:
    """The rounds of a run, derived from the steps of a journal.

    Args:
        part: the run whose apps' rows in plugins' records are kept.
    """

    def __init__(self, part: RunPart = WHOLE) -> None:
        self.rounds: list[Round] = []
        self._part = part

    @property
    def auctions(self) -> list[Round]:
        """Return the rounds in which an auction was held."""
        return [each for each in self.rounds if each.lines]

    @property
    def contested(self) -> list[Round]:
        """Return the auctions with at least two bids and some c_i below 1."""
        return [each for each in self.auctions if each.bidders >= 2 and each.paid]

    def take(self, step: Step, *, running: int, waiting: int, busy: int) -> None:
        """Add one step of the journal; the counts of jobs and slots describe the state before the step."""
        decision = step.decision
        if not decision.causes:
            return
        if decision.closed is None or not self.rounds:
            causes = tuple(sorted(cause.value for cause in decision.causes if isinstance(cause, Cause)))
            self.rounds.append(
                Round(number=decision.round, at=step.at, causes=causes, running=running, waiting=waiting, busy=busy)
            )
        _add(self.rounds[-1], decision, step.at, self._part)


def _add(made: Round, decision: Decision, at: float, part: RunPart) -> None:
    for offer in decision.offers:
        made.offered = int(offer.gpus.size)
        made.shown_to = None if offer.apps is None else len(offer.apps)
    if not decision.offers:
        made.decided_at = at
    made.kept += len(decision.renewals)
    made.revoked += sum(len(order.listed["leaving"]) for order in decision.transitions)
    made.changes.update(order.kind.effect.past for order in decision.transitions)
    for record in decision.records:
        known = COLUMNS if record.table == "auction" else {name: name for name in record.columns}
        columns = {known.get(name, name): column for name, column in record.columns.items()}
        rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
        head = {"round": decision.round, "decided_at": at}
        mine = [row for each in rows if (row := part.row(each)) is not None]
        made.records.setdefault(record.plugin, []).extend(head | row for row in mine)
        gaps = [row["gap"] for row in rows if isinstance(row.get("gap"), float)]
        made.gap = max(gaps, default=made.gap)
    faults = [f"{fault.plugin}: {fault.what}" for fault in decision.faults if fault.stage is not None]
    made.fault = "; ".join(faults) or made.fault
