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
    """A change of a job's state to report: ``finished``, ``failed``, ``paused`` or ``resumed``."""

    what: str
    again_in: float | None = None
    """With ``failed``: seconds until the job's retry; None: no retry."""
    why: str = ""
    iterations: float | None = None
    """With ``resumed``: the job's whole work from now on, in iterations."""

    @property
    def is_end(self) -> bool:
        """Return whether the job has ended with this change."""
        return self.what == "finished" or (self.what == "failed" and self.again_in is None)


@value
class Progress:
    """The iterations that a job has done at this moment, and its iterations per second from now on."""

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
    """Time of the change in Unix seconds by the arbiter's clock."""


@value
class RateReport:
    """A measured rate of a job, in iterations per second."""

    job: str
    gpus: int
    locality: Locality
    gpu_type: str
    rate: float
    batch_size: float | None = None
    """Global batch size at which it was measured; None: not known."""
    cpus: float | None = None
    """CPUs of all the job's slots together; None: not known."""
    memory_gib: float | None = None
    """Memory of all the job's slots together, in GiB; None: not known."""


@value
class ReleaseReport:
    """Slots of a lease that the app gives back, because it cannot use them now."""

    lease: int
    epoch: int
    gpus: tuple[int, ...]


@value
class ResizeReport:
    """The report that a job now runs on the changed slots of its own lease."""

    lease: int
    epoch: int
    at: float
    """Time of the change in Unix seconds by the arbiter's clock."""
    restarted: bool
    """Whether the job was restarted for it."""
    join_seconds: float = 0.0
    """For a live change: seconds from the order to the step boundary at which the gang changed."""
    pause_seconds: float = 0.0
    """For a live change: seconds from the last step before the boundary to the first step after it."""


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
    """The metric at that step; None: the checkpoint is the newest one, not kept for its metric."""
    stalls: int = 0
    """Number of stalls; each ended a gang, or workers without which their gang goes on."""
    last_stall: str = ""
    stall_warning: str = ""
    """Warning about the app file's stall limit; empty: none."""
    notices: tuple[str, ...] = ()
    """Notices about files lost or replaced after damage, oldest first."""
    by_logs: bool = False
    """Whether steps come from the logs of scripts without the helper."""


@value
class LeftOutReport:
    """A node whose slots the app cannot use now."""

    node: str
    why: str
    other: str = ""
    """The other node of a pair that cannot reach each other; empty: the node lacks something."""
    by_master: bool = False
    """Whether ``other`` is the app master's own node."""
    since: float
    """Time since which the node is left out, in Unix seconds by the arbiter's clock."""
    again_seconds: float
    """Seconds between two attempts to use the node."""


@builds
class BidReport:
    """The app's bid for an offer; ``table`` has one claim."""

    offer: int
    table: ByBundle


@dataclass(slots=True)
class Reports:
    """The reports that one request carries."""

    added: dict[str, JobAdded] = field(default_factory=dict)
    lives: dict[str, Life] = field(default_factory=dict)
    progress: dict[str, Progress] = field(default_factory=dict)
    adapted: list[AdaptationReport] = field(default_factory=list)
    """Changes of batch sizes, oldest first."""
    rates: list[RateReport] = field(default_factory=list)
    forecast: Forecast | None = None
    division: Mapping[str, tuple[int, ...]] | None = None
    bid: BidReport | None = None
    releases: list[ReleaseReport] = field(default_factory=list)
    resized: list[ResizeReport] = field(default_factory=list)
    standing: StandingReport | None = None
    left_out: tuple[LeftOutReport, ...] | None = None
    done: float | None = None
    """Fraction of the app's whole work that is done."""


class Outbox:
    """Pending reports by key: a newer one replaces an older one with the same key. Thread-safe.

    A report is taken once, unless ``give_back`` queues it again because it did not arrive. Every report is idempotent.
    """

    def __init__(self, system: System = MACHINE) -> None:
        self._lock = system.lock()
        self._waiting: dict[tuple[str, Hashable], Any] = {}
        self._urgent = False
        self._listener = system.flag()

    def listen(self, listener: Flag) -> None:
        """Register an event, in place of the previous one, that is set as soon as an urgent report is pending."""
        with self._lock:
            self._listener = listener
            if self._urgent:
                listener.set()

    def put(self, kind: str, report: Any, *, key: Hashable = None, urgent: bool = True) -> None:
        """Add a report; ``kind``: name of a field of ``Reports``; ``urgent``: whether to send it at once."""
        with self._lock:
            self._waiting[kind, key] = report
            if urgent:
                self._urgent = True
                self._listener.set()

    def drop(self, kind: str, *, key: Hashable = None) -> None:
        """Remove the pending report of a kind and key, if there is one, since it is no longer valid."""
        with self._lock:
            self._waiting.pop((kind, key), None)

    def clear(self) -> None:
        """Remove all pending reports except adaptations, since a registration repeats everything else."""
        with self._lock:
            self._waiting = {key: report for key, report in self._waiting.items() if key[0] == "adapted"}
            self._urgent = bool(self._waiting)

    def take(self) -> "Sending":
        """Remove and return the reports of the next request.

        The arbiter applies the events of one request in a fixed order, with reports about jobs before new jobs. So a
        request that adds jobs has no other reports about jobs, and a request that ends a job has no other report about
        it.
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
        """Queue the reports of a failed request again, unless newer ones have replaced them."""
        with self._lock:
            self._waiting = sending.items | self._waiting


def _is_of(over: set[Hashable], key: tuple[str, Hashable], report: Any) -> bool:
    """Return whether a report is about a job that ends in the same request, and so is unknown to the arbiter."""
    kind, job = key
    return (kind == "progress" and job in over) or (kind in ("rates", "adapted") and report.job in over)


@builds
class Sending:
    """The reports of a request that was sent, by kind and key."""

    items: dict[tuple[str, Hashable], Any]

    def reports(self) -> Reports:
        """Return the reports grouped by kind."""
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
