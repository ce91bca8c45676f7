"""The app master's pending reports, kept until the arbiter acknowledges them."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from eunomia.contract.bundles import ByBundle
from eunomia.contract.events import JobAdded
from eunomia.model.forecasts import Forecast
from eunomia.model.shapes import builds, value
from eunomia.units import Locality
from eunomia_appmaster.node.system import MACHINE, Flag, System


@value
class Life:
    """A change in a job's life: ``finished``, ``failed``, ``paused`` or ``resumed``."""

    what: str
    again_in: float | None = None
    """With ``failed``: seconds until the job's retry; None: no retry."""
    why: str = ""
    iterations: float | None = None
    """With ``resumed``: the job's whole work from now on, in iterations."""

    @property
    def is_end(self) -> bool:
        """Return whether the job has ended."""
        return self.what == "finished" or (self.what == "failed" and self.again_in is None)


@value
class Progress:
    """Iterations done at this moment, and iterations a second from now on."""

    iterations_done: float
    rate: float


@value
class AdaptationReport:
    """A change of a job's global batch size."""

    job: str
    batch_size: float
    iterations_done: float | None
    """Iterations done at the change; None: not known."""
    at: float
    """Unix seconds by the arbiter's clock."""


@value
class RateReport:
    """A measured rate of a job, in iterations a second."""

    job: str
    gpus: int
    locality: Locality
    gpu_type: str
    rate: float
    batch_size: float | None = None
    """Global batch size at which it was measured; None: not known."""
    cpus: float | None = None
    """CPUs that the job had for all its slots together; None: not known."""
    memory_gib: float | None = None
    """Memory in GiB for the same slots; None: not known."""


@value
class ReleaseReport:
    """Slots of a lease that the app gives back, because it cannot use them now."""

    lease: int
    epoch: int
    gpus: tuple[int, ...]


@value
class StandingReport:
    """The state of the search, shown to users."""

    metric: str
    best: float | None
    best_job: str
    best_params_json: str
    best_checkpoint: str
    last: str
    trials: int
    best_step: int | None = None
    """Step at which the best metric was logged; None: not known."""
    checkpoint_step: int | None = None
    """Step of ``best_checkpoint``; None: there is none."""
    checkpoint_metric: float | None = None
    """The metric at that step; None: the checkpoint is the newest, not one that was kept for its metric."""
    stalls: int = 0
    """Gangs that were ended as stalled."""
    last_stall: str = ""
    stall_warning: str = ""
    """What is wrong with the app file's limit on stalls; empty: nothing."""
    notices: tuple[str, ...] = ()
    """What was lost or replaced after damage, oldest first."""
    by_logs: bool = False
    """Whether steps are those that scripts without the helper have logged."""


@value
class LeftOutReport:
    """A node on which the app can use no slot now."""

    node: str
    why: str
    other: str = ""
    """The other node of the pair that does not reach it; empty: the node lacks something."""
    by_master: bool = False
    """Whether ``other`` is the app master's own node."""
    since: float
    """Unix seconds by the arbiter's clock."""
    again_seconds: float
    """Between two tries."""


@builds
class BidReport:
    """The answer to an offer; ``table`` has one claim."""

    offer: int
    table: ByBundle


@dataclass(slots=True)
class Reports:
    """The reports of one request."""

    added: dict[str, JobAdded] = field(default_factory=dict)
    lives: dict[str, Life] = field(default_factory=dict)
    progress: dict[str, Progress] = field(default_factory=dict)
    adapted: list[AdaptationReport] = field(default_factory=list)
    """Oldest first."""
    rates: list[RateReport] = field(default_factory=list)
    forecast: Forecast | None = None
    division: Mapping[str, tuple[int, ...]] | None = None
    bid: BidReport | None = None
    releases: list[ReleaseReport] = field(default_factory=list)
    standing: StandingReport | None = None
    left_out: tuple[LeftOutReport, ...] | None = None
    done: float | None = None
    """Fraction of the app's whole work that is done."""


class Outbox:
    """Reports by key: a newer one replaces an older one of the same key. Thread-safe.

    A report is taken once, unless ``give_back`` queues it again because it did not arrive. Every report is idempotent.
    """

    def __init__(self, system: System = MACHINE) -> None:
        self._lock = system.lock()
        self._waiting: dict[tuple[str, Hashable], Any] = {}
        self._urgent = False
        self._listener = system.flag()

    def listen(self, listener: Flag) -> None:
        """Set an event, replacing the last listener, as soon as a report should not wait for a heartbeat."""
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
        """Drop a report that is no longer true."""
        with self._lock:
            self._waiting.pop((kind, key), None)

    def clear(self) -> None:
        """Drop all reports but adaptations: a registration reports everything else again."""
        with self._lock:
            self._waiting = {key: report for key, report in self._waiting.items() if key[0] == "adapted"}
            self._urgent = bool(self._waiting)

    def take(self) -> "Sending":
        """Return the reports of the next request.

        The arbiter applies the events of one request in a fixed order, a job's reports before the job is added. So a
        request that adds jobs has no other reports about jobs, and a request that ends a job has no others about it.
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
        """Queue reports again that did not arrive, unless a newer one has replaced them."""
        with self._lock:
            self._waiting = sending.items | self._waiting


def _is_of(over: set[Hashable], key: tuple[str, Hashable], report: Any) -> bool:
    """Whether a report is about a job that ends in the same request, so that the arbiter would not know the job."""
    kind, job = key
    return (kind == "progress" and job in over) or (kind in ("rates", "adapted") and report.job in over)


@builds
class Sending:
    """Reports that are on their way, by kind and key."""

    items: dict[tuple[str, Hashable], Any]

    def reports(self) -> Reports:
        """Return the reports sorted into kinds."""
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
