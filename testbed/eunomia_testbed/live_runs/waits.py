"""Periods in which a job of a live run wanted slots and had none."""

import dataclasses
from collections.abc import Iterable, Iterator

from eunomia.contract.verdicts import Reason
from eunomia_appmaster.explaining.spells import Spell

WITHOUT_SLOTS = ("waiting", "stopping", "paused")


def waits_of(spells: Iterable[Spell]) -> list[Spell]:
    """Return the periods in which jobs were not running, with reasons; the initial reason is awaiting a round."""
    waits: list[Spell] = []
    last: dict[str, Spell] = {}
    for spell in spells:
        if spell.state not in WITHOUT_SLOTS or spell.end == spell.start:
            continue
        wait = dataclasses.replace(spell, reason=spell.reason or Reason.AWAITING_ROUND.word)
        before = last.get(spell.job)
        if (
            before is not None
            and before.end == wait.start
            and (before.reason, before.plugin) == (wait.reason, wait.plugin)
        ):
            before.end = wait.end
        else:
            last[spell.job] = wait
            waits.append(wait)
    return waits


def outside(wait: Spell, held: Iterable[tuple[float, float]], until: float) -> Iterator[Spell]:
    """Yield the parts of a wait that lie outside the periods in which the job's processes hold slots.

    An app master starts and ends processes slightly earlier or later than the journal records.

    Args:
        wait: the wait, in Unix time; without an end, it lasts beyond ``until``.
        held: start and end of each period, Unix times.
        until: Unix time of the end of the record.
    """
    at, end = wait.start, until if wait.end is None else wait.end
    for start, over in sorted(held):
        if over <= at or start >= end:
            continue
        if start > at:
            yield dataclasses.replace(wait, start=at, end=start)
        at = over
    if at < end:
        yield dataclasses.replace(wait, start=at)
