"""A live run's tables, made of its journal, activity logs, event files and trials."""

import dataclasses
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from eunomia_testbed.demo.activity import ENDS, Line, Segment, segments
from eunomia_testbed.demo.fairness import final_rho
from eunomia_testbed.demo.holdings import Hold
from eunomia_testbed.demo.logged import Trial, finite, overlaps, read_logs, read_trials
from eunomia_testbed.demo.record import LiveRecord
from eunomia_testbed.demo.rounds import Round
from eunomia_testbed.results import ResultFolder
from eunomia_testbed.results import tables as t

LOSS_STRIDE = 5
"""Of the losses, which are logged every step, every fifth goes into the tables."""
OVER = frozenset({"finished", "failed", "stopped"})
_TOLD = ("suspended", "resumed", "paused", "promoted", "finished", "stopped", "failed")
_WORDS = {"paused": "paused at its rung", "failed": "failed", "suspended": "suspended", "stopped": "stopped early"}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RhoSample:
    """An app's ρ and slots at a moment, as the arbiter showed them; Unix time."""

    at: float
    app: str
    rho: float | None
    slots: int


class Tables:
    """The tables of one run.

    Args:
        record: read to its end.
        samples: ρ over time, as it was watched; empty: what the auctions recorded.
    """

    def __init__(self, record: LiveRecord, samples: Sequence[RhoSample] = ()) -> None:
        self._record = record
        self._samples = samples
        self._zero = record.arrived_at or record.last_at
        ends = [line.at for line in record.lines] + [life.ended_at or 0.0 for life in record.apps.values()]
        self._until = max([record.last_at, *ends])
        self.segments = segments(record.lines, self._until)
        self.trials = {app: read_trials(record.app_dir(app)) for app in record.apps}
        self._lines: dict[str, list[Line]] = defaultdict(list)
        for line in record.lines:
            self._lines[line.job].append(line)
        self._metrics, self._twice = self._read_events()

    def write(self, folder: ResultFolder, *, policy: str, seed: int) -> None:
        """Write every table, the plugins' records, and the summary."""
        made: dict[str, list[Any]] = {
            "jobs": list(self._jobs()),
            "apps": list(self._apps()),
            "rounds": list(self._rounds()),
            "leases": list(self._leases()),
            "waits": list(self._waits()),
            "rho": list(self._rho()),
            "searches": list(self._searches()),
            "metrics": self._metrics,
            "trials": list(self._trials()),
            "rungs": list(self._rungs()),
            "segments": list(self._segments()),
            "events": list(self._events()),
        }
        for name, rows in made.items():
            folder.write(name, rows, policy=policy, seed=seed)
        for plugin, records in self.records().items():
            folder.write_record(plugin, records, policy=policy, seed=seed)
        folder.write_summary()

    # -- small parts

    def _since(self, at: float) -> float:
        """Seconds since the first arrival."""
        return round(at - self._zero, 6)

    def _ended(self, at: float | None) -> float | None:
        return None if at is None else self._since(at)

    def _name(self, job: str) -> str:
        """``app/number``, or the app alone where it has one job."""
        app = job.rpartition("/")[0]
        return app if len(self.trials.get(app, ())) == 1 else job

    def _trial_of(self, job: str) -> Trial | None:
        return next((trial for trial in self.trials.get(job.rpartition("/")[0], ()) if trial.job == job), None)

    # -- apps and jobs

    def _apps(self) -> Iterator[t.AppRow]:
        notes = self._record.notes()
        for app, life in sorted(self._record.apps.items()):
            note = notes.get(app, {})
            yield t.AppRow(
                app=app,
                user=note.get("user"),
                tuner=note.get("tuner"),
                weight=note.get("weight"),
                state=life.state if life.ended_at is not None else "unfinished",
                jobs=len(self.trials[app]) or None,
                arrival_seconds=self._since(life.arrived_at),
                finish_seconds=self._ended(life.ended_at),
                jct_seconds=None if life.ended_at is None else life.ended_at - life.arrived_at,
                slot_seconds=self._slot_seconds(app, self._until),
                rho=final_rho(life, self._record.apps, self._record.slots),
            )

    def _slot_seconds(self, app: str, until: float) -> float:
        """Slot time that the app had had by then."""
        return math.fsum(
            min(hold.end or self._until, until) - hold.start
            for hold in self._record.holdings.holds
            if hold.app == app and hold.start < until
        )

    def _jobs(self) -> Iterator[t.JobRow]:
        for app in sorted(self._record.apps):
            note = self._record.notes().get(app, {})
            for trial in self.trials[app]:
                yield self._job(app, trial, note.get("user"))

    def _job(self, app: str, trial: Trial, user: str | None) -> t.JobRow:
        lines = self._lines.get(trial.job, [])
        added = self._record.jobs.get(trial.job)
        arrived = self._record.job_arrived_at.get(trial.job)
        began = [line.at for line in lines if line.event == "start"]
        over = [line.at for line in lines if line.event in ENDS] if trial.state in OVER else []
        mine = [each for each in self.segments if each.job == trial.job]
        waited = [wait for wait in self._record.waits.waits if wait.job == trial.job and wait.reason != "paused_by_app"]
        return t.JobRow(
            app=app,
            job=self._name(trial.job),
            user=user,
            model=_model_of(self._record.app_dir(app)),
            state=trial.state,
            slots_asked=None if added is None else added.least,
            arrival_seconds=self._ended(arrived),
            start_seconds=self._since(began[0]) if began else None,
            finish_seconds=self._since(over[-1]) if over else None,
            jct_seconds=over[-1] - arrived if over and arrived is not None else None,
            wait_seconds=math.fsum((wait.end or self._until) - wait.start for wait in waited),
            run_seconds=math.fsum(each.end - each.start for each in mine if each.activity == "run"),
            slot_seconds=math.fsum((each.end - each.start) * len(each.slots) for each in mine),
            iterations=trial.iterations,
            iterations_lost=self._twice.get(trial.job, trial.lost),
            restarts=max(0, len(began) - 1),
        )

    def _trials(self) -> Iterator[t.TrialRow]:
        notes = self._record.notes()
        for app in sorted(self._record.apps):
            best = (notes.get(app, {}).get("standing") or {}).get("best_job")
            for trial in self.trials[app]:
                yield t.TrialRow(
                    app=app,
                    job=self._name(trial.job),
                    params=trial.parameters,
                    state=trial.state,
                    rung=trial.rung,
                    iterations=trial.iterations,
                    metric=trial.best,
                    best=trial.job == best,
                    error=trial.why or None if trial.state == "failed" else None,
                )

    def _searches(self) -> Iterator[t.SearchRow]:
        for app in sorted(self._record.apps):
            metric, mode = _search_of(self._record.app_dir(app))
            if metric:
                yield t.SearchRow(app=app, metric=metric, mode=mode)

    def _rungs(self) -> Iterator[t.RungRow]:
        for job, lines in self._lines.items():
            reached = [at for at, line in enumerate(lines) if _is_judged(line)]
            for rung, at in enumerate(reached):
                line = lines[at]
                after = [later.event for later in lines[at + 1 :]]
                promoted = "promoted" in after or rung < len(reached) - 1
                verdict = "finished" if line.event == "finished" else "promoted" if promoted else "stopped"
                yield t.RungRow(
                    app=line.app,
                    job=self._name(job),
                    rung=rung,
                    iterations=line.step,
                    time_seconds=self._since(line.at),
                    metric=self._metric_at(job, line.step),
                    verdict=verdict,
                )

    # -- rounds, leases, waits

    def _rounds(self) -> Iterator[t.RoundRow]:
        rounds = self._record.rounds.rounds
        suspended = self._suspensions(rounds)
        for number, made in enumerate(rounds):
            yield t.RoundRow(
                round=made.number,
                time_seconds=self._since(made.at),
                trigger=" ".join(made.causes),
                free_slots=made.offered or self._record.slots - made.busy,
                busy_slots=made.busy,
                running_jobs=made.running,
                waiting_jobs=made.waiting,
                started=made.changes["started"],
                kept=made.kept,
                grown=made.changes["grown"],
                shrunk=made.changes["shrunk"],
                migrated=made.changes["migrated"],
                suspended=suspended[number],
                gap=made.gap,
                fault=made.fault,
            )

    def _suspensions(self, rounds: Sequence[Round]) -> list[int]:
        """Suspensions of unfinished jobs by round: each belongs to the last round before it that revoked slots."""
        counts = [0] * len(rounds)
        for line in self._record.lines:
            decided = [at for at, made in enumerate(rounds) if (made.decided_at or made.at) <= line.at]
            revoking = [at for at in decided if rounds[at].revoked]
            if line.event == "suspended" and decided:
                counts[(revoking or decided)[-1]] += 1
        return counts

    def _leases(self) -> Iterator[t.LeaseRow]:
        for hold in self._record.holdings.holds:
            machine, slot = self._record.place(hold.gpu)
            yield t.LeaseRow(
                app=hold.app,
                job=self._job_of(hold),
                machine=machine,
                slot=slot,
                epoch=hold.epoch,
                start_seconds=self._since(hold.start),
                end_seconds=self._ended(hold.end),
                ended_by=hold.ended_by or None,
            )

    def _job_of(self, hold: Hold) -> str | None:
        """The job of the lease, or the only one that ran under it."""
        if hold.job is not None:
            return self._name(hold.job)
        ran = {each.job for each in self.segments if _overlaps(each, hold, self._until)}
        return self._name(ran.pop()) if len(ran) == 1 else None

    def _waits(self) -> Iterator[t.WaitRow]:
        for wait in self._record.waits.waits:
            if (wait.end or self._until) > wait.start:
                yield t.WaitRow(
                    job=self._name(wait.job),
                    start_seconds=self._since(wait.start),
                    end_seconds=self._ended(wait.end),
                    reason=wait.reason,
                    stage=wait.stage,
                    plugin=wait.plugin,
                )

    def records(self) -> dict[str, list[dict[str, Any]]]:
        """Every plugin's record, a row an app and round."""
        made: dict[str, list[dict[str, Any]]] = {}
        for each in self._record.rounds.rounds:
            for plugin, rows in each.records.items():
                for row in rows:
                    plain = {name: value for name, value in row.items() if name != "decided_at"}
                    timed = {"round": plain.pop("round"), "time_seconds": self._since(row["decided_at"])}
                    made.setdefault(plugin, []).append(timed | plain)
        return made

    def _rho(self) -> Iterator[t.RhoRow]:
        for sample in self._samples or self._recorded_rho():
            if sample.rho is None:
                continue  # a policy that knows no ρ, or an app that had not reported its work
            yield t.RhoRow(
                app=sample.app, time_seconds=self._since(sample.at), rho=sample.rho, slots=sample.slots
            )  # fmt: skip

    def _recorded_rho(self) -> Iterator[RhoSample]:
        for made in self._record.rounds.auctions:
            for row in made.lines:
                if row["rho_now"] is not None:
                    held = sum(
                        hold.app == row["app"] and hold.start <= made.at < (hold.end or math.inf)
                        for hold in self._record.holdings.holds
                    )
                    yield RhoSample(at=made.at, app=row["app"], rho=row["rho_now"], slots=held)

    # -- what slots did, what happened

    def _segments(self) -> Iterator[t.SegmentRow]:
        busy: dict[int, list[tuple[float, float]]] = defaultdict(list)
        for each in self.segments:
            for gpu in each.slots:
                busy[gpu].append((each.start, each.end))
                yield self._segment(self._name(each.job), each.app, gpu, each.start, each.end, each.activity)
        for hold in self._record.holdings.holds:
            end = self._until if hold.end is None else hold.end
            for start, until in _gaps(hold.start, end, busy[hold.gpu]):
                yield self._segment(self._job_of(hold) or hold.app, hold.app, hold.gpu, start, until, "idle")

    def _segment(self, job: str, app: str, gpu: int, start: float, end: float, activity: str) -> t.SegmentRow:
        machine, slot = self._record.place(gpu)
        return t.SegmentRow(
            job=job,
            app=app,
            slot=slot,
            machine=machine,
            start_seconds=self._since(start),
            end_seconds=self._since(end),
            activity=activity,
        )

    def _events(self) -> Iterator[t.EventRow]:
        rows = [
            t.EventRow(
                time_seconds=self._since(line.at),
                kind=f"job.{line.event}",
                app=line.app,
                job=self._name(line.job),
                text=f"{self._name(line.job)} {_WORDS.get(line.event, line.event)} at {line.step}",
            )
            for line in self._record.lines
            if line.event in _TOLD
        ]
        for app, life in self._record.apps.items():
            rows.append(self._app_event(app, "arrived", life.arrived_at))
            if life.ended_at is not None:
                rows.append(self._app_event(app, life.state, life.ended_at))
        yield from sorted(rows, key=lambda row: row.time_seconds)

    def _app_event(self, app: str, what: str, at: float) -> t.EventRow:
        return t.EventRow(time_seconds=self._since(at), kind=f"app.{what}", app=app, text=f"{app} {what}")

    # -- what was logged

    def _read_events(self) -> tuple[list[t.MetricRow], dict[str, int]]:
        rows: list[t.MetricRow] = []
        twice: dict[str, int] = {}
        for app, trials in self.trials.items():
            for trial in trials:
                logs = read_logs(self._record.app_dir(app) / trial.job.rpartition("/")[2])
                twice[trial.job] = sum(each.twice for each in overlaps(logs))
                for tag in ("val/accuracy", "train/loss"):
                    series = logs.series(tag)
                    stride = LOSS_STRIDE if tag == "train/loss" else 1
                    points = zip(series.step, series.wall_time, series.value, strict=True)
                    for step, at, value in list(points)[::stride]:
                        rows.append(
                            t.MetricRow(
                                job=self._name(trial.job),
                                app=app,
                                step=int(step),
                                time_seconds=self._since(float(at)),
                                slot_seconds=self._slot_seconds(app, float(at)) if stride == 1 else None,
                                tag=tag,
                                value=finite(str(value)),
                            )
                        )
        return rows, twice

    def _metric_at(self, job: str, step: int) -> float | None:
        name = self._name(job)
        found = [row for row in self._metrics if row.job == name and row.tag == "val/accuracy" and row.step <= step]
        return found[-1].value if found else None


