"""What an app master still has to tell the arbiter: reports wait here until an answer acknowledges them."""

import threading
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from eunomia.bundles import ByBundle
from eunomia.events import JobAdded
from eunomia.forecasts import Forecast
from eunomia.shapes import builds, value
from eunomia.units import Locality


@value
class Life:
    """What became of a job last: one of ``finished``, ``failed``, ``paused``, ``resumed``."""

    what: str
    again_in: float | None = None
    """With failed: seconds until it is tried again; None: never."""
    why: str = ""
    iterations: float | None = None
    """With resumed: its whole work from now on."""

    @property
    def is_end(self) -> bool:
        """Whether the job is over."""
        return self.what == "finished" or (self.what == "failed" and self.again_in is None)


@value
class Progress:
    """Iterations done at this moment, and iterations a second from now on."""

    iterations_done: float
    rate: float


@value
class RateReport:
    """Iterations a second that a job was measured to make."""

    job: str
    gpus: int
    locality: Locality
    gpu_type: str
    rate: float


@value
class ReleaseReport:
    """Slots of a lease that the app cannot use now."""

    lease: int
    epoch: int
    gpus: tuple[int, ...]


@value
class StandingReport:
    """What people see of the search."""

    metric: str
    best: float | None
    best_job: str
    best_params_json: str
    best_checkpoint: str
    last: str
    trials: int


@builds
class BidReport:
    """The answer to an offer; ``table`` has one claim."""

    offer: int
    table: ByBundle


@dataclass(slots=True)
class Reports:
    """Everything that one request tells."""

    added: dict[str, JobAdded] = field(default_factory=dict)
    lives: dict[str, Life] = field(default_factory=dict)
    progress: dict[str, Progress] = field(default_factory=dict)
    adapted: dict[str, float] = field(default_factory=dict)
    """Batch size by job."""
    rates: list[RateReport] = field(default_factory=list)
    forecast: Forecast | None = None
    division: Mapping[str, tuple[int, ...]] | None = None
    bid: BidReport | None = None
    releases: list[ReleaseReport] = field(default_factory=list)
    standing: StandingReport | None = None
    done: float | None = None
    """Part of the whole work."""


class Outbox:
    """Reports by key: a newer one replaces an older one of the same key. Thread-safe.

    What was taken is not taken again unless ``give_back`` says that it did not arrive. Every report is idempotent.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[tuple[str, Hashable], Any] = {}
        self._urgent = False
        self._listener = threading.Event()

    def listen(self, listener: threading.Event) -> None:
        """Have an event set, instead of the last one, as soon as there is what should not wait for a heartbeat."""
        with self._lock:
            self._listener = listener
            if self._urgent:
                listener.set()

    def put(self, kind: str, report: Any, *, key: Hashable = None, urgent: bool = True) -> None:
        """Add a report of a kind, a field of ``Reports``."""
        with self._lock:
            self._waiting[kind, key] = report
            if urgent:
                self._urgent = True
                self._listener.set()

    def drop(self, kind: str, *, key: Hashable = None) -> None:
        """Take a report back that is not true any more."""
        with self._lock:
            self._waiting.pop((kind, key), None)

    def clear(self) -> None:
        """Forget everything: it is all reported anew after a registration."""
        with self._lock:
            self._waiting.clear()
            self._urgent = False

    def take(self) -> "Sending":
        """Return what the next request tells.

        The arbiter folds events of one moment in a fixed order in which a job's reports come before the job is added.
        So where jobs are added, what is said of jobs waits for the request after that; and where a job is over, nothing
        else is said of it.
        """
        with self._lock:
            adding = any(kind == "added" for kind, _ in self._waiting)
            chosen = {key: report for key, report in self._waiting.items() if not adding or key[0] == "added"}
            for key in chosen:
                del self._waiting[key]
            self._urgent = bool(self._waiting)
        over = {key for (kind, key), report in chosen.items() if kind == "lives" and report.is_end}
        chosen = {key: report for key, report in chosen.items() if not _is_of(over, key, report)}
        return Sending(items=chosen)

    def give_back(self, sending: "Sending") -> None:
        """Queue again what did not arrive, unless something newer has taken its place."""
        with self._lock:
            self._waiting = sending.items | self._waiting


def _is_of(over: set[Hashable], key: tuple[str, Hashable], report: Any) -> bool:
    """Whether something is said of a job in the same breath as that it is over: the arbiter would not know it."""
    kind, job = key
    return (kind in ("progress", "adapted") and job in over) or (kind == "rates" and report.job in over)


@builds
class Sending:
    """Reports that are on their way, by kind and key."""

    items: dict[tuple[str, Hashable], Any]

    def reports(self) -> Reports:
        """Return them sorted into kinds."""
        reports = Reports()
        for (kind, key), report in self.items.items():
            into = getattr(reports, kind)
            if isinstance(into, dict) and kind != "division":
                into[key] = report
            elif isinstance(into, list):
                into.append(report)
            else:
                setattr(reports, kind, report)
        return reports
