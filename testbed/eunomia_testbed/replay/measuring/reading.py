"""Reads samples of rates and costs from the record of a live run: journal, activity logs, containers and event files.

A rate is taken from the steps between the first and the last one of a start, as the worker logged them, if the app
master's activity log has the same start around them. All other times are those of arbiter and app masters.
"""

from __future__ import annotations

import contextlib
import enum
import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import structlog

from eunomia.model.shapes import value
from eunomia_appmaster.explaining.activity import ENDS, Line
from eunomia_appmaster.launcher.container import RECORD
from eunomia_appmaster.node.kept_files import opened
from eunomia_testbed.live_runs.holds import Hold
from eunomia_testbed.live_runs.logged import read_logs, tag_of_steps
from eunomia_testbed.live_runs.record import LiveRecord
from eunomia_testbed.replay.measuring.changes import Stretch, live_changes, stretches

LEAST_STEPS: Final = 5
"""Fewest steps of a period of constant size that give a rate."""
CLOCK_SECONDS: Final = 0.25
"""Seconds by which steps may lie outside the app master's record of their start, which it learns late."""


class Cost(enum.StrEnum):
    """A kind of cost; the values are the field names of ``Costs`` without ``_seconds``."""

    ARRIVE = "arrive"
    """From the arrival of an app until its app master has added a job."""
    START = "start"
    """From the order to a job's first step, started by the zygote, without the time of the step itself."""
    EXEC_START = "exec_start"
    """From the order to a job's first step, with a new interpreter, without the time of the step itself."""
    RESTORE = "restore"
    """The extra time of a start that reads a checkpoint, compared with a first start."""
    SAVE = "save"
    """From the order to suspend a job until its checkpoint is complete and its processes have ended."""
    FINISH = "finish"
    """From a job's last step until its app master has seen its processes end: evaluation and last checkpoint."""
    RELEASE = "release"
    """From the end of a job's processes until its slots can be leased again."""
    DECIDE = "decide"
    """From the time at which a waiting job and all its slots are available until the order to start it."""
    PAUSE = "pause"
    """The time in which a job makes no step in a live change."""
    JOIN = "join"
    """From the order of a live growth until the job pauses for it, while its new workers start."""


@value
class CostSample:
    """One measurement of a cost."""

    program: str
    cost: Cost
    seconds: float


@value
class RateSample:
    """The number of steps of one start of a job, and their duration in seconds."""

    program: str
    batch_size: int
    slots: int
    slot_type: str
    steps: int
    seconds: float


@value
class Samples:
    """All samples of some runs."""

    rates: tuple[RateSample, ...] = ()
    costs: tuple[CostSample, ...] = ()

    def __add__(self, other: Samples) -> Samples:
        return Samples(rates=self.rates + other.rates, costs=self.costs + other.costs)


@value
class MeasuredApp:
    """The properties of an app that are known before its run: program, global batch size and slot type."""

    program: str
    batch_size: int
    slot_type: str


@value
class JobStart:
    """One start of a job, with Unix times, and steps as recorded by the app master and the worker."""

    job: str
    slots: tuple[int, ...]
    begun: Line
    end: Line | None
    """The line of the event with which the processes ended; None: the record ends before."""
    ordered_at: float | None
    """Unix time at which the job was ordered to suspend; None: no such order."""
    first_at: float = math.nan
    last_at: float = math.nan
    steps: int = 0
    """Steps between ``first_at`` and ``last_at``, without the first one."""
    stretches: tuple[Stretch, ...] = ()
    """The same steps by periods of constant gang size, if the period has enough steps for a rate."""

    @property
    def step_seconds(self) -> float:
        """Return the mean seconds of a step at the first gang size; NaN: too few steps."""
        return self.stretches[0].seconds / self.stretches[0].steps if self.stretches else math.nan

    @property
    def start_seconds(self) -> float:
        """Return the seconds from the order to the first step, without that step's duration; NaN: no step."""
        step = self.step_seconds
        return self.first_at - self.begun.at - (0.0 if math.isnan(step) else step)


