"""The submitted apps: their data in addition to the arbiter's state, stored as notes of the journal."""

import dataclasses
import json
import math
import shutil
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eunomia.errors import InputError
from eunomia.journal.values import Note
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.service.settings import KEPT_APPS
from eunomia_appmaster.submission import APP_FILE, SUBMISSION, Submission

if TYPE_CHECKING:
    from eunomia_appmaster.service.ended_apps import EndedApps

NOTE = "app"
MASTER_ENDED = "its app master ended before its work was done"
"""Beginning of the reason of such a failure, after which the app can be resumed."""
MOST_APPS = 1000
"""Most apps that are not over at once."""
MOST_FAILURES = 100
"""Most failed jobs of an app whose errors are kept: the last ones."""
MOST_REQUESTS = 10_000
"""Most submissions that are recognized when they are repeated: the last ones."""


@dataclasses.dataclass(slots=True, kw_only=True)
class App:
    """One app, from its submission on.

    Attributes:
        state: ``live``, or how it ended: finished, failed, cancelled.
        submitted_at: Unix time.
        arrived_at: of the arbiter's clock.
        ended_at: of the arbiter's clock.
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
    """Ends of jobs: finished or failed."""
    failures: dict[str, str] = dataclasses.field(default_factory=dict)
    """Reasons of jobs that failed for good, by name: the last ones."""
    progress: float | None = None
    standing: dict[str, Any] = dataclasses.field(default_factory=dict)
    gpu_seconds: float = 0.0
    """Its slot-seconds, once it is over."""
    rho: float | None = None
    """Its last known finish-time fairness."""

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.state != "live"

    @property
    def lost_master(self) -> bool:
        """Whether it failed because its app master ended for good; its jobs may be intact."""
        return self.state == "failed" and self.why.startswith(MASTER_ENDED)

    def taken_up(self) -> "App":
        """Returns the record with which it resumes after such a failure."""
        return dataclasses.replace(self, state="live", why="", ended_at=None, gpu_seconds=0.0)

    def note(self) -> Note:
        """Returns its note for the journal."""
        return Note(kind=NOTE, key=self.name, value=dataclasses.asdict(self))

    def standing_message(self) -> pb.Standing:
        """Returns the state of its search, shown to users."""
        return pb.Standing(**self.standing)

    def take_standing(self, standing: pb.Standing) -> None:
        """Store its app master's report on the search."""
        self.standing = {
            "metric": standing.metric[:200],
            "best": standing.best if standing.HasField("best") and math.isfinite(standing.best) else None,
            "best_job": standing.best_job[:100],
            "best_params_json": standing.best_params_json[:10_000],
            "best_checkpoint": standing.best_checkpoint[:4096],
            "last": standing.last[:500],
            "trials": standing.trials,
        }

    @property
    def failed(self) -> int:
        """How many jobs failed for good."""
        return sum(end == "failed" for end in self.ended_jobs.values())

    def job_failed(self, job: str, why: str) -> None:
        """Record that a job failed for good."""
        self.ended_jobs[job] = "failed"
        self.failures[job] = why[:500]
        if len(self.failures) > MOST_FAILURES:
            del self.failures[next(iter(self.failures))]

    def end(self, state: str, why: str, now: float) -> None:
        """Record its end; only the first one counts."""
        if not self.over:
            self.state, self.why, self.ended_at = state, why[:1000], now


STATES = ("live", "finished", "failed", "cancelled")
_NUMBERS = ("weight", "submitted_at", "arrived_at", "ended_at", "progress", "gpu_seconds", "rho")
_COUNTS = ("trials", "least", "most", "max_iterations")
_TEXTS = ("name", "user", "tuner", "request_id", "node", "state", "why")
_KINDS: Mapping[str, type | tuple[type, ...]] = {
    **dict.fromkeys(_NUMBERS, (int, float)),
    **dict.fromkeys(_COUNTS, int),
    **dict.fromkeys(_TEXTS, str),
    **dict.fromkeys(("ended_jobs", "failures", "standing"), dict),
}


def read_app(name: str, values: Any) -> App | None:
    """Returns an app from its note; None if the note is malformed."""
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
    return app if app.name == name and app.state in STATES else None


