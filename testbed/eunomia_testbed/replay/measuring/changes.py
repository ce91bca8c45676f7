"""Reads live changes of size: what they cost, and the periods of constant size between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from eunomia.model.shapes import value
from eunomia_appmaster.explaining.activity import CHANGE, RESIZED, Line


@value
class LiveChange:
    """A live change of a job that has ended, in seconds; ``join_seconds`` is None where the job has not grown."""

    at: float
    """Unix time at which the app master heard that the job makes steps at its new size."""
    before: int
    after: int
    pause_seconds: float
    join_seconds: float | None = None


@value
class Stretch:
    """The steps of a job at one size, without those of the changes around them."""

    slots: tuple[int, ...]
    steps: int
    seconds: float


def live_changes(lines: Sequence[Line]) -> Iterator[LiveChange]:
    """Yield the live changes of a job from its lines, in order.

    A change is ordered again where another one replaces it before it has begun; the order that counts is the first one
    of the size that the job then has.
    """
    size, orders = 0, list[Line]()
    for line in lines:
        if line.ordered_size is not None:
            orders.append(line)
        elif line.event == RESIZED and line.pause_seconds is not None:
            after = len(line.slots)
            place = next((place for place, each in enumerate(orders) if each.ordered_size == after), None)
            join = None
            if place is not None:
                join = line.at - line.pause_seconds - orders[place].at if after > size else None
                del orders[: place + 1]  # it has replaced those before it
            yield LiveChange(
                at=line.at,
                before=size,
                after=after,
                pause_seconds=line.pause_seconds,
                join_seconds=None if join is None else max(0.0, join),
            )
        if line.slots and line.event != CHANGE:
            size = len(line.slots)


def stretches(lines: Sequence[Line], steps: Sequence[tuple[int, float]]) -> tuple[Stretch, ...]:
    """Return the periods of constant size of one start of a job.

    Args:
        lines: the lines of the start, whose first one is its order.
        steps: the logged steps of the start with their Unix times, in order.
    """
    changes = [line for line in lines if line.event == RESIZED]
    begins = [lines[0], *changes]
    found = []
    for at, begun in enumerate(begins):
        least = begun.step if at else -1
        most = changes[at].step if at < len(changes) else None
        mine = [each for each in steps if each[0] > least and (most is None or each[0] < most)]
        if len(mine) > 1:
            (first, first_at), (last, last_at) = mine[0], mine[-1]
            found.append(Stretch(slots=begun.slots, steps=last - first, seconds=last_at - first_at))
    return tuple(found)