def read_samples(record: LiveRecord, apps: Mapping[str, MeasuredApp]) -> Samples:
    """Return the samples of a run.

    Args:
        record: the record of the run, already read to its end.
        apps: the apps to read, by name.
    """
    starts = [start for app in apps if app in record.apps for start in starts_of(record, app)]
    forked = _forked(record, apps)
    changes = _of_changes(record, apps)
    costs = [*_of_apps(record, apps), *_of_starts(starts, apps, forked), *_of_slots(record, starts, apps), *changes]
    return Samples(rates=tuple(_rates(starts, apps)), costs=tuple(costs))


def starts_of(record: LiveRecord, app: str) -> Iterator[JobStart]:
    """Yield the starts of an app's jobs in order."""
    for trial in record.trials(app):
        lines = [line for line in record.lines if line.job == trial.job]
        begun = [at for at, line in enumerate(lines) if line.event == "start"]
        steps = _steps(record, app, trial.job)
        for at, following in itertools.pairwise([*begun, len(lines)]):
            made = lines[at:following]
            end = next((line for line in made if line.event in ENDS), None)
            ordered = next((line.at for line in made if line.event == "suspending"), None)
            mine = steps.get(made[0].incarnation)
            first_at, last_at, count = _within(mine, made[0], end)
            sizes = stretches(made, mine) if mine and count else ()
            yield JobStart(
                job=trial.job,
                slots=made[0].slots,
                begun=made[0],
                end=end,
                ordered_at=ordered,
                first_at=first_at,
                last_at=last_at,
                steps=count,
                stretches=tuple(each for each in sizes if each.steps >= LEAST_STEPS),
            )


def _steps(record: LiveRecord, app: str, job: str) -> dict[int, list[tuple[int, float]]]:
    """Return the logged steps with their Unix times by incarnation; empty: the job does not log each step."""
    logs = read_logs(record.app_dir(app) / job.rpartition("/")[2])
    tag = tag_of_steps(logs)
    found: dict[int, list[tuple[int, float]]] = {}
    for writer in () if tag is None else logs.writers():
        series = logs.as_written(tag or "", writer=writer)
        found[writer] = sorted(zip(series.step.tolist(), series.wall_time.tolist(), strict=True))
    return found


def _within(steps: Sequence[tuple[int, float]] | None, begun: Line, end: Line | None) -> tuple[float, float, int]:
    """Return the Unix times of a start's first and last step, and the number of steps between them.

    NaN, NaN and 0: there are no steps, or they lie outside the app master's record of the start.
    """
    nothing = math.nan, math.nan, 0
    if not steps or steps[0][0] > begun.step + 1:
        return nothing
    (first, first_at), (last, last_at) = steps[0], steps[-1]
    over = math.inf if end is None else end.at
    if first_at < begun.at - CLOCK_SECONDS or last_at > over + CLOCK_SECONDS:
        structlog.get_logger().warning("measuring.other_clock", job=begun.job, incarnation=begun.incarnation)
        return nothing
    return first_at, last_at, last - first


def _forked(record: LiveRecord, apps: Iterable[str]) -> dict[tuple[str, int], bool]:
    """Return, by job and incarnation, whether the zygote forked all workers of that start."""
    found: dict[tuple[str, int], bool] = {}
    for app in apps:
        for path in record.app_dir(app).glob(f"*/containers/*/{RECORD}"):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # damaged, or being written
                plain, _ = opened(path.read_bytes())
                start = f"{app}/{plain['job']}", int(plain["incarnation"])
                found[start] = found.get(start, True) and bool(plain["status"].get("forked", False))
    return found


# -- samples


def _rates(starts: Sequence[JobStart], apps: Mapping[str, MeasuredApp]) -> Iterator[RateSample]:
    for start in starts:
        app = apps[start.begun.app]
        for each in start.stretches:
            yield RateSample(
                program=app.program,
                batch_size=app.batch_size,
                slots=len(each.slots),
                slot_type=app.slot_type,
                steps=each.steps,
                seconds=each.seconds,
            )


def _of_apps(record: LiveRecord, apps: Mapping[str, MeasuredApp]) -> Iterator[CostSample]:
    for name, app in apps.items():
        life = record.apps.get(name)
        added = [at for job, at in record.job_arrived_at.items() if job.rpartition("/")[0] == name]
        if life is not None and added:
            yield CostSample(program=app.program, cost=Cost.ARRIVE, seconds=min(added) - life.arrived_at)


