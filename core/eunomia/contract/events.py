"""What happened: everything that the arbiter learns, as values that the journal keeps.

Events of one instant are one step and are folded in the order of ``ORDER``, within a kind by id. Times are the
step's; there is no event for the end of a lease, which follows from the time.
"""

import dataclasses
import math
import operator
from typing import Final

from eunomia.contract.valuations import Form
from eunomia.model.forecasts import Forecast
from eunomia.model.shapes import builds, value
from eunomia.units import AppId, Epoch, JobId, LeaseId, Locality, OfferId, Seconds, UserId

NOW: Final = Seconds(math.nan)
"""The time of the step that an event is handed in with."""


@value
class ProfileChanged:
    """The operator chose a policy, or asks for the chosen one after a fallback."""

    profile: str


@value
class MachineLost:
    """A machine does not answer, or some of its GPUs are gone: they are down."""

    machine: str
    gpus: tuple[int, ...] = ()
    """Numbers of the GPUs that are down; empty: all of the machine."""


@value
class MachineBack:
    """A machine answers again, or some of its GPUs are back, and nothing runs on them."""

    machine: str
    gpus: tuple[int, ...] = ()
    """Numbers of the GPUs that are back; empty: all of the machine."""


@value
class Released:
    """The holder has given GPUs back, as the order of that epoch asked or by itself."""

    lease: LeaseId
    epoch: Epoch
    gpus: tuple[int, ...]
    at: Seconds = NOW
    """When it was so, at most the step's time; NaN: at the step's time."""


@value
class GpusReturned:
    """An app gives GPUs back that it cannot use; nothing runs on them."""

    app: AppId
    gpus: tuple[int, ...]


@value
class JobFinished:
    """A job did all its work, or its tuner ended it."""

    job: JobId


@value
class JobFailed:
    """A job failed. ``again_in``: seconds until it is tried again; None: never."""

    job: JobId
    again_in: Seconds | None = None
    why: str = ""


@value
class AppFinished:
    """All of an app's work is over: done, or failed with ``why``."""

    app: AppId
    failed: bool = False
    why: str = ""


@value
class AppCancelled:
    """The user cancelled the app."""

    app: AppId


@value
class Started:
    """What the transition of that epoch asked for runs."""

    lease: LeaseId
    epoch: Epoch
    at: Seconds = NOW
    """When it was so, at most the step's time; NaN: at the step's time."""


@value
class Resized:
    """A lease's job runs at its new size or place."""

    lease: LeaseId
    epoch: Epoch
    at: Seconds = NOW
    """When it was so, at most the step's time; NaN: at the step's time."""


@value
class JobReported:
    """Progress: iterations done at this moment, and iterations a second from now on."""

    job: JobId
    iterations_done: float
    rate: float
    at: Seconds = NOW
    """When it was so, at most the step's time; NaN: at the step's time."""


@value
class RateMeasured:
    """Iterations a second that a job was measured to make."""

    job: JobId
    gpus: int
    locality: Locality
    rate: float
    """0: it does not run so."""
    gpu_type: str


@value
class ForecastReported:
    """What an app now knows of its remaining work."""

    app: AppId
    forecast: Forecast


@value
class Adapted:
    """A job announced another regime: its global batch size from now on."""

    job: JobId
    batch_size: float


@value
class RoundEnded:
    """An executor that works in rounds says that one is over: a round of the arbiter is due."""

    jobs: tuple[JobId, ...] = ()
    """Jobs that held GPUs in the round and did not run for all of it."""
    idle_seconds: tuple[Seconds, ...] = ()
    """By job: for how long; it is taken off what the ledger counts as run and received."""


@value
class JobsDivided:
    """The app's tuner divides the app's leases: which job runs on which GPUs, for all its jobs that run."""

    app: AppId
    jobs: tuple[JobId, ...]
    gpus: tuple[tuple[int, ...], ...]


@value
class JobPaused:
    """The app does not want the job to run now."""

    job: JobId


@value
class JobResumed:
    """The app wants a paused job to run again, such as a promoted trial."""

    job: JobId
    iterations: float = math.nan
    """Its whole work from now on; NaN: as before."""


@value
class AppArrived:
    """An app registered."""

    app: AppId
    user: UserId
    weight: float = 1.0
    user_weight: float = 1.0
    tuner_kind: str = "none"
    divides: bool = True
    """An app master is there that divides a win of the app among its jobs."""
    again: bool = False
    """An app of this id was here, failed, and is taken up again."""


@value
class JobAdded:
    """A job of an app exists and wants to run."""

    job: JobId
    app: AppId
    least: int = 1
    most: int = 1
    iterations: float = math.nan
    seconds_per_iteration: float = math.nan
    """Declared serial time of an iteration."""
    kind: str | None = None
    """Jobs of a kind share a menu; None: a kind of its own."""
    gpu_type: str | None = None
    cpus_per_gpu: float = math.nan
    memory_gib_per_gpu: float = math.nan
    batch_size: float = math.nan


@builds
class BidReceived:
    """An app master's bid for an open offer."""

    app: AppId
    offer: OfferId
    form: Form


Event = (
    ProfileChanged
    | MachineLost
    | MachineBack
    | Released
    | GpusReturned
    | JobFinished
    | JobFailed
    | AppFinished
    | AppCancelled
    | Started
    | Resized
    | JobReported
    | RateMeasured
    | ForecastReported
    | Adapted
    | RoundEnded
    | JobsDivided
    | JobPaused
    | JobResumed
    | AppArrived
    | JobAdded
    | BidReceived
)

ORDER: tuple[type, ...] = (
    ProfileChanged,
    MachineLost,
    MachineBack,
    Released,
    GpusReturned,
    JobFinished,
    JobFailed,
    AppFinished,
    AppCancelled,
    Started,
    Resized,
    JobReported,
    Adapted,
    RoundEnded,
    JobsDivided,
    JobPaused,
    AppArrived,
    JobAdded,
    JobResumed,
    RateMeasured,
    ForecastReported,
    BidReceived,
)
"""The order in which events of one instant are folded in."""

_RANK = {kind: rank for rank, kind in enumerate(ORDER)}


def in_order(events: "tuple[Event, ...] | list[Event]") -> "list[Event]":
    """Events of one instant in the fixed order; a kind's events by id, reports of one id as they came."""
    before = -1
    for event in events:
        rank = _RANK[type(event)]
        if rank <= before:
            break
        before = rank
    else:
        return list(events)  # one of each kind, as they are to be folded
    kinds: dict[type, list[Event]] = {}
    for event in events:
        kinds.setdefault(type(event), []).append(event)
    ordered: list[Event] = []
    for kind in sorted(kinds, key=_RANK.__getitem__):
        theirs = kinds[kind]
        if len(theirs) > 1 and kind in _SUBJECT:
            theirs.sort(key=_SUBJECT[kind])
        ordered += theirs
    return ordered


def _subject_of(kind: type) -> str:
    """The field that says whom an event is about; empty: nobody."""
    names = {field.name for field in dataclasses.fields(kind)}
    return next((name for name in ("machine", "job", "app", "lease") if name in names), "")


_SUBJECT = {kind: operator.attrgetter(_subject_of(kind)) for kind in ORDER if _subject_of(kind)}
"""By kind, whom an event is about."""
