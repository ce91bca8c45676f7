"""One submitted app: its data beyond the arbiter's state, stored as a note in the journal."""

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any

from eunomia.journal.values import Note
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.service.ended_numbers import compact, expanded

NOTE = "app"
LIVE, SUSPENDED = "live", "suspended"
MASTER_ENDED = "its app master ended before its work was done"
"""Prefix of the failure reason of an app that can be resumed, in journals of earlier versions."""
MOST_NOTICES, MOST_NOTICE = 20, 600
"""Maximum number of notices kept per app (the newest), and maximum length of each in characters."""
MOST_FAILURES = 100
"""Maximum number of failed jobs per app whose errors are kept (the newest)."""


@dataclasses.dataclass(slots=True, kw_only=True)
class App:
    """The record of a submitted app.

    Attributes:
        state: ``live``; ``suspended`` while its app master is not restarted, since it exited on its own too often;
            or the outcome: ``finished``, ``failed`` or ``cancelled``.
        submitted_at: Unix time in seconds.
        arrived_at: seconds on the arbiter's clock.
        ended_at: seconds on the arbiter's clock.
    """

    name: str
    user: str
    weight: float
    tuner: str
    trials: int
    least: int
    most: int
    max_iterations: int | None = None
    submitted_at: float
    arrived_at: float
    request_id: str = ""
    node: str = ""
    state: str = "live"
    why: str = ""
    ended_at: float | None = None
    ended_jobs: dict[str, str] = dataclasses.field(default_factory=dict)
    """Outcome of each ended job, by job: ``finished``, ``failed`` or ``cancelled``."""
    failures: dict[str, str] = dataclasses.field(default_factory=dict)
    """Failure reasons of the last ``MOST_FAILURES`` permanently failed jobs, by job."""
    progress: float | None = None
    standing: dict[str, Any] = dataclasses.field(default_factory=dict)
    gpu_seconds: float = 0.0
    """Slot-seconds of the app, set when it has ended."""
    rho: float | None = None
    """Last known finish-time fairness of the app."""
    more_trials: list[int] = dataclasses.field(default_factory=list)
    """Sizes of the groups of trials that were added after the app had ended, in order; ``trials`` includes them."""
    more_request: str = ""
    """Id of the request for the last of these groups."""
    attempts: int = 0
    """Number of the last attempt of its app master; 0: none yet."""
    away_seconds: float = 0.0
    """Sum of the seconds between the app's ends and its resumptions."""
    login: str = ""
    """The account under which its processes run; empty for the arbiter's own."""
    issue: int = 0
    """Number of its app master's token: microseconds of Unix time, so that a later app of this name has a higher one;
    0 for an app of an earlier version."""

    @property
    def over(self) -> bool:
        """Whether the app has ended."""
        return self.state not in (LIVE, SUSPENDED)

    @property
    def lost_master(self) -> bool:
        """Whether the app failed under an earlier version because its app master ended; its jobs may be intact."""
        return self.state == "failed" and self.why.startswith(MASTER_ENDED)

    @property
    def ended_at_unix(self) -> float | None:
        """Unix time of the app's end in seconds; None: it has not ended, or its journal is of another version."""
        if self.ended_at is None or not self.submitted_at:
            return None
        return self.submitted_at + self.ended_at - self.arrived_at

    def taken_up(self, now: float) -> "App":
        """Return the record of the ended app once it is resumed at ``now`` (seconds on the arbiter's clock)."""
        away = self.away_seconds + max(0.0, now - (now if self.ended_at is None else self.ended_at))
        fresh: dict[str, Any] = {"state": LIVE, "why": "", "ended_at": None, "gpu_seconds": 0.0}
        fresh |= {"issue": self.issue + 1, "attempts": self.attempts + 1}
        return dataclasses.replace(self, **fresh, away_seconds=away)

    def lived_seconds(self, now: float) -> float:
        """Return the seconds from arrival to end (``now`` if live), without those between an end and a resumption."""
        return (now if self.ended_at is None else self.ended_at) - self.arrived_at - self.away_seconds

    def note(self) -> Note:
        """Return the app's note for the journal."""
        values = dataclasses.asdict(dataclasses.replace(self, ended_jobs={}))
        if not self.login:  # readable for an earlier version
            del values["login"]
        return Note(kind=NOTE, key=self.name, value=values | {"ended_jobs": compact(self.ended_jobs)})

    def standing_message(self) -> pb.Standing:
        """Return the state of the app's search, as shown to users."""
        return pb.Standing(**self.standing)

    def take_standing(self, standing: pb.Standing) -> None:
        """Store the app master's report on the search."""
        self.standing = {
            "metric": standing.metric[:200],
            "best": _finite_or_none(standing, "best"),
            "best_job": standing.best_job[:100],
            "best_params_json": standing.best_params_json[:10_000],
            "best_checkpoint": standing.best_checkpoint[:4096],
            "last": standing.last[:500],
            "trials": standing.trials,
            "best_step": standing.best_step if standing.HasField("best_step") else None,
            "checkpoint_step": standing.checkpoint_step if standing.HasField("checkpoint_step") else None,
            "checkpoint_metric": _finite_or_none(standing, "checkpoint_metric"),
            "stalls": standing.stalls,
            "last_stall": standing.last_stall[:1000],
            "stall_warning": standing.stall_warning[:500],
        }
        if standing.by_logs:
            self.standing["by_logs"] = True
        if standing.notices:
            self.standing["notices"] = [notice[:MOST_NOTICE] for notice in standing.notices[-MOST_NOTICES:]]

    @property
    def unfinished(self) -> int:
        """Number of jobs that live, have not begun, or were cancelled by the app's end."""
        return max(0, self.trials - sum(end != "cancelled" for end in self.ended_jobs.values()))

    @property
    def failed(self) -> int:
        """Number of jobs that failed permanently."""
        return sum(end == "failed" for end in self.ended_jobs.values())

    def job_failed(self, job: str, why: str) -> None:
        """Record that a job failed permanently."""
        self.ended_jobs[job] = "failed"
        self.failures[job] = why[:500]
        if len(self.failures) > MOST_FAILURES:
            del self.failures[next(iter(self.failures))]

    def suspend(self, why: str) -> None:
        """Record that the app master is suspended, with the reason."""
        self.state, self.why = SUSPENDED, why[:1000]

    def go_on(self) -> None:
        """Record that the app master runs again, or must be retried at once."""
        self.state, self.why = LIVE, ""

    def end(self, state: str, why: str, now: float) -> None:
        """Record the app's end; later calls have no effect."""
        if not self.over:
            self.state, self.why, self.ended_at = state, why[:1000], now


