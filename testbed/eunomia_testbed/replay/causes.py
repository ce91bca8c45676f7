"""Slot time by cause: each moment of each slot has exactly one cause, so that the causes sum to the whole slot time.

Times are counted in whole microseconds, which makes the sum exact.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import polars as pl

from eunomia.model.shapes import builds, value
from eunomia_testbed.metrics.size_changes import Span, changes_of
from eunomia_testbed.results.run_data import RunData

_MICRO: Final = 1_000_000


class Cause(enum.StrEnum):
    """A cause of slot time: what a slot's time is spent on."""

    USEFUL = "useful"
    """A job makes steps."""
    START = "start"
    """A job starts for the first time."""
    RESTORE = "restore"
    """A job starts from its checkpoint."""
    SAVE = "save"
    """A job that was ordered to suspend saves its checkpoint and ends its processes."""
    FINISH = "finish"
    """A job has made its last step, and runs its evaluation, saves its last checkpoint and ends its processes."""
    RESIZE = "resize"
    """A running job makes no step while it changes its size, live or by a restart, or a slot that the job gains or
    loses by the change waits for it."""
    PROBE = "probe"
    """A job holds the slot without using it, while the job's rate is measured on fewer slots."""
    AUCTION = "auction"
    """The arbiter waits for bids while a job waits for the slot."""
    DECIDING = "deciding"
    """The arbiter decides, or its order is on its way, while a job waits for the slot."""
    BETWEEN = "idle between leases"
    """The slot is idle although a job waits, or although the slot's lease has not ended."""
    ARRIVE = "app masters start"
    """The slot is free and no job waits for it, but the app master of an app that has arrived has added no job yet."""
    UNWANTED = "no job waits"
    """The slot is free, and nothing waits for it."""


_OF_ACTIVITY: Final[Mapping[str, Cause]] = {
    "run": Cause.USEFUL,
    "start": Cause.START,
    "restore": Cause.RESTORE,
    "save": Cause.SAVE,
}


@builds
class Decisions:
    """Periods that are missing from a run's tables, as spans of seconds since the first arrival.

    Attributes:
        auctions: rounds that waited for bids, from their cause to their decision.
        others: all other rounds.
        finishes: by job, from the job's last step to the end of its processes.
        resizes: by job, the pauses in which the job changed its size.
    """

    auctions: Sequence[tuple[float, float]] = ()
    others: Sequence[tuple[float, float]] = ()
    finishes: Mapping[str, Sequence[tuple[float, float]]] = dataclasses.field(default_factory=dict)
    resizes: Mapping[str, Sequence[tuple[float, float]]] = dataclasses.field(default_factory=dict)


_ORDER: Final = (Cause.RESIZE, Cause.FINISH, Cause.SAVE, Cause.RESTORE, Cause.START, Cause.USEFUL)
"""The causes of a slot that a job uses, the strongest first."""
_USES: Final = len(_ORDER)
NO_DECISIONS: Final = Decisions()
"""Decisions of a simulated run, in which decisions take no time."""


@value
class SlotTime:
    """The slot time of a run by cause."""

    microseconds: Mapping[Cause, int]

    @property
    def whole_seconds(self) -> float:
        """Return the whole slot time in slot-seconds: slots times makespan."""
        return sum(self.microseconds.values()) / _MICRO

    def seconds(self, cause: Cause) -> float:
        """Return the slot-seconds of a cause."""
        return self.microseconds.get(cause, 0) / _MICRO

    def share(self, cause: Cause) -> float:
        """Return a cause's fraction of the slot time; 0 if the slot time is 0."""
        whole = sum(self.microseconds.values())
        return self.microseconds.get(cause, 0) / whole if whole else 0.0

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each cause, in the order of ``Cause``."""
        return [
            {"cause": cause.value, "slot_seconds": self.seconds(cause), "share": self.share(cause)} for cause in Cause
        ]


def partition(whole: Span, layers: Sequence[tuple[Cause, Iterable[Span]]], rest: Cause) -> dict[Cause, int]:
    """Return the microseconds of a period by cause: each moment has the first cause whose spans contain it.

    Args:
        whole: start and end of the period.
        layers: causes with their spans, which may overlap each other and the period's ends.
        rest: cause of the time that no span contains.
    """
    free: list[Span] = [whole] if whole[1] > whole[0] else []
    found: dict[Cause, int] = defaultdict(int)
    for cause, spans in layers:
        free, taken = _without(free, merged(spans))
        found[cause] += taken
    found[rest] += sum(end - start for start, end in free)
    return dict(found)


def merged(spans: Iterable[Span]) -> list[Span]:
    """Return the spans sorted, with overlapping and adjacent ones merged and empty ones dropped."""
    made: list[Span] = []
    for start, end in sorted(spans):
        if end <= start:
            continue
        if made and start <= made[-1][1]:
            made[-1] = made[-1][0], max(made[-1][1], end)
        else:
            made.append((start, end))
    return made


def _without(free: Sequence[Span], spans: Sequence[Span]) -> tuple[list[Span], int]:
    """Return the parts of ``free`` outside ``spans``, and the time inside; both lists are sorted and disjoint."""
    left: list[Span] = []
    taken, at = 0, 0
    for start, end in free:
        while at < len(spans) and spans[at][1] <= start:
            at += 1
        begin, following = start, at
        while following < len(spans) and spans[following][0] < end:
            inner = max(begin, spans[following][0]), min(end, spans[following][1])
            if inner[0] > begin:
                left.append((begin, inner[0]))
            taken += inner[1] - inner[0]
            begin = inner[1]
            following += 1
        if begin < end:
            left.append((begin, end))
    return left, taken


def slot_time(data: RunData, policy: str, seed: int, decisions: Decisions = NO_DECISIONS) -> SlotTime:
    """Return the slot time by cause of one run, from the first arrival to the last end.

    Args:
        data: tables of a real or a simulated run.
        policy: the policy of the run.
        seed: the seed of the run.
        decisions: periods that are missing from the tables.
    """
    segments, leases, waits, apps, jobs = (
        _of(frame, policy, seed) for frame in (data.segments, data.leases, data.waits, data.apps, data.jobs)
    )
    end = _end(segments, leases, apps)
    whole = 0, end
    waiting = merged(_spans(waits.filter(pl.col("reason") != "paused_by_app"), end))
    common = [*_common(decisions, waiting), (Cause.ARRIVE, _arriving(apps, jobs))]
    found: dict[Cause, int] = defaultdict(int)
    held, busy = _by_slot(leases), _by_slot(segments)
    changes = changes_of(segments, leases, end)
    for slot in held.keys() | busy.keys():
        resized = [change.lost[slot] for change in changes if slot in change.lost]
        measured = [change.unused[slot] for change in changes if slot in change.unused]
        mine = _of_slot(busy.get(slot), held.get(slot), decisions, end)
        layers = [(Cause.RESIZE, resized), *mine[:_USES], (Cause.PROBE, measured), *mine[_USES:], *common]
        for cause, spent in partition(whole, layers, Cause.UNWANTED).items():
            found[cause] += spent
    unused = _slots(data) - len(held.keys() | busy.keys())
    for cause, spent in partition(whole, common, Cause.UNWANTED).items():
        found[cause] += max(0, unused) * spent
    return SlotTime(microseconds={cause: found.get(cause, 0) for cause in Cause})


def _common(decisions: Decisions, waiting: Sequence[Span]) -> list[tuple[Cause, Sequence[Span]]]:
    """Return the causes of a slot that no job uses: rounds, and the time between rounds, while a job waits."""
    auctions = _both([_micro(*span) for span in decisions.auctions], waiting)
    others = _both([_micro(*span) for span in decisions.others], waiting)
    return [(Cause.AUCTION, auctions), (Cause.DECIDING, others), (Cause.BETWEEN, waiting)]


def _arriving(apps: pl.DataFrame, jobs: pl.DataFrame) -> list[Span]:
    """Return the span from each app's arrival to the arrival of its first job."""
    first = jobs.group_by("app").agg(added=pl.col("arrival_seconds").min())
    both = apps.select("app", "arrival_seconds").join(first, on="app").drop_nulls()
    return [_micro(start, added) for _, start, added in both.iter_rows()]