class Apps:
    """Apps by name, in order of submission: all that live, and those that ended last.

    Args:
        folder: of all apps' folders.
        apps: of an earlier arbiter, by name.
        keep: how many that are over stay in memory.
        archive: looks up ended apps that are no longer in memory; None: they are not found.

    Raises:
        InputError: a number to keep below 0.
    """

    def __init__(
        self,
        folder: Path,
        apps: Mapping[str, "App"],
        *,
        keep: int = KEPT_APPS,
        archive: "EndedApps | None" = None,
    ) -> None:
        if keep < 0:
            raise InputError("apps that are kept must be 0 or more", value=str(keep), place="--keep-apps")
        self.folder = folder
        self._keep = keep
        self._archive = archive
        self._apps = dict(apps)
        self._requests: OrderedDict[str, str] = OrderedDict()
        for app in self:
            self._note_request(app)
        self._complete()
        for app in self.surplus():
            self.forget(app)

    def __iter__(self) -> Iterator[App]:
        return iter(self._apps.values())

    def get(self, name: str) -> App | None:
        """Returns an app by name, from memory or the archive; changes to an archived app are lost."""
        found = self._apps.get(name)
        return found if found is not None or self._archive is None else self._archive.app(name)

    def archived(self) -> list[App]:
        """Returns the ended apps that only the journal has; may be called from any thread."""
        return [] if self._archive is None else self._archive.all_except(frozenset(self._apps.copy()))

    def surplus(self) -> list[App]:
        """Returns the ended apps beyond the number to keep in memory, by time of end, ascending."""
        over = [app for app in self if app.over]
        if len(over) <= self._keep:
            return []
        over.sort(key=_ended_at)
        return over[: len(over) - self._keep]

    def forget(self, app: App) -> None:
        """Drop an ended app from memory; the journal keeps it."""
        del self._apps[app.name]

    @property
    def live(self) -> list[App]:
        """Apps that are not over."""
        return [app for app in self if not app.over]

    def asked_before(self, request_id: str) -> App | None:
        """The app that a request with this id has made."""
        name = self._requests.get(request_id)
        return None if name is None else self.get(name)

    def unique(self, name: str) -> str:
        """Returns the name, or the first of ``name-2``, ``name-3`` ... that no app has or had."""
        if self._is_new(name):
            return name
        stem, number = name, 2
        while not self._is_new(f"{stem}-{number}"):
            number += 1
        return f"{stem}-{number}"

    def _is_new(self, name: str) -> bool:
        return not (self.folder / name).exists() and self.get(name) is None

    def check_room(self) -> None:
        """Check that one more app fits.

        Raises:
            InputError: there are too many apps.
        """
        if len(self.live) >= MOST_APPS:
            raise InputError(f"at most {MOST_APPS} apps may be here at once", value=str(len(self.live)))

    def prepare(self, app: App, text: str, submission: Submission) -> None:
        """Write the folder of an app before it is journaled, under a temporary name."""
        folder = self._prepared(app.name)
        shutil.rmtree(folder, ignore_errors=True)  # of a submission that a full disk cut short
        folder.mkdir(parents=True, mode=0o700)
        (folder / APP_FILE).write_text(text, encoding="utf-8")
        (folder / SUBMISSION).write_text(submission.to_json(), encoding="utf-8")

    def keep(self, app: App) -> None:
        """Add a journaled app; it is not visible before."""
        self._prepared(app.name).rename(self.folder / app.name)
        self._apps[app.name] = app
        self._note_request(app)

    def take_up(self, app: App) -> None:
        """Replace the record of an ended app by that of its resumption, which is journaled."""
        self._apps[app.name] = app

    def drop(self, app: App) -> None:
        """Remove an app whose submission failed."""
        shutil.rmtree(self._prepared(app.name))

    def _note_request(self, app: App) -> None:
        if app.request_id:
            self._requests[app.request_id] = app.name
            if len(self._requests) > MOST_REQUESTS:
                self._requests.popitem(last=False)

    def _prepared(self, name: str) -> Path:
        return self.folder / f".{name}.new"

    def _complete(self) -> None:
        """Rename the temporary folders of journaled apps, which an earlier arbiter had not done yet."""
        for folder in self.folder.glob(".*.new") if self.folder.is_dir() else ():
            name = folder.name[1 : -len(".new")]
            if name in self._apps and not (self.folder / name).exists():
                folder.rename(self.folder / name)
            else:
                shutil.rmtree(folder)


def _ended_at(app: App) -> float:
    return app.ended_at or 0.0


def in_order(apps: Iterable[App]) -> list[App]:
    """Returns apps by arrival; of an app that is given twice, the last record."""
    return sorted({app.name: app for app in apps}.values(), key=_arrived_at)


def _arrived_at(app: App) -> float:
    return app.arrived_at


def app_of(file: Any, *, name: str, submitted_at: float, arrived_at: float, request_id: str, node: str) -> App:
    """Returns the record of an app file.

    Args:
        file: an ``eunomia_appmaster.app_file.AppFile``.
        name: unique.
        submitted_at: Unix time.
        arrived_at: of the arbiter's clock.
        request_id: of the submission.
        node: of its app master.
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
    )


def best_params(app: App) -> dict[str, Any]:
    """Returns the parameters of the best trial, as its app master reported them."""
    try:
        params = json.loads(app.standing.get("best_params_json") or "{}")
    except ValueError:
        return {}
    return params if isinstance(params, dict) else {}
