"""The activities of jobs on their slots, derived from the events in app masters' activity logs."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from eunomia_appmaster.explaining.activity import ENDS, RESIZED, RUNS, Line


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """An activity of a job on its slots: start, restore, run or save, with Unix times."""

    app: str
    job: str
    slots: tuple[int, ...]
    start: float
    end: float
    activity: str


def from_first_steps(lines: Sequence[Line], first_steps: Mapping[tuple[str, int], float]) -> list[Line]:
    """Return the lines with each start of running moved to the end of the first step, if that is known and later.

    The app master counts a job as running once its process has started, which may still import modules and read data.

    Args:
        lines: all lines of the run, in order of time.
        first_steps: Unix time of the end of the first step, by job and incarnation.
    """
    made, following = list(lines), dict[str, float]()
    for at in reversed(range(len(made))):
        line = made[at]
        if line.event in RUNS:
            first = first_steps.get((line.job, line.incarnation), line.at)
            made[at] = dataclasses.replace(line, at=max(line.at, min(first, following.get(line.job, first))))
        if _activity(line) is not None:
            following[line.job] = line.at
    return made


def segments(lines: Sequence[Line], until: float) -> list[Segment]:
    """Return all jobs' activities by start; an activity without an end lasts until the job's next one, or ``until``."""
    made: list[Segment] = []
    for job in dict.fromkeys(line.job for line in lines):
        made += _of_job([line for line in lines if line.job == job], until)
    return sorted(made, key=lambda each: each.start)


def _of_job(lines: Sequence[Line], until: float) -> Iterator[Segment]:
    doing: tuple[str, float, tuple[int, ...]] | None = None
    first = lines[0]
    for line in [*lines, dataclasses.replace(first, at=until, event="stopped")]:
        activity = _activity(line)
        if activity is None or (activity == "save" and doing is None):  # an end reported late has an earlier time
            continue
        if doing is not None and line.at > doing[1]:
            name, start, slots = doing
            yield Segment(app=line.app, job=line.job, slots=slots, start=start, end=line.at, activity=name)
        slots = line.slots or (doing[2] if doing else ())
        doing = None if line.event in ENDS else (activity, line.at, slots)


def _activity(line: Line) -> str | None:
    """Return the job's activity after an event (empty: none); None: the event does not change the activity."""
    match line.event:
        case "start":
            return "restore" if line.step else "start"
        case event if event in RUNS or event == RESIZED:
            return "run"
        case "suspending" | "stalled":
            return "save"
        case event if event in ENDS:
            return ""
        case _:
            return None
