"""Periods in which a job held slots though none of its workers ran, such as after the end of a node's lease.

The arbiter's state lacks these periods if the job kept its lease, for instance while no arbiter ran. So they are
derived from the ends and starts of gangs that app masters recorded.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from eunomia_appmaster.explaining.activity import Line
from eunomia_appmaster.explaining.spells import Spell

INTERRUPTED: Final = "interrupted"
LEAST_SECONDS: Final = 1.0
"""Shortest interruption in seconds that is shown; a shorter one may only be a delay of the end's report."""
_ENDS: Final = ("suspended", "failed")
_RUNNING: Final = "running"


class Gap(NamedTuple):
    """A period without a worker, in Unix seconds; ``end`` is infinite if no worker has started since."""

    start: float
    end: float
    why: str


def gaps(lines: Iterable[Line]) -> list[Gap]:
    """Return the periods between a gang's end and the start of the next gang.

    Args:
        lines: the recorded events of one job, in any order.
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
    """Return the periods of one job, with its running periods split by the gaps.

    Args:
        spells: the job's periods, in order.
        found: the gaps, in order; Unix times.
        at: converts Unix time to the clock of the periods.
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
            yield dataclasses.replace(spell, start=begin, end=start, text=spell.text if begin == spell.start else "")
        last = None if math.isinf(until) else until
        yield Spell(job=spell.job, start=start, end=last, state=INTERRUPTED, text=gap.why)
        begin = until
    if begin < end:
        yield spell if begin == spell.start else dataclasses.replace(spell, start=begin, text="")
