"""Part 3, who held what: a row a slot, from the leases and what was done under them."""

from __future__ import annotations

import bisect
import math
from collections import defaultdict
from collections.abc import Iterator

import polars as pl

from eunomia_testbed.report.part import Json, Part, rounded, table_of
from eunomia_testbed.report.words import count, duration, reason_in_words
from eunomia_testbed.results.run_data import RunData

MOST_ROWS, MOST_BARS, MOST_EVENTS = 64, 10_000, 2_000
"""Above these a Gantt chart is neither readable nor small."""


def who_held_what(run: RunData) -> Part | None:
    """The part; None where nothing was held, or by more slots than a Gantt chart shows."""
    bars = _bars(run)
    rows = [(machine, slot) for machine, slot in bars.select("machine", "slot").unique().sort("machine", "slot").rows()]
    if not 0 < len(rows) <= MOST_ROWS or bars.height > MOST_BARS:
        return None
    place = {key: at for at, key in enumerate(rows)}
    notes = _Notes(run)
    columns = bars.select("machine", "slot", "start_seconds", "end_seconds", "app", "job", "activity")
    drawn = [
        [
            place[machine, slot],
            rounded(start, 3),
            rounded(end, 3),
            app,
            job,
            activity,
            notes.number(machine, slot, job, end),
        ]
        for machine, slot, start, end, app, job, activity in columns.iter_rows()
    ]
    events = run.events.sort("time_seconds", maintain_order=True).head(MOST_EVENTS)
    return Part(
        name="held",
        title="Who held what",
        question="Who ran when, what was interrupted, what stood idle?",
        data={
            "rows": [{"machine": machine, "slot": slot} for machine, slot in rows],
            "bars": drawn,
            "notes": notes.texts,
            "rounds": list(_rounds(run)),
            "faults": list(_faults(run)),
        },
        tables=[table_of(events, f"What happened, {count(run.events.height, 'event')}", folded=True)]
        if events.height
        else [],
    )


def _bars(run: RunData) -> pl.DataFrame:
    """What slots did; where only leases are known, or there are too many segments, each lease as one bar."""
    if 0 < run.segments.height <= MOST_BARS:
        return run.segments.sort("machine", "slot", "start_seconds", maintain_order=True)
    ended = run.leases.filter(pl.col("end_seconds").is_not_null())
    bars = ended.with_columns(activity=pl.lit("run"), job=pl.coalesce("job", "app"))
    return bars.sort("machine", "slot", "start_seconds", maintain_order=True)


def _rounds(run: RunData) -> Iterator[Json]:
    """Time, number and what changed, for each round."""
    changes = ("started", "kept", "grown", "shrunk", "migrated", "suspended")
    for row in run.rounds.sort("round").iter_rows(named=True):
        text = ", ".join(f"{row[name]} {name}" for name in changes if row[name])
        yield [rounded(row["time_seconds"], 3), row["round"], row["trigger"], row["free_slots"], text, row["fault"]]


def _faults(run: RunData) -> Iterator[Json]:
    """Time, text and app of everything that is marked with a cross."""
    marked = run.events.filter(pl.col("kind").str.starts_with("fault"))
    for row in marked.sort("time_seconds", maintain_order=True).iter_rows(named=True):
        yield [rounded(row["time_seconds"], 3), row["text"] or row["kind"], row["app"]]
    for row in run.rounds.filter(pl.col("fault").is_not_null()).iter_rows(named=True):
        yield [rounded(row["time_seconds"], 3), f"round {row['round']}: {row['fault']}", None]


class _Notes:
    """What a bar's tooltip says of the end of its lease and of the wait after it."""

    def __init__(self, run: RunData) -> None:
        self._numbers: dict[str, int] = {}
        self._leases: dict[tuple[str, int], list[tuple[float, float, str]]] = defaultdict(list)
        columns = run.leases.sort("start_seconds").select("machine", "slot", "start_seconds", "end_seconds", "ended_by")
        for machine, slot, start, end, ended_by in columns.iter_rows():
            self._leases[machine, slot].append((start, math.inf if end is None else end, ended_by or ""))
        self._waits: dict[str, list[tuple[float, float, str, str]]] = defaultdict(list)
        named = run.waits.sort("start_seconds").select("job", "start_seconds", "end_seconds", "reason", "plugin")
        for job, start, end, reason, plugin in named.iter_rows():
            self._waits[job].append((start, math.inf if end is None else end, reason, plugin or ""))
        starts = run.leases.drop_nulls("job").sort("start_seconds").group_by("job", maintain_order=True)
        self._starts = {str(key[0]): group["start_seconds"].to_list() for key, group in starts}

    def number(self, machine: str, slot: int, job: str, moment: float) -> int:
        """Place of the text in ``texts``, where each text stands once."""
        text = self._of(machine, slot, job, moment)
        return self._numbers.setdefault(text, len(self._numbers))

    @property
    def texts(self) -> list[str]:
        """The texts by number."""
        return list(self._numbers)

    def _of(self, machine: str, slot: int, job: str, moment: float) -> str:
        """Such as ``lease expired at 41.2 s; then waited 6.1 s: outbid ...``; empty where nothing is known."""
        leases = self._leases[machine, slot]
        at = bisect.bisect_left(leases, moment - 1e-6, key=lambda lease: lease[1])
        if at == len(leases) or leases[at][0] > moment or leases[at][1] == math.inf:
            return ""
        _, end, ended_by = leases[at]
        said = f"lease {ended_by or 'ended'} at {duration(end)}"
        return "; ".join([said, *self._waited(job, end)])

    def _waited(self, job: str, since: float) -> Iterator[str]:
        """What the job waited for from then on until its next lease, longest first, at most two reasons."""
        starts = self._starts.get(job, [])
        after = bisect.bisect_left(starts, since - 1e-6)
        until = starts[after] if after < len(starts) else math.inf
        spent: dict[tuple[str, str], float] = defaultdict(float)
        for start, end, reason, plugin in self._waits.get(job, []):
            overlap = min(end, until) - max(start, since)
            if 1e-6 < overlap < math.inf:
                spent[reason, plugin] += overlap
        for (reason, plugin), seconds in sorted(spent.items(), key=lambda item: -item[1])[:2]:
            says = f" (says {plugin})" if plugin else ""
            yield f"then waited {duration(seconds)} because {reason_in_words(reason)}{says}"
