"""The events of one job as text, one per line; all events of one live change of the job's size share a line."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from eunomia_appmaster.explaining.activity import CHANGE, ENDS, RESIZED, Line

CANCELLED = "cancelled"
"""Event that the arbiter's journal has, and no app master writes: the end of a job that is cancelled with its app."""
GAP = "   "
_AS_REPORTED = frozenset({"left_out", "stalled", "suspending", "failed", CANCELLED})
"""Events whose step is the last one that the job had reported, some steps ago."""


@dataclasses.dataclass(slots=True)
class _Row:
    """A line of text: an event, or a live change from its order to its first step."""

    at: float
    texts: list[str]
    size: int = 0
    """Number of slots that a change orders; 0: the row is not a change."""


def event_lines(lines: Iterable[Line]) -> Iterator[str]:
    """Yield a job's events in order of time, after a line for each new day; a live change is placed at its order.

    Args:
        lines: the job's lines, from its app's activity.
    """
    rows, pending = list[_Row](), list[_Row]()
    for line in sorted(lines, key=lambda each: each.at):
        _add(rows, pending, line)
    day = ""
    for row in rows:
        at = datetime.fromtimestamp(row.at).astimezone()
        if (today := f"{at:%Y-%m-%d}") != day:
            day = today
            yield day
        yield GAP.join(row.texts)


def cancellation(job: str, at: float, events: Sequence[Line]) -> Line:
    """Return the line of a job's cancellation.

    Args:
        job: the job.
        at: Unix time of the cancellation in seconds.
        events: the job's lines so far, from which its last known step is taken.
    """
    last = max(events, key=lambda each: each.at, default=None)
    step, incarnation = (0, 0) if last is None else (last.step, last.incarnation)
    app = job.rpartition("/")[0]
    return Line(at=at, app=app, job=job, event=CANCELLED, slots=(), step=step, incarnation=incarnation)


def _add(rows: list[_Row], pending: list[_Row], line: Line) -> None:
    """Add an event to the pending row of the live change that it belongs to, else as a new row."""
    at = datetime.fromtimestamp(line.at).astimezone()
    text = f"{at:%H:%M:%S}.{at.microsecond // 1000:03}  {_words(line)}"
    ordered = line.ordered_size
    if line.event == CHANGE and ordered is None and pending:
        pending[-1].texts.append(text)
        return
    made = next((row for row in pending if line.event == RESIZED and row.size == len(line.slots)), None)
    if made is not None:
        made.texts.append(text)
        del pending[: pending.index(made) + 1]  # this change has replaced the orders before it
        return
    rows.append(_Row(line.at, [text], ordered or 0))
    if ordered is not None:
        pending.append(rows[-1])
    elif line.event in ENDS:
        pending.clear()


def _words(line: Line) -> str:
    if line.event == CHANGE:
        return line.why
    if line.event == RESIZED:
        return f"step {line.step:,} on {len(line.slots)}{GAP}{line.why}"
    where = f" on {len(line.slots)}" if line.slots else ""
    why = f": {line.why}" if line.why else ""
    ran = line.step or (line.event == CANCELLED and line.incarnation)
    later = " or later" if line.event in _AS_REPORTED and ran else ""
    return f"{line.event.replace('_', ' ')} at step {line.step:,}{later}{where}{why}"
