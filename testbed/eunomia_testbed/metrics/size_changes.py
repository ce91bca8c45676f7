"""Size changes of running jobs, found in the tables of a run, with the pauses of the jobs and the slots affected.

A job changes its size if it makes steps on other slots than before and has held one of the earlier slots throughout.
A live change counts like one by saving, starting and restoring, so that changes in real and simulated runs are counted
alike.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import polars as pl

from eunomia.model.shapes import value

Span: TypeAlias = tuple[int, int]
"""Start and end of a period in microseconds."""
Slot: TypeAlias = tuple[str, int]
"""Machine, and number of the slot on it."""
_MICRO: Final = 1_000_000


@value
class SizeChange:
    """A change of the size of a job that made steps before and after the change."""

    job: str
    before: int
    after: int
    still: Span
    """The period without steps in microseconds; empty if the tables show no pause."""
    lost: Mapping[Slot, Span]
    """By slot, the period lost by the change: from a new slot's lease, or from the job's last step on other slots."""
    unused: Mapping[Slot, Span]
    """By slot that the job holds but leaves for a rate measurement, the period until the job uses the slot again."""


@value
class _Run:
    """A period in which a job makes steps on a fixed set of slots, in microseconds."""

    start: int
    end: int
    slots: frozenset[Slot]


@value
class HeldSlot:
    """A period in which an app holds a slot for a job; None: for no single job."""

    job: str | None
    app: str
    span: Span


Steps: TypeAlias = Mapping[str, Sequence[tuple[Slot, Span]]]
"""By job, the slots on which the job makes steps, with the periods."""
Held: TypeAlias = Mapping[Slot, Sequence[HeldSlot]]
"""By slot, the periods in which the slot is held, in order."""


def size_changes(steps: Steps, held: Held) -> list[SizeChange]:
    """Return the changes of size of jobs, in order of time."""
    found = []
    for job, mine in steps.items():
        runs = _runs(mine)
        again: frozenset[Slot] = frozenset()
        for at, (before, after) in enumerate(itertools.pairwise(runs)):
            if before.slots != after.slots:
                unused = _unused(job, before, runs[at + 1 :], held)
                change = _change(job, before, after, held, unused, again - before.slots)
                found += [] if change is None else [change]
                again = (again | unused.keys()) - after.slots
    return sorted(found, key=lambda each: each.still)


def changes_of(segments: pl.DataFrame, leases: pl.DataFrame, end: int) -> list[SizeChange]:
    """Return the changes of size of a run from its tables of activities and leases.

    ``end`` is the time in microseconds at which open leases are taken to end.
    """
    steps: dict[str, list[tuple[Slot, Span]]] = defaultdict(list)
    names = ("job", "machine", "slot", "start_seconds", "end_seconds")
    for job, machine, slot, start, over in segments.filter(activity="run").select(names).iter_rows():
        steps[job].append(((machine, slot), (micro(start), micro(over))))
    held: dict[Slot, list[HeldSlot]] = defaultdict(list)
    for job, app, machine, slot, start, over in leases.select(names[0], "app", *names[1:]).iter_rows():
        until = end if over is None or math.isnan(over) else micro(over)
        held[machine, slot].append(HeldSlot(job=job, app=app, span=(micro(start), until)))
    for mine in held.values():
        mine.sort(key=lambda each: each.span)
    return size_changes(steps, held)


def micro(seconds: float) -> int:
    """Return a time in seconds as whole microseconds."""
    return round(seconds * _MICRO)


def _runs(spans: Iterable[tuple[Slot, Span]]) -> list[_Run]:
    """Return the periods in which a job makes steps on the same slots, in order."""
    spans = [(slot, span) for slot, span in spans if span[1] > span[0]]
    times = sorted({at for _, span in spans for at in span})
    runs: list[_Run] = []
    for start, end in itertools.pairwise(times):
        slots = frozenset(slot for slot, span in spans if span[0] <= start and end <= span[1])
        if not slots:
            continue
        last = runs[-1] if runs else None
        if last is not None and last.end == start and last.slots == slots:
            runs[-1] = _Run(start=last.start, end=end, slots=slots)
        else:
            runs.append(_Run(start=start, end=end, slots=slots))
    return runs


def _unused(job: str, before: _Run, runs: Sequence[_Run], held: Held) -> dict[Slot, Span]:
    """Return, by slot that a job leaves, the period until the job uses it again under the same lease."""
    found = {}
    for slot in before.slots - runs[0].slots:
        back = next((run.start for run in runs if slot in run.slots), None)
        if back is not None and _holds(held.get(slot, ()), job, (before.end, back)):
            found[slot] = before.end, back
    return found


def _change(
    job: str, before: _Run, after: _Run, held: Held, unused: Mapping[Slot, Span], again: Collection[Slot]
) -> SizeChange | None:
    """Return the change between two runs of a job on different slots; None: no slot was kept.

    ``unused`` are slots that the job leaves but uses again, ``again`` slots that it left so in earlier changes.
    """
    still = before.end, after.start
    kept = [slot for slot in before.slots if _holds(held.get(slot, ()), job, still)]
    if not kept:
        return None
    lost: dict[Slot, Span] = {}
    for slot in before.slots - unused.keys():
        lost[slot] = before.end, after.start if slot in after.slots else _until(held.get(slot, ()), job, before.end)
    for slot in after.slots - before.slots - set(again):
        lost[slot] = max(before.start, _since(held.get(slot, ()), job, after.start)), after.start
    size = len(before.slots)
    return SizeChange(job=job, before=size, after=len(after.slots), still=still, lost=lost, unused=unused)


def _holds(leases: Sequence[HeldSlot], job: str, span: Span) -> bool:
    """Return whether a job holds a slot under one lease for a whole period."""
    return any(each.job == job and each.span[0] <= span[0] and span[1] <= each.span[1] for each in leases)


def _since(leases: Sequence[HeldSlot], job: str, at: int) -> int:
    """Return the start of the job's lease that holds at a time; the time itself if there is none."""
    starts = [each.span[0] for each in leases if each.job == job and each.span[0] <= at < each.span[1]]
    return max(starts, default=at)


def _until(leases: Sequence[HeldSlot], job: str, at: int) -> int:
    """Return the end of the lease that a job leaves at a time, including the slot's release after the lease."""
    until, app = at, None
    for each in leases:
        if each.job == job and each.span[0] <= at <= each.span[1]:
            until, app = each.span[1], each.app
        elif each.app == app and each.job is None and each.span[0] == until:
            until = each.span[1]
    return until
