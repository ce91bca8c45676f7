"""Reads the costs of live changes of size, and the periods of constant size between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from eunomia.model.shapes import value
from eunomia_appmaster.explaining.activity import CHANGE, RESIZED, Line


@value
class LiveChange:
    """A completed live change of a job's size in slots; ``join_seconds`` is None if the job did not grow."""

    at: float
    """Unix time at which the app master learned that the job makes steps at its new size."""
    before: int
    after: int
    pause_seconds: float
    join_seconds: float | None = None


@value
class Stretch:
    """The steps of a job in a period of constant size, without the changes before and after."""

    slots: tuple[int, ...]
    steps: int
    seconds: float


def live_changes(lines: Sequence[Line]) -> Iterator[LiveChange]:
    """Yield the live changes of a job from its lines, in order.

    An order may be replaced by another one before its change begins; the order that counts is the first one with the
    size that the job then has.
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
                del orders[: place + 1]  # this order has replaced the earlier ones
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
        lines: the activity lines of the start; the first one is the start's order.
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
