"""The log of a live run, from its journal, the activity logs of its app masters, and their trials."""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from eunomia.contract.decisions import COUNTED, TransitionKind
from eunomia.units import Ints, Reals
from eunomia_appmaster.explaining.activity import ENDS, Line
from eunomia_appmaster.explaining.spells import Spell
from eunomia_testbed.live_runs.activity import Segment, from_first_steps, segments
from eunomia_testbed.live_runs.fairness import final_rho
from eunomia_testbed.live_runs.holds import Hold
from eunomia_testbed.live_runs.logged import Trial, model_of
from eunomia_testbed.live_runs.record import LiveRecord
from eunomia_testbed.live_runs.rounds import Round
from eunomia_testbed.live_runs.waits import outside, waits_of
from eunomia_testbed.metrics.size_changes import HeldSlot, SizeChange, Slot, Span, micro, size_changes
from eunomia_testbed.run_log.log import Activity, AppLog, Arrivals, Leases, RoundLog, RunLog, WaitLog, Words

OVER = frozenset({"finished", "failed", "stopped"})


class LiveLog:
    """Computes the columns of a live run's log.

    Args:
        record: the record of the run, already read to its end.
        first_steps: Unix time of the end of the first step, by job and incarnation, if known.
    """

    def __init__(self, record: LiveRecord, first_steps: Mapping[tuple[str, int], float] = MappingProxyType({})) -> None:
        self._record = record
        self._zero = record.arrived_at or record.last_at
        ends = [line.at for line in record.lines] + [life.ended_at or 0.0 for life in record.apps.values()]
        self.until = max([record.last_at, *ends])
        known = {key: min(at, self.until) for key, at in first_steps.items()}  # logs are read after the activities
        self.segments = segments(from_first_steps(record.lines, known), self.until)
        self.waits = self._waits_without_slots()
        self.trials = {app: record.trials(app) for app in record.apps}
        self.lines: dict[str, list[Line]] = defaultdict(list)
        for line in record.lines:
            self.lines[line.job].append(line)
        self._apps = {app: row for row, app in enumerate(sorted(record.apps))}
        listed = [trial.job for app in self._apps for trial in self.trials[app]]
        self._jobs = {job: row for row, job in enumerate(listed)}

    def _waits_without_slots(self) -> list[Spell]:
        """Return the waits of the journal, without periods in which the job's processes hold slots."""
        held: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for each in self.segments:
            if each.slots:
                held[each.job].append((each.start, each.end))
        waits = waits_of(self._record.spells.spells)
        return [part for wait in waits for part in outside(wait, held[wait.job], self.until)]

    def since(self, at: float) -> float:
        """Return the seconds from the first arrival to a Unix time."""
        return round(at - self._zero, 6)

    def ended(self, at: float | None) -> float | None:
        """Return the seconds from the first arrival to a Unix time; None if ``at`` is None."""
        return None if at is None else self.since(at)

    def name(self, job: str) -> str:
        """Return a job's name in tables: ``app/number``, or the app's name if it is the app's only job."""
        app = job.rpartition("/")[0]
        return app if len(self.trials.get(app, ())) == 1 else job

    def slot_seconds(self, app: str, until: float) -> float:
        """Return the slot-seconds of an app up to a Unix time."""
        return math.fsum(
            min(hold.end or self.until, until) - hold.start
            for hold in self._record.holds.holds
            if hold.app == app and hold.start < until
        )

    def log(self, repeated: dict[str, int]) -> RunLog:
        """Return the columns of the log.

        Args:
            repeated: by job, the number of iterations that occur twice in the job's event files; for other jobs, the
                number reported in ``trials.csv`` is used.
        """
        arrivals, apps = self._arrivals(repeated), self._app_log()
        leases, waits, activity = self._leases(), self._waits(), self._activity()
        return RunLog(
            apps=list(self._apps),
            jobs=[self.name(job) for job in self._jobs],
            cluster=self._record.cluster,
            arrivals=arrivals,
            app_log=apps,
            leases=leases,
            rounds=self._rounds(),
            waits=waits,
            activity=lambda: activity,
        )

    def _job(self, job: str) -> int:
        """Return the row of a job; an unknown job gets the next row."""
        return self._jobs.setdefault(job, len(self._jobs))

    def _app(self, app: str) -> int:
        return self._apps.setdefault(app, len(self._apps))

    # -- apps and jobs

    def _app_log(self) -> AppLog:
        notes, lives = self._record.notes(), [self._record.apps[app] for app in self._apps]
        of = [notes.get(life.app, {}) for life in lives]
        return AppLog(
            user=[note.get("user") for note in of],
            tuner=[note.get("tuner") for note in of],
            weight=[note.get("weight") for note in of],
            state=[life.state if life.ended_at is not None else "unfinished" for life in lives],
            jobs=[len(self.trials[life.app]) or None for life in lives],
            arrival_seconds=[self.since(life.arrived_at) for life in lives],
            finish_seconds=[self.ended(life.ended_at) for life in lives],
            jct_seconds=[life.jct_seconds for life in lives],
            slot_seconds=[self.slot_seconds(life.app, self.until) for life in lives],
            rho=[final_rho(life, self._record.apps, self._record.slots) for life in lives],
        )

    def _arrivals(self, repeated: dict[str, int]) -> Arrivals:
        notes = self._record.notes()
        trials = [(app, trial) for app in self._apps for trial in self.trials[app]]
        jobs = [trial.job for _, trial in trials]
        added = [self._record.jobs.get(job) for job in jobs]
        arrived = [self._record.job_arrived_at.get(job) for job in jobs]
        began = [[line.at for line in self.lines.get(job, []) if line.event == "start"] for job in jobs]
        over = [self._over(trial) for _, trial in trials]
        changed = Counter(change.job for change in self._changes())
        done = [[each for each in self.segments if each.job == job] for job in jobs]
        return Arrivals(
            app=_ints(self._app(app) for app, _ in trials),
            user=[notes.get(app, {}).get("user") for app, _ in trials],
            model=[model_of(self._record.app_dir(app)) for app, _ in trials],
            state=[trial.state for _, trial in trials],
            slots_asked=[None if request is None else request.least for request in added],
            arrival_seconds=[self.ended(at) for at in arrived],
            start_seconds=[self.since(starts[0]) if starts else None for starts in began],
            finish_seconds=[self.ended(at) for at in over],
            jct_seconds=[
                end - at if end is not None and at is not None else None for end, at in zip(over, arrived, strict=True)
            ],
            wait_seconds=[self._waited(job) for job in jobs],
            run_seconds=[math.fsum(each.end - each.start for each in mine if each.activity == "run") for mine in done],
            slot_seconds=[math.fsum((each.end - each.start) * len(each.slots) for each in mine) for mine in done],
            iterations=[trial.iterations for _, trial in trials],
            iterations_lost=[repeated.get(trial.job, trial.lost) for _, trial in trials],
            restarts=[max(0, len(starts) - 1) for starts in began],
            resizes=[changed[job] for job in jobs],
        )

    def _changes(self) -> list[SizeChange]:
        """Return the changes of size of running jobs; slots are GPU numbers in the cluster, without machines."""
        steps: dict[str, list[tuple[Slot, Span]]] = defaultdict(list)
        for each in self.segments:
            if each.activity == "run":
                steps[each.job] += [(("", gpu), (micro(each.start), micro(each.end))) for gpu in each.slots]
        held: dict[Slot, list[HeldSlot]] = defaultdict(list)
        jobs = {row: job for job, row in self._jobs.items()}
        for hold in self._record.holds.holds:
            span = micro(hold.start), micro(self.until if hold.end is None else hold.end)
            held["", hold.gpu].append(HeldSlot(job=jobs.get(self._job_of(hold)), app=hold.app, span=span))
        return size_changes(steps, held)

    def _over(self, trial: Trial) -> float | None:
        """Return the Unix time at which a trial ended; None: it has not ended."""
        ends = [line.at for line in self.lines.get(trial.job, []) if line.event in ENDS]
        return ends[-1] if ends and trial.state in OVER else None

    def _waited(self, job: str) -> float:
        waits = [each for each in self.waits if each.job == job and each.reason != "paused_by_app"]
        return math.fsum((wait.end or self.until) - wait.start for wait in waits)

    # -- rounds, leases, waits, activity

    def _rounds(self) -> RoundLog:
        rounds = self._record.rounds.rounds
        changes = {name: _ints(made.changes[name] for made in rounds) for name in COUNTED}
        changes[TransitionKind.SUSPEND.effect.past] = _ints(self._suspensions(rounds))
        return RoundLog(
            round=_ints(made.number for made in rounds),
            time_seconds=_reals(self.since(made.at) for made in rounds),
            causes=_words(" ".join(made.causes) for made in rounds),
            free_gpus=_ints(made.offered or self._record.slots - made.busy for made in rounds),
            busy_gpus=_ints(made.busy for made in rounds),
            running_jobs=_ints(made.running for made in rounds),
            waiting_jobs=_ints(made.waiting for made in rounds),
            quiet=np.zeros(len(rounds), bool),
            fault=_words(made.fault or "" for made in rounds),
            kept=_ints(made.kept for made in rounds),
            gap=[made.gap for made in rounds],
            **changes,
        )

    def _suspensions(self, rounds: Sequence[Round]) -> list[int]:
        """Return the number of suspensions by round; each is attributed to the last round that revoked slots."""
        counts = [0] * len(rounds)
        for line in self._record.lines:
            decided = [at for at, made in enumerate(rounds) if (made.decided_at or made.at) <= line.at]
            revoking = [at for at in decided if rounds[at].revoked]
            if line.event == "suspended" and decided:
                counts[(revoking or decided)[-1]] += 1
        return counts

    def _leases(self) -> Leases:
        holds = self._record.holds.holds
        return Leases(
            app=_ints(self._app(hold.app) for hold in holds),
            job=_ints(self._job_of(hold) for hold in holds),
            gpu=_ints(hold.gpu for hold in holds),
            lease=_ints(hold.epoch for hold in holds),
            start_seconds=_reals(self.since(hold.start) for hold in holds),
            end_seconds=_reals(self._end(hold.end) for hold in holds),
            ended_by=_words(hold.ended_by for hold in holds),
        )

    def _job_of(self, hold: Hold) -> int:
        """Return the row of the lease's job, or of the only job that ran under the lease; -1: no such job."""
        if hold.job is not None:
            return self._job(hold.job)
        ran = {each.job for each in self.segments if _overlaps(each, hold, self.until)}
        return self._job(ran.pop()) if len(ran) == 1 else -1

    def _waits(self) -> WaitLog:
        waits = self.waits
        return WaitLog(
            job=_ints(self._job(wait.job) for wait in waits),
            start_seconds=_reals(self.since(wait.start) for wait in waits),
            end_seconds=_reals(self._end(wait.end) for wait in waits),
            reason=_words(wait.reason for wait in waits),
            stage=_words(wait.stage for wait in waits),
            plugin=_words(wait.plugin for wait in waits),
        )

    def _end(self, at: float | None) -> float:
        return math.nan if at is None else self.since(at)

    def _activity(self) -> Activity:
        """Return the activities of jobs on their slots, and the idle periods of each lease."""
        busy: dict[int, list[tuple[float, float]]] = defaultdict(list)
        rows: list[tuple[int, int, int, float, float, str]] = []
        for each in self.segments:
            job, app = self._job(each.job), self._app(each.app)
            for gpu in each.slots:
                busy[gpu].append((each.start, each.end))
                rows.append((job, app, gpu, self.since(each.start), self.since(each.end), each.activity))
        for hold in self._record.holds.holds:
            end = self.until if hold.end is None else hold.end
            job, app = self._job_of(hold), self._app(hold.app)
            gaps = _gaps(hold.start, end, busy[hold.gpu])
            rows += [(job, app, hold.gpu, self.since(start), self.since(until), "idle") for start, until in gaps]
        return Activity(
            job=_ints(row[0] for row in rows),
            app=_ints(row[1] for row in rows),
            gpu=_ints(row[2] for row in rows),
            start_seconds=_reals(row[3] for row in rows),
            end_seconds=_reals(row[4] for row in rows),
            activity=[row[5] for row in rows],
        )


def _ints(items: Any) -> Ints:
    return np.array(list(items), np.int64)


def _reals(items: Any) -> Reals:
    return np.array(list(items), np.float64)


def _words(items: Any) -> Words:
    return np.array(list(items), object)


def _overlaps(segment: Segment, hold: Hold, until: float) -> bool:
    end = until if hold.end is None else hold.end
    return segment.app == hold.app and hold.gpu in segment.slots and segment.start < end and segment.end > hold.start


def _gaps(start: float, end: float, busy: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the gaps of at least 50 ms from ``start`` to ``end`` (Unix times) outside all busy periods."""
    at, found = start, []
    for begun, over in sorted(busy):
        if over <= at or begun >= end:
            continue
        if begun - at >= 0.05:
            found.append((at, begun))
        at = max(at, over)
    return [*found, (at, end)] if end - at >= 0.05 else found