def _overlaps(segment: Segment, hold: Hold, until: float) -> bool:
    end = until if hold.end is None else hold.end
    return segment.app == hold.app and hold.gpu in segment.slots and segment.start < end and segment.end > hold.start


def _gaps(start: float, end: float, busy: Sequence[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """The stretches between start and end that nothing covers, of at least 50 ms."""
    at = start
    for begun, over in sorted(busy):
        if over <= at or begun >= end:
            continue
        if begun - at >= 0.05:
            yield at, begun
        at = max(at, over)
    if end - at >= 0.05:
        yield at, end


def _app_file(app_dir: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads((app_dir / "app.toml").read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError):
        return {}


def _model_of(app_dir: Path) -> str | None:
    """The script that a job runs, without its ending."""
    words = str(_app_file(app_dir).get("job", {}).get("command", "")).split()
    return next((Path(word).stem for word in words if word.endswith(".py")), None)


def _is_judged(line: Line) -> bool:
    """Whether a trial came to a rung or its end, or was stopped by its tuner while it ran."""
    return line.event in ("paused", "finished") or (line.event == "stopped" and bool(line.slots))


def _search_of(app_dir: Path) -> tuple[str, str]:
    tuner = _app_file(app_dir).get("tuner", {})
    return str(tuner.get("metric", "")), str(tuner.get("mode", "max"))