def _of_starts(
    starts: Sequence[JobStart], apps: Mapping[str, MeasuredApp], forked: Mapping[tuple[str, int], bool]
) -> Iterator[CostSample]:
    """Yield samples of starts, restores, saves and ends; a restore is the excess over the median first start."""
    fresh: dict[tuple[str, int], list[float]] = defaultdict(list)
    for start in starts:
        program, seconds = apps[start.begun.app].program, start.start_seconds
        by_zygote = forked.get((start.job, start.begun.incarnation), True)
        if start.begun.step == 0 and not math.isnan(seconds):
            yield CostSample(program=program, cost=Cost.START if by_zygote else Cost.EXEC_START, seconds=seconds)
            if by_zygote:
                fresh[program, len(start.slots)].append(seconds)
        if start.ordered_at is not None and start.end is not None and start.end.event == "suspended":
            yield CostSample(program=program, cost=Cost.SAVE, seconds=start.end.at - start.ordered_at)
        if start.end is not None and start.end.event == "finished" and not math.isnan(start.last_at):
            yield CostSample(program=program, cost=Cost.FINISH, seconds=max(0.0, start.end.at - start.last_at))
    for start in starts:
        program, seconds = apps[start.begun.app].program, start.start_seconds
        first = fresh.get((program, len(start.slots)))
        by_zygote = forked.get((start.job, start.begun.incarnation), True)
        if start.begun.step > 0 and by_zygote and first and not math.isnan(seconds):
            yield CostSample(program=program, cost=Cost.RESTORE, seconds=seconds - float(np.median(first)))


def _of_changes(record: LiveRecord, apps: Mapping[str, MeasuredApp]) -> Iterator[CostSample]:
    """Yield samples of the pauses of live changes, and of the joins of growing jobs."""
    by_job: dict[str, list[Line]] = defaultdict(list)
    for line in record.lines:
        if line.app in apps:
            by_job[line.job].append(line)
    for lines in by_job.values():
        program = apps[lines[0].app].program
        for change in live_changes(lines):
            yield CostSample(program=program, cost=Cost.PAUSE, seconds=change.pause_seconds)
            if change.join_seconds is not None:
                yield CostSample(program=program, cost=Cost.JOIN, seconds=change.join_seconds)


def _of_slots(record: LiveRecord, starts: Sequence[JobStart], apps: Mapping[str, MeasuredApp]) -> Iterator[CostSample]:
    """Yield samples of the time from a job's end to its lease's end, and from free slots to the next start."""
    by_slot: dict[int, list[Hold]] = defaultdict(list)
    for hold in record.holds.holds:
        by_slot[hold.gpu].append(hold)
    for start in starts:
        program, app = apps[start.begun.app].program, start.begun.app
        if start.end is not None:
            ends = [_end_of(by_slot[slot], app, start.end.at) for slot in start.slots]
            known = [at for at in ends if at is not None]
            if known:
                yield CostSample(program=program, cost=Cost.RELEASE, seconds=max(0.0, max(known) - start.end.at))
        ready = [_end_before(by_slot[slot], start.begun.at) for slot in start.slots]
        ready.append(record.job_arrived_at.get(start.job, -math.inf))
        if max(ready) > -math.inf:
            yield CostSample(program=program, cost=Cost.DECIDE, seconds=max(0.0, start.begun.at - max(ready)))


def _end_of(holds: Sequence[Hold], app: str, at: float) -> float | None:
    """Return the end of the lease that an app had on a slot at ``at``; None: no end is known."""
    of_app = [hold for hold in holds if hold.app == app and hold.start <= at and hold.end is not None]
    ends = [hold.end for hold in of_app if hold.end is not None and hold.end >= at - CLOCK_SECONDS]
    return min(ends, default=None)


def _end_before(holds: Sequence[Hold], at: float) -> float:
    """Return the end of a slot's last lease that ended by ``at``; -inf: there was none."""
    return max((hold.end for hold in holds if hold.end is not None and hold.end <= at), default=-math.inf)
