"""Reads a live run from its folder at any time: journal, activity logs, notes."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np

from eunomia.contract.events import NOW, Adapted, AppArrived, AppCancelled, AppFinished, ForecastReported, JobAdded
from eunomia.journal.journal import JournalReader, Step, read_journal
from eunomia.model.cluster import Cluster, Machine
from eunomia.model.forecasts import Forecast
from eunomia.model.workload import JobState
from eunomia.units import JobId
from eunomia_appmaster.explaining.activity import ActivityLog, Line
from eunomia_appmaster.explaining.replay import JOURNAL, Replay
from eunomia_appmaster.explaining.spells import Spells
from eunomia_testbed.live_runs.holds import Holds
from eunomia_testbed.live_runs.logged import Trial, read_trials
from eunomia_testbed.live_runs.rounds import Rounds
from eunomia_testbed.live_runs.run_part import WHOLE, RunPart

_RUN, _WAITING = (int(JobState.STARTING), int(JobState.RUNNING)), int(JobState.WAITING)


@dataclasses.dataclass(slots=True, kw_only=True)
class AppLife:
    """One app as recorded in the journal; times are Unix times."""

    app: str
    arrived_at: float
    again_at: float | None = None
    """Time at which the app was last resumed after it had ended; None: never."""
    away_seconds: float = 0.0
    """Total seconds between the app's ends and resumptions."""
    ended_at: float | None = None
    state: str = "live"
    forecast: Forecast | None = None
    """The app's last forecast."""

    @property
    def jct_seconds(self) -> float | None:
        """Return the seconds from arrival to end, without those between ends and resumptions; None: not ended."""
        return None if self.ended_at is None else self.ended_at - self.arrived_at - self.away_seconds


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """The new entries that a poll has read."""

    steps: tuple[Step, ...]
    lines: tuple[Line, ...]