def _of_slot(
    busy: pl.DataFrame | None, held: pl.DataFrame | None, decisions: Decisions, end: int
) -> list[tuple[Cause, Iterable[Span]]]:
    """Return the causes of a slot's time under leases, the strongest first."""
    by_cause: dict[Cause, list[Span]] = defaultdict(list)
    if busy is not None:
        for job, start, over, activity in busy.select("job", "start_seconds", "end_seconds", "activity").iter_rows():
            cause = _OF_ACTIVITY.get(activity)
            if cause is None:
                continue
            span = _micro(start, over)
            by_cause[cause].append(span)
            if cause is Cause.USEFUL:
                for more, of in ((Cause.FINISH, decisions.finishes), (Cause.RESIZE, decisions.resizes)):
                    by_cause[more] += _both([span], merged(_micro(*each) for each in of.get(job, ())))
    leases = [] if held is None else _spans(held, end)
    before = [_until_first(lease, by_cause) for lease in leases]
    return [*((cause, by_cause[cause]) for cause in _ORDER), (Cause.DECIDING, before), (Cause.BETWEEN, leases)]


def _until_first(lease: Span, by_cause: Mapping[Cause, Sequence[Span]]) -> Span:
    """Return the span of a lease before its first activity; empty: the lease had no activity."""
    starts = [start for spans in by_cause.values() for start, end in spans if start < lease[1] and end > lease[0]]
    return lease[0], max(lease[0], min(starts, default=lease[0]))


# -- small parts


def _micro(start: float, end: float) -> Span:
    return round(start * _MICRO), round(end * _MICRO)


def _spans(frame: pl.DataFrame, end: int) -> list[Span]:
    """Return the periods of the rows; a row without an end lasts until the end of the run."""
    rows = frame.select("start_seconds", "end_seconds").iter_rows()
    return [
        (round(start * _MICRO), end if over is None or math.isnan(over) else round(over * _MICRO))
        for start, over in rows
    ]


def _both(spans: Iterable[Span], others: Sequence[Span]) -> list[Span]:
    """Return the intersections of ``spans`` with ``others``, which are sorted and disjoint."""
    return [
        (max(start, first), min(end, last))
        for start, end in spans
        for first, last in others
        if first < end and last > start
    ]


def _of(frame: pl.DataFrame, policy: str, seed: int) -> pl.DataFrame:
    return frame.filter((pl.col("policy") == policy) & (pl.col("seed") == seed))


def _by_slot(frame: pl.DataFrame) -> dict[tuple[Any, ...], pl.DataFrame]:
    return frame.partition_by("machine", "slot", as_dict=True)


def _end(*frames: pl.DataFrame) -> int:
    """Return the latest time in the frames, in microseconds; 0: they have none."""
    names = ("finish_seconds", "end_seconds", "start_seconds")
    ends = [frame[name].cast(pl.Float64).fill_nan(None).max() for frame in frames for name in names if name in frame]
    return max((round(float(at) * _MICRO) for at in ends if isinstance(at, int | float)), default=0)


def _slots(data: RunData) -> int:
    return 0 if data.facts is None else data.facts.slots or 0
