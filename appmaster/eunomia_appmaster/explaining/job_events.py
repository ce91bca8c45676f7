"""The events of one job as text, a line each; what belongs to one live change of its size stands on one line."""

from collections.abc import Iterable, Iterator
from datetime import datetime

from eunomia_appmaster.explaining.activity import CHANGE, RESIZED, Line

GAP = "   "
ORDERED = "ordered"
"""Last word of the order of a live change."""


def event_lines(lines: Iterable[Line]) -> Iterator[str]:
    """Yield a job's events in order of time, with the day where it changes.

    Args:
        lines: of the job, from its app's activity.
    """
    day, change = "", list[str]()
    for line in sorted(lines, key=lambda each: each.at):
        at = datetime.fromtimestamp(line.at).astimezone()
        if line.event not in (CHANGE, RESIZED) and change:
            yield GAP.join(change)
            change = []
        if (today := f"{at:%Y-%m-%d}") != day:
            day = today
            yield day
        text = f"{at:%H:%M:%S}.{at.microsecond // 1000:03}  {_words(line)}"
        if line.event == CHANGE and (not change or not line.why.endswith(ORDERED)):
            change.append(text)
        elif line.event == CHANGE:  # another order has replaced the one before
            yield GAP.join(change)
            change = [text]
        elif line.event == RESIZED:
            yield GAP.join([*change, text])
            change = []
        else:
            yield text
    if change:
        yield GAP.join(change)


def _words(line: Line) -> str:
    if line.event == CHANGE:
        return line.why
    if line.event == RESIZED:
        return f"step {line.step:,} on {len(line.slots)}{GAP}{line.why}"
    where = f" on {len(line.slots)}" if line.slots else ""
    why = f": {line.why}" if line.why else ""
    return f"{line.event.replace('_', ' ')} at step {line.step:,}{where}{why}"
