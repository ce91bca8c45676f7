"""The periods that are missing from a real run's tables: rounds, ends after last steps, pauses of live changes."""

from __future__ import annotations

import math
from collections import defaultdict

from eunomia_testbed.live_runs.live_log import LiveLog
from eunomia_testbed.live_runs.record import LiveRecord
from eunomia_testbed.replay.causes import Decisions
from eunomia_testbed.replay.measuring.reading import starts_of


def decisions_of(record: LiveRecord) -> Decisions:
    """Return the periods for ``slot_time``, in seconds as in the tables; the record must be read to its end."""
    live = LiveLog(record)
    auctions: list[tuple[float, float]] = []
    others: list[tuple[float, float]] = []
    for made in record.rounds.rounds:
        if made.decided_at is not None and made.decided_at > made.at:
            (auctions if made.lines else others).append((live.since(made.at), live.since(made.decided_at)))
    finishes: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for start in (start for app in record.apps for start in starts_of(record, app)):
        if start.end is not None and start.end.event == "finished" and not math.isnan(start.last_at):
            finishes[live.name(start.job)].append((live.since(start.last_at), live.since(start.end.at)))
    resizes: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for line in record.lines:
        if line.pause_seconds is not None:
            resizes[live.name(line.job)].append((live.since(line.at - line.pause_seconds), live.since(line.at)))
    return Decisions(auctions=auctions, others=others, finishes=dict(finishes), resizes=dict(resizes))