class LiveRecord:
    """The record of a run's folder, which is read incrementally, also while the run continues.

    Args:
        folder: the folder with ``journal.sqlite`` and ``apps/``.
        part: the apps and steps to record, if the folder is that of an arbiter that serves more than one run.
    """

    def __init__(self, folder: Path, part: RunPart = WHOLE) -> None:
        self.folder = folder
        self.part = part
        self.apps: dict[str, AppLife] = {}
        self.jobs: dict[str, JobAdded] = {}
        self.job_arrived_at: dict[str, float] = {}
        self.lines: list[Line] = []
        self.spells = Spells(part.job)
        """The states of jobs over time with their reasons, in Unix time."""
        self.holds = Holds()
        self.rounds = Rounds(part)
        self.adapted: dict[Adapted, float] = {}
        """Adaptations of jobs in order, with Unix times; repeated reports of a restarted app master count once."""
        self.refused: list[str] = []
        """Reasons for which the arbiter rejected events."""
        self.first_at: float | None = None
        """Unix time of the first step; None: there is no step yet."""
        self.last_at = 0.0
        """Unix time of the last step."""
        self.steps = 0
        self._journal: JournalReader | None = None
        self._replay: Replay | None = None
        self._logs: dict[str, ActivityLog] = {}

    @property
    def machines(self) -> tuple[Machine, ...]:
        """Return the machines of the cluster."""
        return () if self.cluster is None else self.cluster.machines

    @property
    def slots(self) -> int:
        """Return the number of slots, without those of machines that left."""
        return 0 if self.cluster is None else int(self.cluster.capacity.sum())

    @property
    def cluster(self) -> Cluster | None:
        """Return the cluster; None before the machines have registered."""
        return None if self._replay is None else self._replay.arbiter.view.cluster

    @property
    def arrived_at(self) -> float | None:
        """Return the Unix time of the first arrival, from which tables count seconds."""
        return min((life.arrived_at for life in self.apps.values()), default=None)

    @property
    def dropped_steps(self) -> int:
        """Return the number of early steps that the journal no longer contains."""
        return 0 if self._journal is None else self._journal.first_step - 1

    def meta(self, key: str) -> Any:
        """Return a setting of the whole run by key; None: the key is not set."""
        return None if self._journal is None else self._journal.meta.get(key)

    def notes(self) -> dict[str, Any]:
        """Return the arbiter's notes on apps, by the app's name."""
        found = {} if self._journal is None else self._journal.notes("app")
        named = ((self.part.app(app), note) for app, note in found.items())
        return {app: self.part.note(note) for app, note in named if app is not None}

    def trials(self, app: str) -> list[Trial]:
        """Return the trials of an app; empty: it has not written them yet."""
        found = read_trials(self.app_dir(app))
        return [dataclasses.replace(each, job=self.part.job(each.job) or each.job) for each in found]

    def poll(self) -> News:
        """Read and return the new entries of the journal and the activity logs."""
        replay, steps = self._replaying(), list[Step]()
        for step in () if replay is None or self._journal is None else self._journal.steps(after=replay.last):
            if replay is None or (self.part.until_step is not None and step.number > self.part.until_step):
                break
            if step.number <= self.part.after_step:
                replay.take(step)
            else:
                self._take(step, replay)
                steps.append(step)
        lines = [self._named(line) for log in self._activity_logs() for line in log.poll()]
        lines.sort(key=lambda line: line.at)
        self.lines += lines
        return News(steps=tuple(steps), lines=tuple(lines))

    def close(self) -> None:
        """Close the journal."""
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    def app_dir(self, app: str) -> Path:
        """Return the folder of an app."""
        return self.folder / "apps" / self.part.at_arbiter(app)

    def _named(self, line: Line) -> Line:
        """Return a line of an activity log with the run's name of its job."""
        return line if self.part.names is None else dataclasses.replace(line, job=self.part.job(line.job) or line.job)

    def _replaying(self) -> Replay | None:
        """Return the replay of the journal, opened at first use; None: no machine has registered yet."""
        path = self.folder / JOURNAL
        if self._journal is None and path.is_file() and path.stat().st_size:
            self._journal = read_journal(path)
        if self._replay is None and self._journal is not None and "layout" in self._journal.meta:
            self._replay = Replay(self._journal, self.part.begun)
            self.holds = Holds(self._replay.arbiter.view.cluster.gpus, self.part)
        return self._replay

    def _take(self, step: Step, replay: Replay) -> None:
        self.first_at = step.at if self.first_at is None else self.first_at
        self.last_at = max(self.last_at, step.at)
        for event in step.events:
            self._fold(event, step.at)
            if isinstance(event, Adapted) and (job := self.part.job(str(event.job))) is not None:
                since = 0.0 if math.isnan(event.at) else max(0.0, float(step.now - event.at))
                again = dataclasses.replace(event, at=NOW, job=JobId(job))
                self.adapted.setdefault(again, step.at - since)
        view = replay.arbiter.view
        running, waiting = (int(np.isin(view.jobs.state, states).sum()) for states in (_RUN, _WAITING))
        self.rounds.take(step, running=running, waiting=waiting, busy=self.holds.busy)
        replay.take(step)
        self.holds.take(step, view)
        self.spells.take(view, step.at)
        self.refused += [fault.what for fault in step.decision.faults if fault.stage is None]
        self.steps = step.number

    def _fold(self, event: object, at: float) -> None:
        if isinstance(event, JobAdded):
            job = self.part.job(str(event.job))
            if job is not None:
                self.jobs.setdefault(job, event)
                self.job_arrived_at.setdefault(job, at)
            return
        if not isinstance(event, AppArrived | AppFinished | AppCancelled | ForecastReported):
            return
        app = self.part.app(str(event.app))
        if app is None:
            return
        match event:
            case AppArrived():
                self._arrived(app, at)
            case AppFinished(failed=failed):
                self._end(app, "failed" if failed else "finished", at)
            case AppCancelled():
                self._end(app, "cancelled", at)
            case ForecastReported(forecast=forecast) if app in self.apps:
                self.apps[app].forecast = forecast

    def _arrived(self, app: str, at: float) -> None:
        life = self.apps.setdefault(app, AppLife(app=app, arrived_at=at))
        if life.ended_at is not None:
            life.away_seconds += max(0.0, at - life.ended_at)
            life.state, life.again_at, life.ended_at, life.forecast = "live", at, None, None

    def _end(self, app: str, state: str, at: float) -> None:
        life = self.apps.get(app)
        if life is not None and life.ended_at is None:
            life.state, life.ended_at = state, at

    def _activity_logs(self) -> list[ActivityLog]:
        for app in self.apps:
            if app not in self._logs:
                self._logs[app] = ActivityLog(self.app_dir(app), app)
        return list(self._logs.values())
