"""Computes the results of a live run, for the demo's final table and its tests."""

import dataclasses
import json
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from eunomia_appmaster.app.outputs import STDERR, newest_output
from eunomia_appmaster.explaining.activity import Line
from eunomia_appmaster.journal_check import Rule, check_folder
from eunomia_testbed.live_runs.fairness import final_rho
from eunomia_testbed.live_runs.logged import Trial, overlaps, read_logs, tag_of_steps
from eunomia_testbed.live_runs.record import AppLife, LiveRecord

FAILED = "failed"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AppOutcome:
    """The results of one app; ``twice`` is the number of iterations that were executed twice."""

    app: str
    state: str
    rho: float | None
    jct_seconds: float | None
    slot_seconds: float
    trials: int
    metric: str
    best: float | None
    best_job: str
    best_params: str
    suspended: int
    twice: int
    failed: int = 0
    """Number of trials that failed permanently."""
    last_error: str = ""
    """Name and error of the last failed trial, and the path of its log."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DemoOutcome:
    """The results of a finished run.

    Attributes:
        seconds: time from the first arrival to the last end, or to the interruption.
        contested: number of auctions with at least two bids and some c_i below 1.
        suspensions: number of suspensions of unfinished jobs.
        resumed: number of suspensions after which the job ran again.
        in_use: fraction of the slot time that was leased.
        held_twice: findings, in the journal and in the workers' own files, of slots with two holders.
        twice_at_most: largest number of iterations that were repeated after one resumption.
    """

    apps: tuple[AppOutcome, ...]
    seconds: float
    auctions: int
    paid: int
    contested: int
    suspensions: int
    resumed: int
    in_use: float | None
    held_twice: tuple[str, ...]
    twice_at_most: int
    faults: tuple[str, ...]

    @property
    def failed_trials(self) -> int:
        """Return the number of trials of all apps that failed permanently."""
        return sum(app.failed for app in self.apps)

    @property
    def finished(self) -> int:
        """Return the number of finished apps."""
        return sum(app.state == "finished" for app in self.apps)

    def to_json(self) -> dict[str, Any]:
        """Return the results as JSON values."""
        return dataclasses.asdict(self)


def outcome_of(record: LiveRecord) -> DemoOutcome:
    """Return the results of a run from its record, which must be read to its end."""
    start = record.arrived_at or record.last_at
    until = max([record.last_at, *(life.ended_at or 0.0 for life in record.apps.values())])
    ends = [life.ended_at for life in record.apps.values()]
    end = until if not ends or None in ends else max(at for at in ends if at is not None)
    notes = record.notes()
    apps: list[tuple[AppOutcome, int]] = [
        _app(record, life, notes.get(app, {}), until) for app, life in sorted(record.apps.items())
    ]
    suspended = [line for line in record.lines if line.event == "suspended"]
    held = math.fsum(min(hold.end or end, end) - hold.start for hold in record.holds.holds if hold.start < end)
    return DemoOutcome(
        apps=tuple(app for app, _ in apps),
        seconds=end - start,
        auctions=len(record.rounds.auctions),
        paid=sum(made.paid for made in record.rounds.auctions),
        contested=len(record.rounds.contested),
        suspensions=len(suspended),
        resumed=sum(_went_on(line, record.lines) for line in suspended),
        in_use=held / (record.slots * (end - start)) if record.slots and end > start else None,
        held_twice=held_twice(record),
        twice_at_most=max((most for _, most in apps), default=0),
        faults=tuple(made.fault for made in record.rounds.rounds if made.fault),
    )


def held_twice(record: LiveRecord) -> tuple[str, ...]:
    """Return the findings of ``eunomia journal check`` on slots with two holders, in journal and workers' files."""
    found = check_folder(record.folder).findings
    return tuple(finding.what for finding in found if finding.rule in (Rule.HELD_TWICE, Rule.RAN_TWICE))


def _app(record: LiveRecord, life: AppLife, note: dict[str, Any], until: float) -> tuple[AppOutcome, int]:
    trials = record.trials(life.app)
    standing = note.get("standing") or {}
    best = standing.get("best_job") or ""
    trial = next((each for each in trials if each.job == best), None)
    doubles = {each.job: _doubles(record, life.app, each) for each in trials}
    held = [hold for hold in record.holds.holds if hold.app == life.app]
    counted = Counter(line.event for line in record.lines if line.app == life.app)
    made = AppOutcome(
        app=life.app,
        state=life.state if life.ended_at is not None else "unfinished",
        rho=final_rho(life, record.apps, record.slots) or note.get("rho"),
        jct_seconds=life.jct_seconds,
        slot_seconds=math.fsum((hold.end or until) - hold.start for hold in held),
        trials=len(trials),
        metric=str(standing.get("metric") or ""),
        best=None if trial is None else trial.best,
        best_job=best if len(trials) > 1 else life.app,
        best_params=_words(trial.parameters if trial is not None else "{}"),
        suspended=counted["suspended"],
        twice=sum(sum(each) for each in doubles.values()),
        failed=sum(trial.state == FAILED for trial in trials),
        last_error=_last_error(record, life.app, trials),
    )
    return made, max((most for each in doubles.values() for most in each), default=0)


def _last_error(record: LiveRecord, app: str, trials: Sequence[Trial]) -> str:
    last = next((trial for trial in reversed(trials) if trial.state == FAILED), None)
    if last is None:
        return ""
    log = newest_output(record.app_dir(app) / last.job.rpartition("/")[2], STDERR)
    return f"{last.job}: {last.why or 'no error is known'} (log {log})"


def _doubles(record: LiveRecord, app: str, trial: Trial) -> list[int]:
    """Return the iterations repeated at each resumption of a trial, or only their sum if steps are not logged."""
    logs = read_logs(record.app_dir(app) / trial.job.rpartition("/")[2])
    tag = tag_of_steps(logs)
    return [trial.lost] if tag is None else [each.twice for each in overlaps(logs, tag)]


def _went_on(line: Line, lines: list[Line]) -> bool:
    """Return whether a suspended job ran again."""
    return any(
        later.job == line.job and later.at > line.at and later.event in ("resumed", "running") for later in lines
    )


def _words(parameters: str) -> str:
    plain = json.loads(parameters)
    return ", ".join(
        f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}" for name, value in plain.items()
    )
