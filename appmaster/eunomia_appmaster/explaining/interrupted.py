"""Periods in which a job held slots though none of its workers ran, as after the end of a node's lease.

The arbiter's state does not have them where the job kept its lease, for instance while no arbiter ran. App masters note
the ends and starts of gangs.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from eunomia_appmaster.explaining.activity import Line
from eunomia_appmaster.explaining.spells import Spell

INTERRUPTED: Final = "interrupted"
LEAST_SECONDS: Final = 1.0
"""Shorter ones are left out: the report of the end may be on its way to the arbiter."""
_ENDS: Final = ("suspended", "failed")
_RUNNING: Final = "running"


class Gap(NamedTuple):
    """A time without a worker; ``end`` is infinite where none has started since."""

    start: float
    end: float
    why: str


def gaps(lines: Iterable[Line]) -> list[Gap]:
    """Return the times between a gang's end and the start of the next.

    Args:
        lines: what was noted of one job, in any order.
    """
    made, ended = list[Gap](), None
    for line in sorted(lines, key=lambda line: line.at):
        if line.event in _ENDS:
            ended = line
        elif line.event == "start":
            made += [] if ended is None else [Gap(ended.at, line.at, ended.why)]
            ended = None
        elif line.event in ("finished", "stopped", "paused"):
            ended = None
    return made if ended is None else [*made, Gap(ended.at, math.inf, ended.why)]


def with_gaps(spells: Sequence[Spell], found: Sequence[Gap], at: Callable[[float], float]) -> list[Spell]:
    """Return the periods of one job, with the gaps within those in which it ran.

    Args:
        spells: in order.
        found: in order; Unix times.
        at: from Unix time to the clock of the periods.
    """
    on = [Gap(at(gap.start), math.inf if math.isinf(gap.end) else at(gap.end), gap.why) for gap in found]
    return [part for spell in spells for part in (_parts(spell, on) if spell.state == _RUNNING else [spell])]


def _parts(spell: Spell, found: Sequence[Gap]) -> Iterator[Spell]:
    begin, end = spell.start, math.inf if spell.end is None else spell.end
    for gap in found:
        start, until = max(gap.start, begin), min(gap.end, end)
        if until - start < LEAST_SECONDS:
            continue
        if start > begin:
            yield dataclasses.replace(spell, start=begin, end=start)
        last = None if math.isinf(until) else until
        yield Spell(job=spell.job, start=start, end=last, state=INTERRUPTED, text=gap.why)
        begin = until
    if begin < end:
        yield dataclasses.replace(spell, start=begin)