def _finite_or_none(standing: pb.Standing, field: str) -> float | None:
    given = float(getattr(standing, field))
    return given if standing.HasField(field) and math.isfinite(given) else None  # type: ignore[arg-type]


STATES = (LIVE, SUSPENDED, "finished", "failed", "cancelled")
_NUMBERS = ("weight", "submitted_at", "arrived_at", "ended_at", "progress", "gpu_seconds", "rho", "away_seconds")
_COUNTS = ("trials", "least", "most", "max_iterations", "attempts", "issue")
_TEXTS = ("name", "user", "tuner", "request_id", "more_request", "node", "state", "why", "login")
_KINDS: Mapping[str, type | tuple[type, ...]] = {
    **dict.fromkeys(_NUMBERS, (int, float)),
    **dict.fromkeys(_COUNTS, int),
    **dict.fromkeys(_TEXTS, str),
    **dict.fromkeys(("ended_jobs", "failures", "standing"), dict),
    "more_trials": list,
}


def read_app(name: str, values: Any) -> App | None:
    """Read an app from its note; None if the note is malformed."""
    try:
        app = App(**values)
    except TypeError:
        return None
    for field in dataclasses.fields(App):
        given = getattr(app, field.name)
        if given is None and field.default is None:
            continue
        if not isinstance(given, _KINDS.get(field.name, object)) or isinstance(given, bool):
            return None
    try:
        app.ended_jobs = expanded(name, app.ended_jobs)
    except (ValueError, AttributeError, TypeError):
        return None
    return app if app.name == name and app.state in STATES else None


def app_of(
    file: Any, *, name: str, submitted_at: float, arrived_at: float, request_id: str, node: str, login: str = ""
) -> App:
    """Create the record of an app from its app file.

    Args:
        file: an ``eunomia_appmaster.app.app_file.AppFile``.
        name: the app's unique name.
        submitted_at: Unix time in seconds.
        arrived_at: seconds on the arbiter's clock.
        request_id: id of the submission request.
        node: node of its app master.
        login: the account under which its processes run; empty for the arbiter's own.
    """
    return App(
        name=name,
        user=file.user,
        weight=float(file.app.weight),
        tuner=file.tuner.kind,
        trials=file.search.trials,
        least=file.job.slots.min,
        most=file.job.slots.max,
        max_iterations=file.job.max_iterations,
        submitted_at=submitted_at,
        arrived_at=arrived_at,
        request_id=request_id,
        node=node,
        login=login,
        attempts=1,
        issue=int(submitted_at * 1e6),
        standing={"metric": (file.search.metric or "")[:200], "trials": file.search.trials},
    )


def best_params(app: App) -> dict[str, Any]:
    """Return the parameters of the best trial, as reported by the app master; empty if unknown or malformed."""
    try:
        params = json.loads(app.standing.get("best_params_json") or "{}")
    except ValueError:
        return {}
    return params if isinstance(params, dict) else {}
